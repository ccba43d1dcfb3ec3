# SPDX-License-Identifier: Apache-2.0
"""Histories of RocketMQ's own NameServer tests that no other example has. reports/rocketmq-tests.md names the Java tests."""

from __future__ import annotations

from dev.histories.steps import CloseChannel, Send, Step
from dev.model import codes
from dev.model.settings import Settings
from tests.examples.parts import (
    ADDR1,
    ADDR2,
    C1,
    C2,
    T1,
    T2,
    T3,
    A,
    B,
    Example,
    Expect,
    broker,
    clusters,
    config,
    group,
    live,
    put,
    register,
    register_topic,
    route,
    row,
    succeeds,
    topic_list,
    unregister,
    version,
    who,
)

_ACTING = Settings(support_acting_master=True)
_DELETE_MODE = Settings(delete_topic_with_broker_registration=True)
_DELETE = Expect(Send(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1}), {"code": 0, "ext": None})
_BEAT = Expect(Send(codes.BROKER_HEARTBEAT, who(A, ADDR1)), {"code": 0, "ext": None})
_ORDERED = {**config(T1, queues=1), "order": True}
_VALUE = {"namespace": "namespace-a", "key": T1}
_FORGET = Expect(Send(codes.DELETE_KV_CONFIG, _VALUE), {"code": 0, "ext": None})
_COMES_AND_GOES: list[Step | Expect] = [
    register(A, ADDR1, acting=True),
    succeeds(register(A, ADDR2, 1, acting=True), masterAddr=ADDR1, haServerAddr="10.0.0.1:10912"),
    route(T1, row(A), brokers=[broker(A, acting=True, id0=ADDR1, id1=ADDR2)]),
    _BEAT,
    unregister(A, ADDR2, 1),
    route(T1, row(A), brokers=[broker(A, acting=True, id0=ADDR1)]),
    unregister(A, ADDR1),
    route(T1),
    clusters({}),
]
_MASTER_LEAVES: list[Step | Expect] = [
    route(T1, row(A), brokers=[broker(A, acting=True, id0=ADDR1, id1=ADDR2)]),
    unregister(A, ADDR1),
    route(T1, row(A, perm=4), brokers=[broker(A, acting=True, id0=ADDR2)]),
    register(A, ADDR1, acting=True),
]

ROCKETMQ_TESTS = {
    "members_come_and_go": Example(
        "A slave joins and leaves, twice. With the master, the topics go. Heartbeats are answered for anybody.",
        [
            _BEAT,
            *_COMES_AND_GOES,
            *_COMES_AND_GOES,
        ],
        _ACTING,
    ),
    "two_clusters": Example(
        "Each broker is listed by its cluster, with its addresses.",
        [
            register(A, ADDR1),
            register(B, ADDR2, cluster=C2),
            clusters({C1: [A], C2: [B]}),
            Expect(
                Send(codes.GET_BROKER_CLUSTER_INFO),
                {
                    "body.brokerAddrTable.broker-a.brokerAddrs": {"0": ADDR1},
                    "body.brokerAddrTable.broker-b.cluster": C2,
                },
            ),
            route(T1, row(A), row(B)),
        ],
    ),
    "a_new_topic": Example(
        "The next version brings it. The route has the slave, too.",
        [
            register(A, ADDR1, topics=[config(T1)] * 2 + [config(T2)]),
            register(A, ADDR2, 1),
            register(A, ADDR1, topics=[config(T1), config(T3)], at=version(counter=2)),
            route(T3, row(A), brokers=[broker(A, id0=ADDR1, id1=ADDR2)]),
            topic_list(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, T1, T2, T3),
        ],
    ),
    "roles_change": Example(
        "The slave becomes master when the master has left, and the old master comes back as slave.",
        [
            register(A, ADDR1, acting=False, channel="one"),
            register(A, ADDR2, 1, acting=False, channel="two"),
            CloseChannel("one"),
            route(T1, row(A), brokers=[broker(A, id1=ADDR2)]),
            register(A, ADDR2, 0, acting=False, at=version(counter=2), channel="two"),
            route(T1, row(A), brokers=[broker(A, id0=ADDR2)]),
            register(A, ADDR1, 1, acting=False, at=version(counter=2), channel="three"),
            route(T1, row(A), brokers=[broker(A, id0=ADDR2, id1=ADDR1)]),
        ],
        _ACTING,
    ),
    "another_version": Example(
        "A broker whose version is another one has changed.",
        [
            live(ADDR1, None),
            register(A, ADDR1),
            live(ADDR1, version()),
            register(A, ADDR1, at=version(timestamp=2_000)),
            live(ADDR1, version(timestamp=2_000)),
        ],
    ),
    "one_address_in_two_clusters": Example(
        "Each has a DataVersion of its own, and leaves without the other.",
        [
            register(A, ADDR1, at=version(counter=10)),
            register(B, ADDR1, cluster=C2, at=version(counter=20)),
            live(ADDR1, version(counter=10)),
            live(ADDR1, version(counter=20), C2, B),
            unregister(B, ADDR1, cluster=C2),
            live(ADDR1, version(counter=10)),
            live(ADDR1, None, C2, B),
        ],
    ),
    "a_slave_without_master": Example(
        "It is shown as master for reading, before a master has come and whenever the master is gone.",
        [
            register(A, ADDR2, 1, acting=True),
            route(T1, row(A, perm=4), brokers=[broker(A, acting=True, id0=ADDR2)]),
            unregister(A, ADDR2, 1),
            register(A, ADDR1, acting=True),
            register(A, ADDR2, 1, acting=True),
            *_MASTER_LEAVES,
            *_MASTER_LEAVES,
        ],
        _ACTING,
    ),
    "an_ordered_topic": Example(
        "The slave is shown as master as for any other topic. Another group keeps both members.",
        [
            register(A, ADDR2, 1, [_ORDERED, config(T2)], acting=True),
            route(T1, row(A, perm=4, queues=1), brokers=[broker(A, acting=True, id0=ADDR2)]),
            register(A, ADDR1, 0, [_ORDERED, config(T2)], acting=True),
            register(B, "10.0.0.4:10911", 0, [_ORDERED, config(T2)], acting=True),
            register(B, "10.0.0.5:10911", 1, [_ORDERED, config(T2)], acting=True),
            unregister(A, ADDR1),
            route(
                T1,
                row(A, perm=4, queues=1),
                row(B, queues=1),
                brokers=[
                    broker(A, acting=True, id0=ADDR2),
                    broker(B, acting=True, id0="10.0.0.4:10911", id1="10.0.0.5:10911"),
                ],
            ),
        ],
        _ACTING,
    ),
    "delete_mode_leaves_other_brokers_alone": Example(
        "A topic goes with the last broker that no longer has it.",
        [
            register(A, ADDR1),
            register(B, ADDR2),
            register(A, ADDR1, topics=[config(T2), config(T3)]),
            route(T1, row(B)),
            register(B, ADDR2, topics=[config(T2), config(T3)]),
            route(T1),
            route(T2, row(A), row(B)),
        ],
        _DELETE_MODE,
    ),
    "delete_mode_and_registered_topics": Example(
        "A topic of REGISTER_TOPIC_IN_NAMESRV needs a broker, and goes with its next registration.",
        [
            register_topic(T3, row(A)),
            route(T3),
            register(A, ADDR1),
            register_topic(T3, row(A)),
            route(T3, row(A)),
            register(A, ADDR1),
            route(T3),
            route(T1, row(A)),
            register_topic(T3, row(A)),
            unregister(A, ADDR1),
            route(T3),
        ],
        _DELETE_MODE,
    ),
    "deleting_a_topic": Example(
        "It goes from every broker. Deleting what is not there is a success.",
        [
            _DELETE,
            register(A, ADDR1),
            register(B, ADDR2),
            _DELETE,
            route(T1),
            register(A, ADDR1),
            route(T1, row(A)),
        ],
    ),
    "kv_configuration": Example(
        "A value is put, read, listed and deleted.",
        [
            _FORGET,
            Expect(put("namespace-a", T1, "value"), {"code": 0, "ext": None, "body": None}),
            succeeds(Send(codes.GET_KV_CONFIG, _VALUE), value="value"),
            Expect(Send(codes.GET_KVLIST_BY_NAMESPACE, _VALUE), {"code": 0, "body": {"table": {T1: "value"}}}),
            _FORGET,
            Expect(Send(codes.GET_KV_CONFIG, _VALUE), {"code": codes.QUERY_NOT_FOUND, "ext": {}}),
        ],
    ),
    "no_zone_filter": Example(
        "Without zone mode, without a name, and in other answers.",
        [
            register(A, ADDR1, zone="HZ", filters=["10.0.0.9:31000"]),
            register(B, ADDR2, zone="SH", filters=["10.0.0.9:31001"]),
            *(
                Expect(
                    Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1, **ext}),
                    {"body.queueDatas": [row(A), row(B)], "dialect": "quoted"},
                )
                for ext in (
                    *({}, {"__ZONE_MODE": "true"}, {"__ZONE_NAME": "HZ"}),
                    *({"__ZONE_MODE": mode, "__ZONE_NAME": "HZ"} for mode in ("false", "yes")),
                    *({"__ZONE_MODE": "true", "__ZONE_NAME": name} for name in ("", "  ")),
                )
            ),
            Expect(
                Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1, "__ZONE_MODE": "TRUE", "__ZONE_NAME": "hz"}),
                {"body.queueDatas": [row(A)], "body.filterServerTable": {ADDR1: ["10.0.0.9:31000"]}},
            ),
            Expect(
                Send(codes.GET_BROKER_CLUSTER_INFO, {"__ZONE_MODE": "true", "__ZONE_NAME": "HZ"}),
                {"body.clusterAddrTable": {C1: [A, B]}},
            ),
            Expect(
                Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T3, "__ZONE_MODE": "true", "__ZONE_NAME": "HZ"}),
                {"code": codes.TOPIC_NOT_EXIST, "body": None},
            ),
            group(A, id0=ADDR1),
        ],
    ),
}
