# SPDX-License-Identifier: Apache-2.0
"""The stock NameServer, broker and mqadmin 5.5.0 with a Python broker agent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.broker.broker_topics import TopicFile, encode_topics_file
from clients.broker.config import BrokerConfig
from clients.broker.topic_config import TopicTable, decode_topic_table
from clients.broker.topics import built_in_topics
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.peers.java import free_port, wait_until
from dev.peers.routelake import ROOT
from dev.support.broker_agent import broker_agent
from dev.support.rocketmq import StockBroker, StockNameServer, mqadmin
from tests.clients.broker.namesrv import update_fields as update

pytestmark = pytest.mark.jvm

BUILT_IN = {topic.topic_name for topic in built_in_topics(BrokerConfig(broker_name="same", broker_cluster_name="Same"))}


@pytest.fixture(scope="module")
def namesrv() -> Iterator[StockNameServer]:
    with StockNameServer() as server:
        yield server


@pytest.fixture(scope="module")
def stock(namesrv: StockNameServer) -> Iterator[StockBroker]:
    with StockBroker(namesrv.address, cluster="Same", name="same") as broker:
        yield broker


def admin(namesrv: StockNameServer, *args: str) -> str:
    """What the stock mqadmin prints; every call is a JVM."""
    done = mqadmin(list(args), namesrv.address)
    return done.stdout + done.stderr


def ask(address: str, code: int, body: bytes = b"", **ext: object) -> Any:
    """One request over the wire."""
    host, _, port = address.rpartition(":")
    fields = {name: str(value) for name, value in ext.items() if value is not None}
    with RemotingClient(host, int(port)) as client:
        return client.call(Request(code, fields, body), 20)


def route(address: str, topic: str) -> dict[str, tuple[int, int, int]]:
    """{brokerName: (read, write, perm)} at a NameServer."""
    answer = ask(address, 105, topic=topic)
    rows = json.loads(answer.body)["queueDatas"] if answer.code == 0 else []
    return {row["brokerName"]: (row["readQueueNums"], row["writeQueueNums"], row["perm"]) for row in rows}


# --- mqadmin ---


@pytest.mark.deep
def test_mqadmin_manages_topics_on_a_python_broker(namesrv: StockNameServer, tmp_path: Path) -> None:
    with broker_agent(namesrv.address, tmp_path, "py-broker", "PyCluster") as address:
        text = admin(namesrv, "updateTopic", "-c", "PyCluster", "-t", "orders", "-r", "6", "-w", "5")
        assert f"create topic to {address} success." in text
        text = admin(namesrv, "topicRoute", "-t", "orders")
        assert '"readQueueNums":6' in text.replace(" ", ""), text
        assert address in text

        text = admin(namesrv, "updateTopic", "-b", address, "-t", "bad.name")
        assert "The specified topic" in text, text
        text = admin(namesrv, "clusterList")
        assert address in text
        assert "V5_5_0" in text

        # a stock producer and the default topic: created where TBW102 is offered, then refused
        text = admin(namesrv, "sendMessage", "-t", "made_by_sending", "-p", "hello")
        assert "it keeps no messages" in text, text
        assert route(namesrv.address, "made_by_sending") == {"py-broker": (4, 4, 6)}

        text = admin(namesrv, "deleteTopic", "-c", "PyCluster", "-t", "orders")
        assert "success" in text, text
        stored = TopicFile(tmp_path / "config" / "topics.json").load().table
        assert stored is not None
        assert "orders" not in stored.topic_config_table
        assert "made_by_sending" in stored.topic_config_table
    assert route(namesrv.address, "TBW102").get("py-broker") is None  # unregistered


@pytest.mark.deep
def test_the_rest_of_mqadmins_topic_commands(namesrv: StockNameServer, tmp_path: Path) -> None:
    topics = tmp_path / "topics.list"
    fifo = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "attributes": {"+message.type": "FIFO"}}
    topics.write_text(json.dumps([{"topicName": name, **fifo} for name in ("one", "two")]))
    with broker_agent(namesrv.address, tmp_path, "py-deep", "PyDeep") as address:
        text = admin(namesrv, "updateTopicList", "-b", address, "-f", str(topics))
        assert "success" in text, text
        assert route(namesrv.address, "two") == {"py-deep": (2, 2, 6)}
        text = admin(namesrv, "updateTopicPerm", "-b", address, "-t", "two", "-p", "4")
        assert "success" in text, text
        assert route(namesrv.address, "two") == {"py-deep": (2, 2, 4)}
        text = admin(namesrv, "updateTopic", "-b", address, "-t", "three", "-o", "true")
        assert "success" in text, text
        text = admin(namesrv, "updateTopic", "-b", address, "-t", "TBW102")
        assert "conflict with system topic" in text, text
        text = admin(namesrv, "updateTopic", "-b", address, "-t", "two", "-r", "0", "-w", "-1")
        assert "must both be at least 1" in text, text
        text = admin(namesrv, "getBrokerConfig", "-b", address)
        assert "autoCreateTopicEnable" in text, text
        text = admin(namesrv, "brokerStatus", "-b", address)
        assert "topicNumber" in text, text
        text = admin(namesrv, "topicList")
        assert "two" in text.split()


# --- the stock broker as the judge of ours ---

HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g1","unitMode":true,"consumeType":"CONSUME_PASSIVELY",'
    b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":'
    b'[{"topic":"ordered","subString":"*","subVersion":1}]}],"producerDataSet":[]}'
)


def listed(*topics: dict[str, Any]) -> bytes:
    return json.dumps({"topicConfigList": list(topics)}).encode()


def send(topic: str, default: str = "TBW102", queues: int = 4, queue: int = 0, **more: object) -> dict[str, Any]:
    """Fields of SEND_MESSAGE_V2."""
    flags = {"f": 0, "g": 1_700_000_000_000, "h": 0, "i": "", "j": 0, "k": "false", "m": "false"}
    return {"a": "group", "b": topic, "c": default, "d": queues, "e": queue, **flags, **more}


SCRIPT: list[tuple[int, dict[str, object], bytes]] = [
    (17, update("orders"), b""),
    (17, update("orders"), b""),
    (17, update("orders", readQueueNums=4, perm=4, topicSysFlag=3, order="true"), b""),
    (17, update("multi", topicFilterType="MULTI_TAG", topicSysFlag=None, order=None), b""),
    (17, update("fifo", attributes="+message.type=FIFO,+queue.type=BatchCQ"), b""),
    (17, update("fifo"), b""),
    (17, update("fifo", attributes="+message.type=DELAY"), b""),
    (17, update("fifo", attributes="+queue.type=SimpleCQ"), b""),
    (17, update("fifo", attributes="-message.type"), b""),
    (17, update("fifo", attributes="-message.type"), b""),
    (17, update("reserved", attributes="+reserve.time=7"), b""),
    (17, update("mixed", attributes="+message.type=MIXED"), b""),
    (17, update("loud", attributes="+message.type=LOUD"), b""),
    (17, update("odd", attributes="+colour=red"), b""),
    (17, update("odd", attributes="-message.type"), b""),
    (17, update("odd", attributes="message.type=FIFO"), b""),
    (17, update("odd", readQueueNums=None), b""),
    (17, update("odd", perm="rw"), b""),
    (17, update("odd", topicFilterType="ANY"), b""),
    (17, update(" "), b""),
    (17, update("a b"), b""),
    (17, update("x" * 127), b""),
    (17, update("x" * 128), b""),
    (17, update("%RETRY%" + "x" * 248), b""),
    (17, update("%RETRY%" + "x" * 249), b""),
    (17, update("TBW102"), b""),
    (17, update("Same"), b""),
    (17, update("rmq_sys_mine"), b""),
    (
        18,
        {},
        listed({"topicName": "a", "readQueueNums": 3}, {"topicName": "b", "attributes": {"+message.type": "FIFO"}}),
    ),
    (18, {}, listed({"topicName": "c"}, {"topicName": "a", "readQueueNums": 3})),
    (18, {}, listed({"topicName": "c"}, {"topicName": "a b"})),
    (18, {}, listed({"topicName": "c"}, {"topicName": "TBW102"})),
    (351, {"topic": "a"}, b""),
    (351, {"topic": "nobody"}, b""),
    (215, {"topic": "a"}, b""),
    (215, {"topic": "a"}, b""),
    (215, {"topic": ""}, b""),
    (215, {"topic": "TBW102"}, b""),
    (310, send("auto"), b"x"),
    (310, send("auto", queue=4), b"x"),
    (310, send("wide", queues=99), b"x"),
    (310, send("unit", k="true"), b"x"),
    (310, send("child", default="Same"), b"x"),
    (310, send("lonely", default="nobody"), b"x"),
    (310, send("lonely", default="BenchmarkTest"), b"x"),
    (310, send("zero", queues=0), b"x"),
    (310, send("negative", queues=-1), b"x"),
    (310, send("a b"), b"x"),
    (310, send("SCHEDULE_TOPIC_XXXX"), b"x"),
    (310, send("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"), b"x"),
    (17, update("ordered", order="true"), b""),
    (34, {}, HEARTBEAT),
    (34, {}, HEARTBEAT),
    (
        36,
        {"group": "g2", "offset": 17, "delayLevel": 0, "originMsgId": "", "originTopic": "auto", "unitMode": "true"},
        b"",
    ),
]


def table_of(address: str) -> TopicTable:
    return decode_topic_table(ask(address, 21).body)


def own(table: TopicTable) -> dict[str, object]:
    return {name: topic for name, topic in table.topic_config_table.items() if name not in BUILT_IN}


def test_a_stock_broker_answers_alike(namesrv: StockNameServer, stock: StockBroker, tmp_path: Path) -> None:
    """The same requests, one after the other: same codes and remarks, same topics after each, same counter."""
    elsewhere = f"127.0.0.1:{free_port()}"  # two brokers of one name at one NameServer would be one
    with broker_agent(elsewhere, tmp_path, "same", "Same") as address:
        for code, ext, body in SCRIPT:
            theirs, ours = ask(stock.address, code, body, **ext), ask(address, code, body, **ext)
            what = f"{code} {ext} {body!r}: {theirs} {ours}"
            if code == 310 and theirs.code == 0:
                assert ours.code == 14, what
            else:
                assert ours.code == theirs.code, what
                if code == 310 and theirs.code == 29 and "queueId" in theirs.remark:
                    assert ours.remark.split(" Producer")[0] == theirs.remark.split(" Producer")[0], what
                elif theirs.code > 1:
                    assert theirs.remark.startswith(ours.remark), what
                elif code == 351:
                    assert json.loads(ours.body) == json.loads(theirs.body), what
            stock_table, our_table = table_of(stock.address), table_of(address)
            assert own(our_table) == own(stock_table), what
            assert our_table.data_version.counter == stock_table.data_version.counter, what
        theirs, ours = ask(stock.address, 305), ask(address, 305)
        assert set(json.loads(ours.body)["topicList"]) == set(json.loads(theirs.body)["topicList"])


# --- topics.json ---


def test_topics_json_in_both_directions(
    namesrv: StockNameServer, stock: StockBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = stock.home / "store" / "config" / "topics.json"
    # a broker that found no NameServer in its first moment comes with its first round, after 10 s
    wait_until(lambda: "same" in route(namesrv.address, "TBW102"), 30, "the stock broker at the NameServer")
    fields = update("from_stock", readQueueNums=7, writeQueueNums=3, attributes="+message.type=FIFO")
    assert ask(stock.address, 17, **fields).code == 0

    # theirs to ours: the same lines but for the order of topics, and a broker that starts from it
    data = file.read_bytes()
    table = decode_topic_table(data)
    assert sorted(map(without_comma, encode_topics_file(table).splitlines())) == sorted(
        map(without_comma, data.splitlines())
    )
    built_in = {
        topic.topic_name: topic
        for topic in built_in_topics(BrokerConfig(broker_name="same", broker_cluster_name="Same"))
    }
    assert {name: topic for name, topic in table.topic_config_table.items() if name in BUILT_IN} == built_in
    ours = tmp_path / "config" / "topics.json"
    ours.parent.mkdir()
    ours.write_bytes(data)
    with broker_agent(namesrv.address, tmp_path, "py-a", "PyCluster") as address:
        assert route(namesrv.address, "from_stock") == {"same": (7, 3, 6), "py-a": (7, 3, 6)}
        fields = update("from_python", readQueueNums=2, writeQueueNums=9, attributes="+message.type=DELAY")
        assert ask(address, 17, **fields).code == 0

    if not request.config.getoption("--deep"):
        return  # our file has the lines of theirs, and a start of a stock broker takes 15 s of processor time

    # ours to theirs: the stock broker starts from the file that the agent wrote
    stock.sigkill()
    file.write_bytes(ours.read_bytes())
    stock.start()
    wait_until(lambda: "same" in route(namesrv.address, "from_python"), 30, "the stock broker at the NameServer")
    text = admin(namesrv, "topicRoute", "-t", "from_python")
    assert '"writeQueueNums":9' in text.replace(" ", ""), text
    assert stock.address in text
    before, after = decode_topic_table(ours.read_bytes()), table_of(stock.address)
    assert own(after) == own(before) | {name: topic for name, topic in own(after).items() if name.startswith("%")}
    assert after.topic_config_table["from_python"].attributes == {"message.type": "DELAY"}
    assert ask(stock.address, 17, **update("from_python", attributes="+message.type=FIFO")).code == 0
    stored = decode_topic_table(file.read_bytes())
    assert stored.data_version.counter == after.data_version.counter + 1


def without_comma(line: bytes) -> bytes:
    return line.rstrip(b",")


# --- a fleet ---


def test_a_fleet_at_a_stock_namesrv(namesrv: StockNameServer) -> None:
    command = [sys.executable, "-m", "cli.main", "fleet", "-n", namesrv.address, "--brokers=30", "--topics=500"]
    more = ["--heartbeat-period-s=1", "--changes-per-s=20", "--duration-s=600", "--vanish"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *more], cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stderr is not None
            assert any("30/30 brokers registered" in line for line in process.stderr)
            assert len(route(namesrv.address, "topic-00499")) == 30
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
            assert process.returncode == 0
            assert "30 of 30 brokers registered, 515 topics each" in out
            # a NameServer takes the end of a connection for the end of a broker
            wait_until(lambda: route(namesrv.address, "topic-00000") == {}, 30, "the fleet's end at the NameServer")
        finally:
            process.kill()
