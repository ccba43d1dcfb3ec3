# SPDX-License-Identifier: Apache-2.0
"""Rules to which a gateway adds something: repeated registrations, lost connections, the wait after a start, sorted lists.

The other rules of RocketMQ's unit tests are in tests/examples, which RocketMQ, the model and the gateway's handlers all play.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dev.model import codes
from dev.model.wire import Request
from dev.support.local import LocalLake
from remoting.server.settings import RemotingSettings
from tests.namesrv_checklist.brokers import (
    BROKER,
    MASTER,
    Broker,
    NameServer,
    nameserver,
    nameserver_on_the_wire,
    registration,
    topic_config,
    until,
)

T, T1 = "TestTopic", "TestTopic1"


@pytest.fixture
def ns() -> Iterator[NameServer]:
    with nameserver() as found:
        yield found


# --- many requests and repeated ones ---


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


def test_delete_topic_with_broker_registration_repeated(tmp_path: Path) -> None:
    """The same registration again deletes what came in between, and is not refused."""
    with nameserver_on_the_wire(tmp_path, delete_topic_with_broker_registration=True) as ns:
        for _ in range(3):
            ns.register(MASTER, T)
        ns.register_topic(BROKER, T1)
        ns.register(MASTER, T)
        assert ns.route(T1) is None
        assert "rejected" not in {change["outcome"] for change in ns.changes()}


def test_many_unregistrations_at_once(tmp_path: Path) -> None:
    """RocketMQ takes them from a queue in batches; here they are events in the order of the log."""
    brokers = [MASTER.but(name=f"b{number}", addr=f"10.0.0.{number}:1") for number in range(12)]
    with nameserver_on_the_wire(tmp_path) as ns:
        ns.register_all(brokers, T)
        opaques = [ns.client.send(Request(codes.UNREGISTER_BROKER, broker.header)) for broker in brokers]
        assert all(ns.client.receive(opaque, 20).code == codes.SUCCESS for opaque in opaques)
        assert ns.route(T) is None
        assert ns.json(codes.GET_BROKER_CLUSTER_INFO) == {"brokerAddrTable": {}, "clusterAddrTable": {}}


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


# --- needWaitForService ---


def route_code(ns: NameServer) -> tuple[int, str | None]:
    answer = ns.call(codes.GET_ROUTEINFO_BY_TOPIC, topic=T)
    return answer.code, answer.remark


def test_namesrv_not_ready(tmp_path: Path) -> None:
    """Only routes wait; everything else is answered."""
    with nameserver_on_the_wire(tmp_path, need_wait_for_service=True) as ns:
        ns.register(MASTER, T)
        assert route_code(ns) == (codes.SYSTEM_ERROR, "name server not ready")
        assert ns.topics(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {T, "baseTopic"}
        assert set(ns.json(codes.GET_BROKER_CLUSTER_INFO)["brokerAddrTable"]) == {MASTER.name}


def test_namesrv_no_need_wait_for_service(tmp_path: Path) -> None:
    with nameserver_on_the_wire(tmp_path, need_wait_for_service=False, wait_seconds_for_service=45) as ns:
        ns.register(MASTER, T)
        assert route_code(ns) == (codes.SUCCESS, None)


def test_namesrv_becomes_ready(tmp_path: Path) -> None:
    with nameserver_on_the_wire(tmp_path, need_wait_for_service=True, wait_seconds_for_service=3) as ns:
        ns.register(MASTER, T)
        assert route_code(ns) == (codes.SYSTEM_ERROR, "name server not ready")
        until(lambda: route_code(ns) == (codes.SUCCESS, None))


def test_a_lake_that_holds_routes_needs_no_waiting(tmp_path: Path) -> None:
    """Unlike a NameServer, a gateway that starts knows the routes; only over an empty lake there is a reason to wait."""
    with LocalLake(tmp_path) as lake:
        # A connection that ends before its gateway would take the broker with it.
        with contextlib.ExitStack() as after, lake.gateway() as gateway:
            client = after.enter_context(gateway.connect())
            client.call(registration(MASTER, T))
        with lake.gateway(need_wait_for_service=True) as gateway, gateway.connect() as client:
            answer = client.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T}))
            assert answer.code == codes.SUCCESS


# --- sorted lists ---


NAMES = [f"broker-{number}" for number in range(3)]
UNIT = 1


def member(name: str, broker_id: int) -> Broker:
    addr = f"{name}:{broker_id}"
    return Broker("cluster", name, addr, addr, broker_id, acting=None)


def test_pickup_topic_route_data(ns: NameServer) -> None:
    ns.register_all((member(name, broker_id) for name in reversed(NAMES) for broker_id in range(3)), T, T1, base=False)
    route = ns.route(T)
    assert route is not None
    assert route["brokerDatas"] == [
        {
            "brokerAddrs": {str(broker_id): member(name, broker_id).addr for broker_id in range(3)},
            "brokerName": name,
            "cluster": "cluster",
            "enableActingMaster": False,
        }
        for name in NAMES
    ]
    assert route["queueDatas"] == [
        {"brokerName": name, "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8} for name in NAMES
    ]


def test_unit_topics_are_judged_by_the_first_row_by_broker_name(ns: NameServer) -> None:
    """RocketMQ takes whichever row its hash map gives first."""
    for name, flag in ((NAMES[1], UNIT), (NAMES[0], 0)):
        ns.register(member(name, 0).next_version(), topic_config("mixed", flag=flag), topic_config("plain"), base=False)
    assert ns.topics(codes.GET_UNIT_TOPIC_LIST) == set()
    ns.register(
        member(NAMES[0], 0).next_version().next_version(), topic_config("mixed", flag=UNIT), topic_config("plain")
    )
    assert ns.topics(codes.GET_UNIT_TOPIC_LIST) == {"mixed"}
