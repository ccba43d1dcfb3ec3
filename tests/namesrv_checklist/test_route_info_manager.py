# SPDX-License-Identifier: Apache-2.0
"""What RouteInfoManagerNewTest asserts of RouteInfoManager, asserted of routelake over the wire.

Each test is named after the Java test whose assertions it makes (reports/rocketmq-tests.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.model import codes
from dev.model.wire import Request
from tests.namesrv_checklist.brokers import (
    ADDR,
    BROKER,
    CLUSTER,
    MASTER,
    PREFIX,
    SLAVE,
    NameServer,
    nameserver,
    nameserver_on_the_wire,
    topic_config,
    until,
)

T, T1, T2 = "TestTopic", "TestTopic1", "TestTopic2"
PLAIN_MASTER, PLAIN_SLAVE = MASTER.but(acting=False), SLAVE.but(acting=False)


@pytest.fixture
def ns() -> Iterator[NameServer]:
    with nameserver(support_acting_master=True) as found:
        yield found


def test_get_all_cluster_info(ns: NameServer) -> None:
    other = MASTER.but(cluster="AnotherCluster", name="AnotherBroker", addr=f"{PREFIX}30911")
    ns.register(MASTER, T)
    ns.register(other, T1)
    info = ns.json(codes.GET_BROKER_CLUSTER_INFO)
    assert info["clusterAddrTable"] == {CLUSTER: [BROKER], "AnotherCluster": ["AnotherBroker"]}
    addrs = {name: data["brokerAddrs"] for name, data in info["brokerAddrTable"].items()}
    assert addrs == {BROKER: {"0": ADDR}, "AnotherBroker": {"0": f"{PREFIX}30911"}}


def test_delete_topic(ns: NameServer) -> None:
    ns.register(MASTER, T)
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T)
    assert ns.route(T) is None

    ns.register(MASTER, T)
    ns.register(MASTER.but(cluster="AnotherCluster", name="AnotherBroker"), T)
    assert ns.brokers(T) == {BROKER, "AnotherBroker"}
    ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic=T, clusterName=CLUSTER)
    assert ns.brokers(T) == {"AnotherBroker"}
    assert ns.call(codes.DELETE_TOPIC_IN_NAMESRV, topic="never there").code == codes.SUCCESS


def test_get_all_topic_list(ns: NameServer) -> None:
    assert ns.topics(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == set()
    ns.register(MASTER, T, T1, T2)
    assert ns.topics(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {T, T1, T2, "baseTopic"}


def test_register_broker(ns: NameServer) -> None:
    """A master learns nothing; a slave learns its master and where to copy from."""
    assert ns.register(MASTER, T).ext == {}
    assert ns.register(SLAVE, T).ext == {"haServerAddr": MASTER.ha_addr, "masterAddr": ADDR}


def test_unregister_broker(ns: NameServer) -> None:
    for _ in range(2):
        ns.register(MASTER, T, T1, T2)
        ns.unregister(MASTER)
        assert [ns.route(topic) for topic in (T, T1, T2)] == [None, None, None]


def test_register_slave_broker(ns: NameServer) -> None:
    ns.register(MASTER, T)
    assert ns.addrs(T) == {"0": ADDR}
    ns.register(SLAVE, T)
    assert ns.addrs(T) == {"0": ADDR, "1": SLAVE.addr}


def test_create_new_topic(ns: NameServer) -> None:
    """In RocketMQ's test the second registration's version is a later time."""
    ns.register(MASTER, T)
    ns.register(SLAVE, T)
    ns.register(MASTER.next_version(), T, T1)
    assert ns.addrs(T1) == {"0": ADDR, "1": SLAVE.addr}


def test_switch_broker_role(ns: NameServer) -> None:
    ns.register(PLAIN_MASTER, T)
    ns.register(PLAIN_SLAVE, T)
    ns.unregister(PLAIN_MASTER)
    assert ns.addrs(T) == {"1": SLAVE.addr}
    ns.register(PLAIN_SLAVE.but(broker_id=0).next_version(), T)
    assert ns.addrs(T) == {"0": SLAVE.addr}
    ns.register(PLAIN_MASTER.but(broker_id=1).next_version(), T)
    assert ns.addrs(T) == {"0": SLAVE.addr, "1": ADDR}


def test_unregister_slave_broker(ns: NameServer) -> None:
    for _ in range(2):
        ns.register(MASTER, T)
        ns.register(SLAVE, T)
        ns.unregister(SLAVE)
        assert ns.addrs(T) == {"0": ADDR}


def test_unregister_master_broker(ns: NameServer) -> None:
    """The slave is shown as master, for reading only."""
    ns.register(MASTER, T)
    ns.register(SLAVE, T)
    ns.unregister(MASTER)
    assert ns.addrs(T) == {"0": SLAVE.addr}
    assert ns.perm(T) == 4


def test_unregister_master_broker_old_version(ns: NameServer) -> None:
    ns.register(PLAIN_MASTER, T)
    ns.register(PLAIN_SLAVE, T)
    ns.unregister(PLAIN_MASTER)
    assert "0" not in ns.addrs(T)
    assert ns.perm(T) == 6


def test_many_unregistrations_at_once(tmp_path: Path) -> None:
    """RocketMQ takes them from a queue in batches; here they are events in the order of the log."""
    brokers = [MASTER.but(name=f"b{number}", addr=f"10.0.0.{number}:1") for number in range(12)]
    with nameserver_on_the_wire(tmp_path) as ns:
        ns.register_all(brokers, T)
        opaques = [ns.client.send(Request(codes.UNREGISTER_BROKER, broker.header)) for broker in brokers]
        assert all(ns.client.receive(opaque, 20).code == codes.SUCCESS for opaque in opaques)
        assert ns.route(T) is None
        assert ns.json(codes.GET_BROKER_CLUSTER_INFO) == {"brokerAddrTable": {}, "clusterAddrTable": {}}


def test_is_broker_topic_config_changed(ns: NameServer) -> None:
    ns.register(MASTER, T)
    assert not ns.changed(MASTER)
    assert ns.changed(MASTER.but(timestamp=MASTER.timestamp + 1000))
    assert ns.changed(MASTER.but(counter=MASTER.counter + 1))


def test_is_topic_config_changed(ns: NameServer) -> None:
    """Not a request of its own: an equal version brings topics that have no row, and leaves the others alone."""
    assert ns.changed(MASTER)
    ns.register(MASTER, T)
    ns.register(MASTER, topic_config(T, 16), T1)
    route, new = ns.route(T), ns.route(T1)
    assert route is not None
    assert new is not None
    assert route["queueDatas"][0]["readQueueNums"] == 8


def test_pickup_topic_route_data(ns: NameServer) -> None:
    ns.register(MASTER, T)
    route = ns.route(T)
    assert route is not None
    assert [(data["brokerName"], data["brokerAddrs"]) for data in route["brokerDatas"]] == [(BROKER, {"0": ADDR})]
    assert route["queueDatas"] == [
        {"brokerName": BROKER, "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8}
    ]
    ns.register(MASTER.but(name="AnotherBroker"), T)
    route = ns.route(T)
    assert route is not None
    assert {data["brokerName"] for data in route["brokerDatas"]} == {BROKER, "AnotherBroker"}
    assert {row["brokerName"] for row in route["queueDatas"]} == {BROKER, "AnotherBroker"}


def test_scan_not_active_broker(tmp_path: Path) -> None:
    """RocketMQ's test asserts nothing after its 30 s; here the broker is gone once its own timeout has passed."""
    with nameserver_on_the_wire(tmp_path) as ns:
        ns.register(MASTER, T)
        assert ns.route(T) is not None
        ns.register(MASTER, T, heartbeatTimeoutMillis="200")
        until(lambda: ns.route(T) is None)


@pytest.mark.parametrize("queues", [8, 1])
def test_pickup_order_topic_route_data(ns: NameServer, queues: int) -> None:
    """Partition order (8 queues) and global order (1 queue): an ordered topic is promoted like any other."""
    topic = topic_config("OrderTopicTest", queues, order=True)
    name = "OrderTopicTest"
    # Case 1: a slave alone.
    ns.register(SLAVE, topic)
    assert ns.addrs(name) == {"0": SLAVE.addr}
    assert ns.perm(name) == 4
    ns.unregister(SLAVE)
    assert ns.route(name) is None
    # Case 2: master and slave, then the master leaves.
    ns.register(SLAVE, topic)
    ns.register(MASTER, topic)
    ns.unregister(MASTER)
    assert ns.addrs(name) == {"0": SLAVE.addr}
    assert ns.perm(name) == 4


def test_pickup_partition_order_topic_route_data_of_two_groups(ns: NameServer) -> None:
    """Case 3: one of two groups loses its master; the other keeps both members."""
    topic = topic_config("OrderTopicTest", order=True)
    another = f"{BROKER}_ANOTHER"
    for broker in (SLAVE, MASTER, MASTER.but(name=another), SLAVE.but(name=another)):
        ns.register(broker, topic)
    route = ns.route("OrderTopicTest")
    assert route is not None
    assert (len(route["brokerDatas"]), len(route["queueDatas"])) == (2, 2)
    ns.unregister(MASTER)
    route = ns.route("OrderTopicTest")
    assert route is not None
    assert {data["brokerName"]: data["brokerAddrs"] for data in route["brokerDatas"]} == {
        BROKER: {"0": SLAVE.addr},
        another: {"0": ADDR, "1": SLAVE.addr},
    }
    assert len(route["queueDatas"]) == 2


def test_register_only_slave_broker(ns: NameServer) -> None:
    ns.register(SLAVE, T)
    assert ns.perm(T) == 4
    ns.unregister(SLAVE)
    ns.register(MASTER, T)
    ns.register(SLAVE, T)
    for _ in range(2):
        assert (len(ns.addrs(T)), ns.perm(T)) == (2, 6)
        ns.unregister(MASTER)
        assert (len(ns.addrs(T)), ns.perm(T)) == (1, 4)
        ns.register(MASTER, T)


def test_on_channel_destroy(ns: NameServer) -> None:
    connection = ns.connect()
    ns.register(MASTER, T, T1, over=connection)
    connection.close()
    assert ns.route(T) is None
    assert ns.route(T1) is None

    master, slave = ns.connect(), ns.connect()
    ns.register(PLAIN_MASTER, T, over=master)
    ns.register(PLAIN_SLAVE, T, over=slave)
    assert ns.addrs(T) == {"0": ADDR, "1": SLAVE.addr}
    master.close()
    assert ns.addrs(T) == {"1": SLAVE.addr}
    slave.close()
    assert ns.route(T) is None


def test_switch_broker_role_channel_destroy(ns: NameServer) -> None:
    master, slave = ns.connect(), ns.connect()
    ns.register(PLAIN_MASTER, T, over=master)
    ns.register(PLAIN_SLAVE, T, over=slave)
    master.close()
    assert ns.addrs(T) == {"1": SLAVE.addr}
    ns.register(PLAIN_SLAVE.but(broker_id=0).next_version(), T, over=slave)
    assert ns.addrs(T) == {"0": SLAVE.addr}
    ns.register(PLAIN_MASTER.but(broker_id=1).next_version(), T)
    assert ns.addrs(T) == {"0": SLAVE.addr, "1": ADDR}


def test_keep_topic_with_broker_registration(ns: NameServer) -> None:
    ns.register(MASTER, T, T1)
    ns.register(MASTER.next_version(), T1)
    assert ns.route(T) is not None
    assert ns.route(T1) is not None


# --- deleteTopicWithBrokerRegistration ---


@pytest.fixture
def deleting() -> Iterator[NameServer]:
    with nameserver(support_acting_master=True, delete_topic_with_broker_registration=True) as found:
        yield found


def test_delete_topic_with_broker_registration(deleting: NameServer) -> None:
    deleting.register(MASTER, T, T1)
    assert deleting.brokers(T) == deleting.brokers(T1) == {BROKER}
    deleting.register(MASTER.next_version(), T1)
    assert deleting.route(T) is None
    assert deleting.brokers(T1) == {BROKER}


def test_delete_topic_with_broker_registration_of_an_equal_version(deleting: NameServer) -> None:
    """RocketMQ drops absent topics on every accepted registration, also when nothing else is looked at."""
    deleting.register(MASTER, T, T1)
    deleting.register(MASTER, T1)
    assert deleting.route(T) is None


def test_delete_topic_with_broker_registration_2(deleting: NameServer) -> None:
    other = MASTER.but(name=f"{BROKER}1", addr=f"{ADDR}9")
    deleting.register(MASTER, T, T1)
    deleting.register(other, T, T1)
    assert deleting.brokers(T) == deleting.brokers(T1) == {BROKER, f"{BROKER}1"}
    deleting.register(MASTER, T1)
    assert deleting.brokers(T) == {f"{BROKER}1"}
    assert len(deleting.brokers(T1)) == 2
    deleting.register(other, T1)
    assert deleting.route(T) is None
    assert len(deleting.brokers(T1)) == 2


def test_register_single_topic_with_broker_registration(deleting: NameServer) -> None:
    deleting.register_topic(BROKER, T)
    assert deleting.route(T) is None, "there is no such broker yet"
    deleting.register(MASTER, T)
    deleting.register_topic(BROKER, T1)
    assert deleting.route(T1) is not None
    deleting.register(MASTER, T, T1)
    assert None not in (deleting.route(T), deleting.route(T1))
    deleting.register(MASTER, T)
    assert deleting.route(T) is not None
    assert deleting.route(T1) is None
    deleting.register_topic(BROKER, T1)
    assert deleting.route(T1) is not None
    deleting.unregister(MASTER)
    assert (deleting.route(T), deleting.route(T1)) == (None, None)


def test_delete_topic_with_broker_registration_repeated(tmp_path: Path) -> None:
    """The same registration again deletes what came in between, and is not refused."""
    with nameserver_on_the_wire(tmp_path, delete_topic_with_broker_registration=True) as ns:
        for _ in range(3):
            ns.register(MASTER, T)
        ns.register_topic(BROKER, T1)
        ns.register(MASTER, T)
        assert ns.route(T1) is None
        assert "rejected" not in {change["outcome"] for change in ns.changes()}


def test_static_topics_are_left_alone_by_delete_topic_with_broker_registration(deleting: NameServer) -> None:
    """Not in RocketMQ's unit tests (CreateAndUpdateTopicIT has it): a registration with mappings deletes nothing."""
    mapping = {
        T: {"bname": BROKER, "currIdMap": {"0": 0}, "epoch": 1, "scope": "__global__", "topic": T, "totalQueues": 1}
    }
    deleting.register(MASTER, T, T1)
    deleting.register(MASTER, T1, mappings=mapping)
    assert deleting.route(T) is not None
