# SPDX-License-Identifier: Apache-2.0
"""Stock brokers and NameServers 5.5.0, and a routelake, managed and compared by `routelake admin`."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog

from dev.peers.java import wait_until
from dev.support.local import LocalGateway, LocalLake
from dev.support.rocketmq import StockBroker, StockNameServer, mqadmin
from tests.cli.admin.run import admin

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.xdist_group("admin")]

CLUSTER = "DefaultCluster"


class Stock(NamedTuple):
    """broker_a is registered with all NameServers, broker_b only with the second one."""

    first: StockNameServer
    second: StockNameServer
    routelake: LocalGateway
    broker_a: StockBroker
    broker_b: StockBroker

    @property
    def both(self) -> str:
        return f"{self.first.address};{self.second.address}"


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    with ExitStack() as stack:
        stack.enter_context(quiet())
        pool = stack.enter_context(ThreadPoolExecutor(2))  # two JVMs start in the time of one
        first, second = pool.map(stack.enter_context, (StockNameServer(), StockNameServer()))
        lake = stack.enter_context(LocalLake(tmp_path_factory.mktemp("routelake")))
        routelake = stack.enter_context(lake.gateway())
        every = f"{first.address};{second.address};{routelake.address}"
        broker_a, broker_b = pool.map(
            stack.enter_context,
            (StockBroker(every, CLUSTER, "broker-a"), StockBroker(second.address, CLUSTER, "broker-b")),
        )
        for address, brokers in (
            (first.address, ["broker-a"]),
            (second.address, ["broker-a", "broker-b"]),
            (routelake.address, ["broker-a"]),
        ):
            wait_until(lambda at=address, of=brokers: registered(at) == of, 60, "registration")
        yield Stock(first, second, routelake, broker_a, broker_b)


@contextmanager
def quiet() -> Iterator[None]:
    """The gateway of this process logs to standard output, where the commands' JSON is read."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.configure(**before)


def registered(name_server: str) -> list[str]:
    ran = admin("clusterList", "-n", name_server, "-o", "json")
    return sorted(one["brokerName"] for one in ran.json) if ran.code == 0 else []


def holders(name_server: str, topic: str) -> set[str]:
    ran = admin("topicRoute", "-n", name_server, "-t", topic, "-o", "json")
    return {row["brokerName"] for row in ran.json["queueDatas"]} if ran.code == 0 else set()


def good(*args: str) -> Any:
    """Run a command that must succeed; its JSON."""
    ran = admin(*args, "--output", "json", "--timeout-s", "30")
    assert ran.code == 0, ran
    return ran.json


def test_stock_and_routelake_agree_on_a_stock_broker(stock: Stock) -> None:
    agreed = good("compare", "-n", f"{stock.first.address};{stock.routelake.address}")
    assert agreed["same"] is True
    assert good("topicList", "-n", stock.first.address) == good("topicList", "-n", stock.routelake.address)


def test_two_stock_name_servers_compared(stock: Stock) -> None:
    ran = admin("compare", "-n", stock.both, "-o", "json")
    assert ran.code == 1
    first, second = stock.first.address, stock.second.address
    (broker,) = ran.json["brokers"]
    assert broker["brokerName"] == "broker-b"
    assert broker["nameServers"][first] is None
    assert broker["nameServers"][second]["brokerAddrs[0]"] == stock.broker_b.address
    tbw102 = [one for one in ran.json["topics"] if one["topic"] == "TBW102"]
    assert [(one["brokerName"], one["nameServers"][first]) for one in tbw102] == [("broker-b", None)]
    assert not any(one["brokerName"] == "broker-a" for one in ran.json["topics"])

    # A change on one of them only, which lasts until broker-a registers again.
    good("wipeWritePerm", "-n", first, "-b", "broker-a")
    ran = admin("compare", "-n", stock.both, "-t", "TBW102", "-o", "json")
    (on_a,) = (one for one in ran.json["topics"] if one["brokerName"] == "broker-a")
    assert on_a["nameServers"] == {first: {"perm": "5"}, second: {"perm": "7"}}
    shown = admin("compare", "-n", stock.both, "-t", "TBW102")
    assert shown.code == 1
    assert "different: 1 broker and 1 topic." in shown.out


@pytest.mark.parametrize("name_server", ["first", "routelake"])
def test_a_life_of_a_topic(stock: Stock, tmp_path: Path, name_server: str) -> None:
    one = ("-n", getattr(stock, name_server).address)
    address = stock.broker_a.address

    def queue_data(topic: str) -> dict[str, Any]:
        (row,) = good("topicRoute", *one, "-t", topic)["queueDatas"]
        return row

    made = good("updateTopic", *one, "-c", CLUSTER, "-t", "orders", "-r", "6", "-w", "4")
    assert [(of["server"], of["address"], of["status"]) for of in made["outcomes"]] == [("broker-a", address, "done")]
    assert queue_data("orders") == {
        "brokerName": "broker-a",
        "perm": 6,
        "readQueueNums": 6,
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    good("updateTopicPerm", *one, "-b", address, "-t", "orders", "-p", "4")
    assert queue_data("orders")["perm"] == 4
    assert good("updateTopicPerm", *one, "-b", address, "-t", "orders", "-p", "4") == {"unchanged": True}
    good("updateTopicPerm", *one, "-c", CLUSTER, "-t", "orders", "-p", "6")

    file = tmp_path / "topics.json"
    file.write_text(json.dumps([{"topicName": "first", "readQueueNums": 2}, {"topicName": "second", "perm": 4}]))
    good("updateTopicList", *one, "-b", address, "-f", str(file))
    assert queue_data("second")["perm"] == 4
    assert {"orders", "first", "second"} <= set(good("topicList", *one)["topicList"])
    with_clusters = good("topicList", *one, "-c")
    assert {"topic": "orders", "cluster": CLUSTER, "groups": []} in with_clusters
    assert good("topicClusterList", *one, "-t", "orders") == {"clusters": [CLUSTER]}

    status = good("topicStatus", *one, "-t", "orders")
    assert [(at["brokerName"], at["queueId"], at["maxOffset"]) for at in status["offsets"]] == [
        ("broker-a", queue_id, 0) for queue_id in range(6)
    ]
    assert len(good("topicStatus", *one, "-t", "orders", "-c", CLUSTER)["offsets"]) == 6
    shares = good("allocateMQ", *one, "-t", "orders", "-i", "c1,c2,c3,c4")["result"]
    assert [len(shares[client]) for client in ("c1", "c2", "c3", "c4")] == [2, 2, 1, 1]

    good("updateTopic", *one, "-b", address, "-t", "orders", "-w", "4", "-o", "true")
    assert good("updateOrderConf", *one, "-t", "orders", "-m", "get")["orderConf"] == "broker-a:4"
    good("updateOrderConf", *one, "-t", "orders", "-m", "put", "-v", "broker-a:2")
    assert good("topicRoute", *one, "-t", "orders").get("orderTopicConf") is None  # orderMessageEnable is off
    good("updateOrderConf", *one, "-t", "orders", "-m", "delete")
    assert admin("updateOrderConf", *one, "-t", "orders", "-m", "get").code == 1

    wiped = good("wipeWritePerm", *one, "-b", "broker-a")["outcomes"]
    assert wiped[0]["detail"].endswith(" topics")
    assert queue_data("orders")["perm"] == 4
    good("addWritePerm", *one, "-b", "broker-a")
    assert queue_data("orders")["perm"] == 6

    gone = good("deleteTopic", *one, "-c", CLUSTER, "-t", "orders")["outcomes"]
    assert [(of["server"], of["status"]) for of in gone] == [("broker-a", "done"), ("NameServer", "done")]
    assert admin("topicRoute", *one, "-t", "orders").code == 1


def test_the_logical_queues_of_a_static_topic(stock: Stock) -> None:
    mqadmin(["updateStaticTopic", "-b", "broker-a", "-t", "fixed", "-qn", "3"], stock.first.address)
    for suffix in ("before", "after"):  # mqadmin keeps both states of the mapping
        for file in Path(tempfile.gettempdir()).glob(f"fixed-[0-9]*.{suffix}"):
            file.unlink()
    offsets = good("topicStatus", "-n", stock.first.address, "-t", "fixed")["offsets"]
    assert {(one["brokerName"], one["queueId"], one["minOffset"], one["maxOffset"]) for one in offsets} == {
        (name, queue_id, 0, 0) for name in ("broker-a", "__syslo__global__") for queue_id in range(3)
    }


def test_brokers_and_settings(stock: Stock) -> None:
    one = ("-n", stock.first.address)
    (member,) = good("clusterList", *one)
    assert (member["brokerAddr"], member["brokerId"]) == (stock.broker_a.address, 0)
    assert member["runtimeInfo"]["brokerVersionDesc"] == "V5_5_0"
    shown = admin("clusterList", *one)
    assert "V5_5_0" in shown.out
    assert "?" not in shown.out
    assert "?" not in admin("clusterList", *one, "-m").out

    both = ("-n", stock.both)
    key = "deleteTopicWithBrokerRegistration"
    configs = good("getNamesrvConfig", *both)
    assert {address: config[key] for address, config in configs.items()} == dict.fromkeys(
        (stock.first.address, stock.second.address), "false"
    )
    good("updateNamesrvConfig", *both, "-k", "clusterTest", "-v", "false")
    good("updateKvConfig", *both, "-s", "ns", "-k", "k", "-v", "v/é")
    good("deleteKvConfig", *both, "-s", "ns", "-k", "k")


def test_what_a_stock_broker_or_name_server_refuses(stock: Stock) -> None:
    one = ("-n", stock.first.address)
    ran = admin(
        "updateTopic", *one, "-b", stock.broker_a.address, "-t", "odd", "-a", "+message.type=NONE", "-o", "json"
    )
    assert ran.code == 1
    assert "value is not in set" in ran.json["outcomes"][0]["detail"]
    ran = admin("updateTopic", *one, "-b", stock.broker_a.address, "-t", CLUSTER)  # a system topic of this broker only
    assert ran.code == 1
    assert "1 failed" in ran.out
    ran = admin("updateNamesrvConfig", *one, "-k", "kvConfigPath", "-v", "/elsewhere")
    assert ran.code == 1
    assert "1 failed" in ran.out


def test_a_stock_broker_that_does_not_answer(stock: Stock) -> None:
    stock.broker_b.sigstop()
    try:
        ran = admin(
            *("updateTopic", "-n", stock.second.address, "-c", CLUSTER, "-t", "half", "--timeout-s", "5"), "-o", "json"
        )
    finally:
        stock.broker_b.sigcont()
    assert ran.code == 1
    assert {one["server"]: one["status"] for one in ran.json["outcomes"]} == {"broker-a": "done", "broker-b": "failed"}
    # It has the request all the same, and registers what it made of it: not while other tests look.
    wait_until(lambda: "broker-b" in holders(stock.second.address, "half"), 60, "the topic on broker-b")


def test_a_name_server_agrees_with_itself(stock: Stock) -> None:
    address = stock.second.address
    began = time.monotonic()
    assert good("compare", "-n", f"{address};localhost:{stock.second.port}")["same"] is True
    assert time.monotonic() - began < 10
