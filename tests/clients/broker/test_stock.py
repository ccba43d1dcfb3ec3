"""The stock NameServer, broker and mqadmin 5.5.0 beside a Python broker agent."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.broker.config import BrokerConfig
from clients.broker.persistence import TopicFile, encode_topics_file
from clients.broker.topic_config import decode_topic_table
from clients.broker.topics import built_in_topics
from tests.support.java import free_port, wait_until
from tests.support.rocketmq import StockBroker, StockNameServer, mqadmin

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def namesrv() -> Iterator[StockNameServer]:
    with StockNameServer() as server:
        yield server


@contextlib.contextmanager
def agent(namesrv_addr: str, store: Path, name: str = "py-broker", **options: str) -> Iterator[str]:
    """`routelake broker` as a process; its address. It leaves by SIGTERM."""
    address = f"127.0.0.1:{free_port()}"
    given = {
        "namesrv": namesrv_addr,
        "listen": address,
        "name": name,
        "cluster": "PyCluster",
        "store": str(store),
        **options,
    }
    command = [sys.executable, "-m", "clients.cli", "broker", *(f"--{key}={value}" for key, value in given.items())]
    output = store / "output.log"
    with output.open("w") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: process.poll() is not None or "serving" in output.read_text(), 20, "the broker agent")
            assert process.poll() is None, output.read_text()
            yield address
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0, output.read_text()
        finally:
            process.kill()
            process.wait()


def admin(namesrv: StockNameServer, *args: str) -> str:
    done = mqadmin(list(args), namesrv.address)
    return done.stdout + done.stderr


def route(namesrv: StockNameServer, topic: str) -> dict[str, tuple[int, int, int]]:
    """{brokerName: (read, write, perm)} as the stock mqadmin prints it."""
    text = admin(namesrv, "topicRoute", "-t", topic)
    if "No topic route info" in text or "CODE: 17" in text:
        return {}
    rows = json.loads(text[text.index('"queueDatas"') + len('"queueDatas":') :].split("]")[0] + "]")
    return {row["brokerName"]: (row["readQueueNums"], row["writeQueueNums"], row["perm"]) for row in rows}


def test_mqadmin_manages_topics_on_a_python_broker(namesrv: StockNameServer, tmp_path: Path) -> None:
    with agent(namesrv.address, tmp_path) as address:
        text = admin(namesrv, "updateTopic", "-c", "PyCluster", "-t", "orders", "-r", "6", "-w", "5")
        assert f"create topic to {address} success." in text
        assert route(namesrv, "orders") == {"py-broker": (6, 5, 6)}

        topics = tmp_path / "topics.list"
        topics.write_text(
            json.dumps(
                [
                    {
                        "topicName": name,
                        "readQueueNums": 2,
                        "writeQueueNums": 2,
                        "perm": 6,
                        "attributes": {"+message.type": "FIFO"},
                    }
                    for name in ("one", "two")
                ]
            )
        )
        text = admin(namesrv, "updateTopicList", "-b", address, "-f", str(topics))
        assert "success" in text, text

        text = admin(namesrv, "updateTopicPerm", "-b", address, "-t", "orders", "-p", "4")
        assert "success" in text, text

        text = admin(namesrv, "updateTopic", "-b", address, "-t", "bad.name")
        assert "The specified topic" in text, text
        text = admin(namesrv, "updateTopic", "-b", address, "-t", "TBW102")
        assert "conflict with system topic" in text, text
        text = admin(namesrv, "updateTopic", "-b", address, "-t", "orders", "-r", "0", "-w", "-1")
        assert "must both be at least 1" in text, text

        text = admin(namesrv, "clusterList")
        assert address in text
        assert "V5_5_0" in text
        text = admin(namesrv, "getBrokerConfig", "-b", address)
        assert "autoCreateTopicEnable" in text, text

        # a stock producer and the default topic: created where TBW102 is offered, then refused
        text = admin(namesrv, "sendMessage", "-t", "made_by_sending", "-p", "hello")
        assert "it keeps no messages" in text, text
        assert route(namesrv, "made_by_sending") == {"py-broker": (4, 4, 6)}

        text = admin(namesrv, "deleteTopic", "-c", "PyCluster", "-t", "one")
        assert "success" in text, text
        stored = TopicFile(tmp_path / "config" / "topics.json").load().table
        assert stored is not None
        own = stored.topic_config_table.keys() - {config.topic_name for config in built_in_topics(BrokerConfig())}
        assert {"orders", "two", "made_by_sending"} <= own
        assert "one" not in own
        assert stored.topic_config_table["two"].attributes == {"message.type": "FIFO"}
        assert stored.topic_config_table["orders"].perm == 4
    assert route(namesrv, "orders") == {}  # unregistered


def test_topics_json_in_both_directions(namesrv: StockNameServer, tmp_path: Path) -> None:
    with StockBroker(namesrv.address, cluster="StockCluster", name="stock-a") as stock:
        file = stock.home / "store" / "config" / "topics.json"
        text = admin(
            namesrv,
            "updateTopic",
            "-b",
            stock.address,
            "-t",
            "from_stock",
            "-r",
            "7",
            "-w",
            "3",
            "-a",
            "+message.type=FIFO",
        )
        assert "success" in text, text

        # theirs to ours: the same bytes but for the order of topics, and a broker that starts from it
        data = file.read_bytes()
        table = decode_topic_table(data)
        assert sorted(encode_topics_file(table).splitlines(), key=without_comma) == sorted(
            data.splitlines(), key=without_comma
        )
        config = BrokerConfig(broker_cluster_name="StockCluster", broker_name="stock-a")
        built_in = {topic.topic_name: topic for topic in built_in_topics(config)}
        assert {name: topic for name, topic in table.topic_config_table.items() if name != "from_stock"} == built_in
        ours = tmp_path / "config" / "topics.json"
        ours.parent.mkdir()
        ours.write_bytes(data)
        with agent(namesrv.address, tmp_path, name="py-a") as address:
            assert route(namesrv, "from_stock") == {"stock-a": (7, 3, 6), "py-a": (7, 3, 6)}
            text = admin(
                namesrv,
                "updateTopic",
                "-b",
                address,
                "-t",
                "from_python",
                "-r",
                "2",
                "-w",
                "9",
                "-a",
                "+message.type=DELAY",
            )
            assert "success" in text, text

        # ours to theirs: the stock broker starts from the file that the agent wrote
        stock.sigkill()
        file.write_bytes(ours.read_bytes())
        stock.start()
        assert route(namesrv, "from_python") == {"stock-a": (2, 9, 6)}
        text = admin(namesrv, "updateTopic", "-b", stock.address, "-t", "from_python", "-a", "+message.type=FIFO")
        assert "success" in text, text
        after = decode_topic_table(file.read_bytes())
        before = decode_topic_table(ours.read_bytes())
        assert after.data_version.counter == before.data_version.counter + 1
        assert after.topic_config_table["from_python"].attributes == {"message.type": "FIFO"}
        assert after.topic_config_table["from_stock"] == before.topic_config_table["from_stock"]


def without_comma(line: bytes) -> bytes:
    return line.rstrip(b",")
