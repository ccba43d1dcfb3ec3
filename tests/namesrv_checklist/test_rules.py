# SPDX-License-Identifier: Apache-2.0
"""Rules that RocketMQ's unit tests leave out: order topics, static topics, split registration, lost connections."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dev.model import codes
from dev.model.wire import Request
from remoting.server.settings import RemotingSettings
from tests.namesrv_checklist.brokers import (
    BROKER,
    CLUSTER,
    MASTER,
    SLAVE,
    NameServer,
    nameserver,
    nameserver_on_the_wire,
    topic_config,
    until,
)

T, T1 = "TestTopic", "TestTopic1"
ORDER = "ORDER_TOPIC_CONFIG"


@pytest.fixture
def ns() -> Iterator[NameServer]:
    with nameserver() as found:
        yield found


# --- order topics ---


def test_order_configuration_in_route_answers_needs_the_switch(ns: NameServer) -> None:
    ns.register(MASTER, T, T1)
    ns.call(codes.PUT_KV_CONFIG, namespace=ORDER, key=T, value="broker_name:8")
    route = ns.route(T)
    assert route is not None
    assert "orderTopicConf" not in route
    ns.call(codes.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true")
    route, other = ns.route(T), ns.route(T1)
    assert route is not None
    assert other is not None
    assert route["orderTopicConf"] == "broker_name:8"
    assert "orderTopicConf" not in other
    ns.call(codes.DELETE_KV_CONFIG, namespace=ORDER, key=T)
    route = ns.route(T)
    assert route is not None
    assert "orderTopicConf" not in route


def test_order_configuration_in_register_broker_results(ns: NameServer) -> None:
    """The whole table, whatever orderMessageEnable says; nothing before the namespace exists or when switched off."""
    assert ns.register(MASTER, T).body == b""
    ns.call(codes.PUT_KV_CONFIG, namespace=ORDER, key=T, value="broker_name:8")
    assert json.loads(ns.register(MASTER, T).body) == {"table": {T: "broker_name:8"}}
    assert json.loads(ns.register(SLAVE, T).body) == {"table": {T: "broker_name:8"}}
    ns.call(codes.DELETE_KV_CONFIG, namespace=ORDER, key=T)
    assert json.loads(ns.register(MASTER, T).body) == {"table": {}}
    ns.call(codes.UPDATE_NAMESRV_CONFIG, b"returnOrderTopicConfigToBroker=false")
    assert ns.register(MASTER, T).body == b""


# --- static topics ---


def mapping(bname: str, epoch: int = 1, **ids: int) -> dict[str, Any]:
    """A TopicQueueMappingInfo of T."""
    return {
        "bname": bname,
        "currIdMap": ids or {"0": 0, "1": 3},
        "dirty": False,
        "epoch": epoch,
        "scope": "__global__",
        "topic": T,
        "totalQueues": 4,
    }


def mappings_of(ns: NameServer, **more: Any) -> dict[str, Any] | None:
    route = ns.route(T, **more)
    assert route is not None
    found: dict[str, Any] | None = route.get("topicQueueMappingByBroker")
    return found


def test_static_topics_are_registered_answered_and_kept(ns: NameServer) -> None:
    """The mapping table only ever grows: neither 216 nor 104 nor a registration without mappings takes from it."""
    other = MASTER.but(name="another", addr="127.0.0.1:50911")
    ns.register(MASTER, T, mappings={T: mapping(BROKER)})
    assert mappings_of(ns) == {BROKER: mapping(BROKER)}
    ns.register(other, T, mappings={T: mapping("another", 2)})
    assert mappings_of(ns) == {BROKER: mapping(BROKER), "another": mapping("another", 2)}
    # A new version replaces by the mapping's own bname, ...
    ns.register(MASTER.next_version(), T, mappings={T: mapping(BROKER, 7)})
    assert mappings_of(ns) == {BROKER: mapping(BROKER, 7), "another": mapping("another", 2)}
    # ... an equal version does not, ...
    ns.register(MASTER.next_version(), T, mappings={T: mapping(BROKER, 9)})
    assert (mappings_of(ns) or {})[BROKER]["epoch"] == 7
    # ... and absence takes nothing away.
    ns.register(MASTER.next_version().next_version(), T)
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T)
    assert ns.route(T) is None
    ns.register(MASTER.next_version().next_version(), T)
    ns.unregister(other)
    assert set(mappings_of(ns) or {}) == {BROKER, "another"}


@pytest.mark.parametrize(("version", "key"), [(401, b'"currIdMap":{"0":0,"1":3}'), (400, b'"currIdMap":{0:0,1:3}')])
def test_static_topics_in_both_dialects(ns: NameServer, version: int, key: bytes) -> None:
    ns.register(MASTER, T, mappings={T: mapping(BROKER)})
    answer = ns.client.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T}, version=version))
    assert key in answer.body


# --- split registration ---


def test_no_part_of_a_split_registration_is_skipped(ns: NameServer) -> None:
    """Parts share a DataVersion: each brings its topics, though only the first can change rows that exist."""
    parts = [[f"topic-{part}-{number}" for number in range(5)] for part in range(3)]
    for part in parts:
        ns.register(MASTER, *part, base=False)
    everything = {topic for part in parts for topic in part}
    assert ns.topics(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == everything
    # The next version, in parts again: the first changes its rows, the others' stay as they were (as in RocketMQ).
    new = MASTER.next_version()
    for part in parts:
        ns.register(new, *(topic_config(topic, 16) for topic in part), base=False)
    queues = {topic: (ns.route(topic) or {})["queueDatas"][0]["readQueueNums"] for topic in everything}
    assert {topic for topic, number in queues.items() if number == 16} == set(parts[0])


def test_a_split_registration_repeated_changes_nothing(tmp_path: Path) -> None:
    """Each cycle sends every part again: no epoch, no refusal, and a topic that was deleted comes back."""
    parts = [[f"topic-{part}-{number}" for number in range(5)] for part in range(3)]
    with nameserver_on_the_wire(tmp_path) as ns:
        assert ns.local is not None
        lake, gateway = ns.local
        for _ in range(2):
            for part in parts:
                assert ns.register(MASTER, *part, base=False).code == codes.SUCCESS
        # The last ones were answered when they were durable: the epoch of their time may still be to come.
        lake.fold.wait_for(lake.log.end().next_offset - 1)
        until(lambda: gateway.gateway.view.epoch == lake.fold.writer.epoch)
        epoch, before = gateway.gateway.view.epoch, len(ns.changes())
        for _ in range(3):
            for part in parts:
                assert ns.register(MASTER, *part, base=False).code == codes.SUCCESS
        assert gateway.gateway.view.epoch - epoch <= 9, "times of heartbeats alone may be committed"
        assert len(ns.changes()) == before
        ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=parts[1][2])
        for part in parts:
            ns.register(MASTER, *part, base=False)
        assert ns.route(parts[1][2]) is not None


def test_a_slimmed_heartbeat_brings_a_deleted_topic_back(ns: NameServer) -> None:
    """The gateway leaves out topics that the fold knows; a row that was taken away makes it send them again."""
    for _ in range(3):
        ns.register(MASTER, T, T1)
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T)
    assert ns.route(T) is None
    ns.register(MASTER, T, T1)
    assert ns.route(T) is not None


# --- 217 ---


def register_topic(ns: NameServer, topic: str, *names: str) -> None:
    rows = [{"brokerName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in names]
    answer = ns.call(codes.REGISTER_TOPIC_IN_NAMESRV, json.dumps({"queueDatas": rows}).encode(), topic=topic)
    assert (answer.code, answer.remark) == (codes.SUCCESS, None)


def test_register_topic_is_all_or_nothing_for_a_new_topic_and_row_by_row_for_a_known_one(ns: NameServer) -> None:
    for name in (BROKER, "b2"):
        ns.register(MASTER.but(name=name), T)
    register_topic(ns, "new", BROKER, "nobody", "b2")
    assert ns.route("new") is None
    register_topic(ns, "new", BROKER, "b2")
    assert ns.brokers("new") == {BROKER, "b2"}
    register_topic(ns, T, BROKER, "nobody", "b2")
    route = ns.route(T)
    assert route is not None
    assert {row["brokerName"]: row["readQueueNums"] for row in route["queueDatas"]} == {BROKER: 4, "b2": 8}
    assert ns.call(codes.REGISTER_TOPIC_IN_NAMESRV, topic=T).code == codes.SUCCESS, "no body is no error"


# --- 216 by cluster ---


def test_delete_topic_by_cluster(ns: NameServer) -> None:
    other = MASTER.but(cluster="c2", name="b2", addr="127.0.0.1:50911")
    for broker in (MASTER, other):
        ns.register(broker, T)
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T, clusterName="no such cluster")
    assert ns.brokers(T) == {BROKER, "b2"}
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T, clusterName="c2")
    assert ns.brokers(T) == {BROKER}
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T, clusterName="")
    assert ns.route(T) is None
    assert ns.topics(codes.GET_TOPICS_BY_CLUSTER, cluster=CLUSTER) == {"baseTopic"}


# --- lost connections ---


def test_a_reset_connection_unregisters(tmp_path: Path) -> None:
    """BrokerHousekeepingService.onChannelException."""
    with nameserver_on_the_wire(tmp_path) as ns:
        connection = ns.connect()
        ns.register(MASTER, T, over=connection)
        connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection._socket.close()
        until(lambda: ns.route(T) is None)


def test_a_silent_connection_unregisters(tmp_path: Path) -> None:
    """BrokerHousekeepingService.onChannelIdle, after serverChannelMaxIdleTimeSeconds."""
    with nameserver_on_the_wire(tmp_path, RemotingSettings(idle_timeout_s=4.0)) as ns:

        def answer() -> int:
            with closing(ns.connect()) as asker:  # one that is kept may itself be silent for too long
                return int(asker.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T})).code)

        ns.register(MASTER, T, over=ns.connect())
        assert answer() == codes.SUCCESS
        until(lambda: answer() == codes.TOPIC_NOT_EXIST)


def test_a_lost_connection_takes_every_broker_that_registered_over_it(ns: NameServer) -> None:
    """RocketMQ unregisters the first one it finds and leaves the others to expire (docs/reference/compatibility.md)."""
    connection = ns.connect()
    other = MASTER.but(name="b2", addr="127.0.0.1:50911")
    ns.register(MASTER, T, over=connection)
    ns.register(other, T, over=connection)
    connection.close()
    assert ns.route(T) is None


def test_heartbeats_on_another_connection_do_not_rebind(ns: NameServer) -> None:
    """Only 103 does: the end of the old connection takes the broker with it."""
    old, new = ns.connect(), ns.connect()
    ns.register(MASTER, T, over=old)
    assert new.call(Request(codes.BROKER_HEARTBEAT, MASTER.header)).code == codes.SUCCESS
    old.close()
    assert ns.route(T) is None


def test_a_newer_registration_rebinds(ns: NameServer) -> None:
    old, new = ns.connect(), ns.connect()
    ns.register(MASTER, T, over=old)
    ns.register(MASTER, T, over=new)
    old.close()
    ns.register(SLAVE, T)
    assert ns.addrs(T) == {"0": MASTER.addr, "1": SLAVE.addr}
