# SPDX-License-Identifier: Apache-2.0
"""Examples of routes, topic lists and KV configuration."""

from __future__ import annotations

from dev.histories.steps import ORDER_NAMESPACE, Send
from dev.model import codes
from dev.model.settings import Settings
from tests.examples.parts import (
    ADDR1,
    ADDR2,
    ADDR3,
    C1,
    C2,
    SYNC,
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
    fails,
    group,
    put,
    register,
    register_topic,
    route,
    row,
    topic_list,
    unregister,
)

_ACTING_MASTER = Settings(support_acting_master=True)


ROUTES = {
    "acting_master": Example(
        "The smallest id is shown as 0 while its row is not writable; the tables and the sync topic keep the truth.",
        [
            register(A, ADDR1, 0, [config(T1), config(SYNC)], acting=True),
            register(A, ADDR2, 1, [config(T1), config(SYNC)], acting=True),
            register(A, ADDR3, 2, [config(T1), config(SYNC)], acting=True),
            unregister(A, ADDR1),
            route(T1, row(A, perm=4), brokers=[broker(A, acting=True, id0=ADDR2, id2=ADDR3)]),
            route(SYNC, row(A, perm=4), brokers=[broker(A, acting=True, id1=ADDR2, id2=ADDR3)]),
            group(A, id1=ADDR2, id2=ADDR3),
            register_topic(T1, row(A, perm=6)),
            route(T1, row(A, perm=6), brokers=[broker(A, acting=True, id1=ADDR2, id2=ADDR3)]),
        ],
        _ACTING_MASTER,
    ),
    "no_acting_master_unless_the_group_wants_it": Example(
        "enableActingMaster is the group's, and the last to register decides.",
        [
            register(A, ADDR1, 0, acting=True),
            register(A, ADDR2, 1, acting=False),
            unregister(A, ADDR1),
            route(T1, row(A, perm=6), brokers=[broker(A, id1=ADDR2)]),
        ],
        _ACTING_MASTER,
    ),
    "zone_filter": Example(
        "Other zones go, groups without id 0 stay, and the answer is written again with bare numeric keys.",
        [
            register(A, ADDR1, zone="HZ"),
            register(B, ADDR2),
            Expect(
                Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1, "__ZONE_MODE": "true", "__ZONE_NAME": "hz"}),
                {
                    "body.queueDatas": [row(A)],
                    "body.brokerDatas": [broker(A, zone="HZ", id0=ADDR1)],
                    "dialect": "numeric",
                },
            ),
            Expect(
                Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1, "__ZONE_MODE": "true", "__ZONE_NAME": "SH"}),
                {"code": 0, "body.queueDatas": [], "body.brokerDatas": []},
            ),
        ],
    ),
    "zone_filter_sees_the_acting_master": Example(
        "A promoted slave counts as a master and is dropped with its zone.",
        [
            register(A, ADDR1, 1, acting=True, zone="SH"),
            Expect(
                Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1, "__ZONE_MODE": "true", "__ZONE_NAME": "HZ"}),
                {"code": 0, "body.queueDatas": [], "body.brokerDatas": []},
            ),
        ],
        _ACTING_MASTER,
    ),
    "dialects": Example(
        "Quoted keys from 4.9.4 on or on request; cluster info and member groups never.",
        [
            register(A, ADDR1),
            *(
                Expect(Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1, **ext}, version=peer), {"dialect": dialect})
                for peer, ext, dialect in (
                    (401, {}, "quoted"),
                    (400, {}, "numeric"),
                    (0, {"acceptStandardJsonOnly": "TRUE"}, "quoted"),
                    (0, {"acceptStandardJsonOnly": "yes"}, "numeric"),
                )
            ),
            Expect(Send(codes.GET_BROKER_CLUSTER_INFO), {"dialect": "numeric"}),
            Expect(Send(codes.GET_BROKER_MEMBER_GROUP, {"brokerName": A}), {"dialect": "numeric"}),
        ],
    ),
    "order_configuration": Example(
        "In routes with orderMessageEnable; in registration answers from the first put on, empty table and all.",
        [
            put(ORDER_NAMESPACE, T1, "broker-a:8"),
            Expect(register(A, ADDR1), {"body": {"table": {T1: "broker-a:8"}}}),
            Expect(route(T1, row(A)).step, {"body.orderTopicConf": "broker-a:8"}),
            Expect(route(T2, row(A)).step, {"body.orderTopicConf": None}),
            Send(codes.DELETE_KV_CONFIG, {"namespace": ORDER_NAMESPACE, "key": T1}),
            Expect(register(A, ADDR1), {"body": {"table": {}}}),
        ],
        Settings(order_message_enable=True),
    ),
    "start_up_gate": Example(
        "Only route queries wait.",
        [
            register(A, ADDR1),
            fails(Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1})),
            clusters({C1: [A]}),
        ],
        Settings(need_wait_for_service=True, wait_seconds_for_service=100_000),
    ),
}


TOPICS = {
    "registering_a_topic": Example(
        "All or nothing for a new topic; for an existing one, the rows before the first unknown broker.",
        [
            register(A, ADDR1),
            register(B, ADDR2),
            register_topic(T3, row(A), row("broker-z")),
            route(T3),
            register_topic(T1, row(A, queues=8), row("broker-z"), row(B, queues=8)),
            route(T1, row(A, queues=8), row(B)),
            register_topic(T3, row(A)),
            route(T3, row(A)),
        ],
    ),
    "deleting_a_topic_in_a_cluster": Example(
        "An unknown cluster deletes nothing, an empty name everything.",
        [
            register(A, ADDR1),
            register(B, ADDR2, cluster=C2),
            Send(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1, "clusterName": "cluster-z"}),
            Send(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1, "clusterName": C1}),
            route(T1, row(B)),
            Send(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T2, "clusterName": ""}),
            route(T2),
        ],
    ),
    "topic_lists": Example(
        "By cluster, by unit flags, and the names a broker makes topics of.",
        [
            register(A, ADDR1, topics=[config(T1, flag=1), config(T2, flag=2), config(T3, flag=3)]),
            topic_list(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, T1, T2, T3),
            topic_list(codes.GET_TOPICS_BY_CLUSTER, T1, T2, T3, cluster=C1),
            topic_list(codes.GET_TOPICS_BY_CLUSTER, cluster="cluster-z"),
            topic_list(codes.GET_UNIT_TOPIC_LIST, T1, T3),
            topic_list(codes.GET_HAS_UNIT_SUB_TOPIC_LIST, T2, T3),
            topic_list(codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, T2),
            topic_list(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS, A, C1),
        ],
    ),
    "topic_lists_switched_off": Example(
        "Each of the two switches has its own lists.",
        [
            *(
                fails(Send(code))
                for code in (
                    codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                    codes.GET_TOPICS_BY_CLUSTER,
                    codes.GET_UNIT_TOPIC_LIST,
                    codes.GET_HAS_UNIT_SUB_TOPIC_LIST,
                    codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                )
            ),
            topic_list(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS),
        ],
        Settings(enable_all_topic_list=False, enable_topic_list=False),
    ),
    "kv_namespaces_never_go": Example(
        "The last key's removal leaves an empty table; a put without value stores nothing that can be read.",
        [
            Expect(Send(codes.GET_KVLIST_BY_NAMESPACE, {"namespace": "namespace-a"}), {"code": codes.QUERY_NOT_FOUND}),
            put("namespace-a", T1, None),
            Expect(
                Send(codes.GET_KV_CONFIG, {"namespace": "namespace-a", "key": T1}),
                {"code": codes.QUERY_NOT_FOUND, "ext": {}},
            ),
            Send(codes.DELETE_KV_CONFIG, {"namespace": "namespace-a", "key": T1}),
            Expect(
                Send(codes.GET_KVLIST_BY_NAMESPACE, {"namespace": "namespace-a"}), {"code": 0, "body": {"table": {}}}
            ),
        ],
    ),
}
