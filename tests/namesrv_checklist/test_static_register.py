# SPDX-License-Identifier: Apache-2.0
"""What RouteInfoManagerTest, ...StaticRegisterTest, ...BrokerRegisterTest and ...BrokerPermTest assert.

Their cluster: three broker names of three members each, ten topics, every member registering all of them
(RouteInfoManagerTestBase.registerCluster). Peers older than 5.0, so enableActingMaster is absent.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.model import codes
from tests.namesrv_checklist.brokers import Broker, NameServer, nameserver, topic_config

CLUSTER = "cluster"
NAMES = [f"broker-{number}" for number in range(3)]
TOPICS = [f"topic-{number}" for number in range(10)]
UNIT, UNIT_SUB = 1, 2


def member(name: str, broker_id: int) -> Broker:
    addr = f"{CLUSTER}-{name}:{broker_id}"
    return Broker(CLUSTER, name, addr, addr, broker_id, acting=None)


@pytest.fixture
def ns() -> Iterator[NameServer]:
    with nameserver() as found:
        found.register_all((member(name, broker_id) for name in NAMES for broker_id in range(3)), *TOPICS, base=False)
        yield found


def test_get_topics_by_cluster(ns: NameServer) -> None:
    assert ns.topics(codes.GET_TOPICS_BY_CLUSTER, cluster=CLUSTER) == set(TOPICS)
    assert ns.topics(codes.GET_TOPICS_BY_CLUSTER, cluster="another") == set()


def test_pickup_topic_route_data(ns: NameServer) -> None:
    route = ns.route(TOPICS[0])
    assert route is not None
    assert route["brokerDatas"] == [
        {
            "brokerAddrs": {str(broker_id): member(name, broker_id).addr for broker_id in range(3)},
            "brokerName": name,
            "cluster": CLUSTER,
            "enableActingMaster": False,
        }
        for name in NAMES
    ]
    assert route["queueDatas"] == [
        {"brokerName": name, "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 8} for name in NAMES
    ]


def test_get_system_topic_list(ns: NameServer) -> None:
    """RocketMQ's tests only ask that there is a list: it is cluster and broker names, and an address of some broker."""
    found = ns.json(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert set(found["topicList"]) == {CLUSTER, *NAMES}
    assert found["brokerAddr"] in {member(name, broker_id).addr for name in NAMES for broker_id in range(3)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (codes.GET_UNIT_TOPIC_LIST, {"unit", "both"}),
        (codes.GET_HAS_UNIT_SUB_TOPIC_LIST, {"sub", "both"}),
        (codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {"sub"}),
    ],
)
def test_unit_topic_lists(ns: NameServer, code: int, expected: set[str]) -> None:
    """RocketMQ's tests only ask that there are lists."""
    assert ns.topics(code) == set()
    flagged = [
        topic_config("unit", flag=UNIT),
        topic_config("sub", flag=UNIT_SUB),
        topic_config("both", flag=UNIT | UNIT_SUB),
    ]
    ns.register(member(NAMES[0], 0).next_version(), *flagged)
    assert ns.topics(code) == expected


def test_unit_topics_are_judged_by_the_first_row_by_broker_name(ns: NameServer) -> None:
    """RocketMQ takes whichever row its hash map gives first."""
    for name, flag in ((NAMES[1], UNIT), (NAMES[0], 0)):
        ns.register(member(name, 0).next_version(), topic_config("mixed", flag=flag), topic_config("plain"), base=False)
    assert ns.topics(codes.GET_UNIT_TOPIC_LIST) == set()
    ns.register(
        member(NAMES[0], 0).next_version().next_version(), topic_config("mixed", flag=UNIT), topic_config("plain")
    )
    assert ns.topics(codes.GET_UNIT_TOPIC_LIST) == {"mixed"}


def test_add_write_perm_of_broker_by_lock(ns: NameServer) -> None:
    name = NAMES[0]
    readable = [topic_config(topic, perm=4) for topic in TOPICS]
    ns.register(member(name, 0).next_version(), *readable, base=False)
    assert ns.call(codes.ADD_WRITE_PERM_OF_BROKER, brokerName=name).ext == {"addTopicCount": "10"}
    assert _perms(ns) == {NAMES[0]: 6, NAMES[1]: 6, NAMES[2]: 6}
    assert ns.call(codes.ADD_WRITE_PERM_OF_BROKER, brokerName="another").ext == {"addTopicCount": "0"}


def test_wipe_write_perm_of_broker_by_lock(ns: NameServer) -> None:
    """A second time counts the same rows and changes none."""
    for _ in range(2):
        assert ns.call(codes.WIPE_WRITE_PERM_OF_BROKER, brokerName=NAMES[0]).ext == {"wipeTopicCount": "10"}
        assert _perms(ns) == {NAMES[0]: 4, NAMES[1]: 6, NAMES[2]: 6}
    assert ns.call(codes.WIPE_WRITE_PERM_OF_BROKER, brokerName="another").ext == {"wipeTopicCount": "0"}


def _perms(ns: NameServer) -> dict[str, int]:
    route = ns.route(TOPICS[3])
    assert route is not None
    return {row["brokerName"]: row["perm"] for row in route["queueDatas"]}


def test_query_broker_topic_config(ns: NameServer) -> None:
    """One address in two clusters: each has a DataVersion of its own, and leaves without the other."""
    first = Broker("default-cluster", "default-broker", "127.0.0.1:10911", "127.0.0.1:1001", 1234, None, 10, 100)
    second = first.but(cluster="default-cluster-1", name="default-broker-1", counter=20, timestamp=200)
    ns.register(first, "unit-test-0", "unit-test-1", base=False)
    ns.register(second, "unit-test-0", "unit-test-1", base=False)
    assert ns.data_version(first) == first.version
    assert ns.data_version(second) == second.version
    ns.unregister(second)
    assert ns.data_version(first) == first.version
    assert ns.data_version(second) is None
