# SPDX-License-Identifier: Apache-2.0
"""Examples of registration and unregistration."""

from __future__ import annotations

import json

from dev.histories.steps import Advance, CloseChannel, Send
from dev.model import codes
from dev.model.settings import Settings
from tests.examples.parts import (
    ADDR1,
    ADDR2,
    ADDR3,
    C1,
    C2,
    T1,
    T2,
    T3,
    A,
    B,
    Example,
    Expect,
    add_write,
    broker,
    clusters,
    config,
    fails,
    group,
    live,
    mapping,
    register,
    route,
    row,
    succeeds,
    unregister,
    version,
    who,
    wipe,
)

REGISTRATION = {
    "one_topic_newcomer_is_refused": Example(
        "A refused newcomer stays behind as a group without addresses; zero topics or two are fine.",
        [
            fails(register(A, ADDR1, topics=[config(T1)]), ext={}),
            clusters({C1: [A]}),
            group(A),
            route(T1),
            succeeds(register(A, ADDR1, topics=[])),
            group(A, id0=ADDR1),
            succeeds(register(A, ADDR1, topics=[config(T1)], at=version(counter=2))),
            route(T1, row(A)),
        ],
    ),
    "one_topic_slave_cannot_become_master": Example(
        "The old id is gone before the check for the new one is made.",
        [
            succeeds(register(A, ADDR1, 1, acting=True)),
            fails(register(A, ADDR1, 0, [config(T1)], acting=True), ext={}),
            group(A),
            live(ADDR1, version()),
        ],
    ),
    "conflict_removes_the_newcomers_live_row": Example(
        "A greater stateVersion holds the id; the newcomer gets OK, and loses its old id and its live row.",
        [
            register(A, ADDR1, 0, at=version(state=2)),
            register(A, ADDR2, 1),
            live(ADDR2, version()),
            succeeds(register(A, ADDR2, 0, at=version(state=1))),
            group(A, id0=ADDR1),
            live(ADDR2, None),
            # Equal is no conflict, however old the counter.
            succeeds(register(A, ADDR3, 0, at=version(state=2, counter=0))),
            group(A, id0=ADDR3),
        ],
    ),
    "promoted_slave_rewrites_its_rows": Example(
        "The id had no address before, so the rows are written although the DataVersion is the same.",
        [
            register(A, ADDR1, 1, acting=True),
            route(T1, row(A, perm=4)),
            register(A, ADDR1, 0, acting=True),
            route(T1, row(A, perm=6)),
        ],
    ),
    "lone_slave_without_acting_master_is_writable": Example(
        "The smallest id contributes topics, with write permission when enableActingMaster is false.",
        [register(A, ADDR1, 1, acting=False), route(T1, row(A, perm=6))],
    ),
    "old_slave_contributes_no_topics": Example(
        "Without enableActingMaster a slave is of a release before 5.0.",
        [register(A, ADDR1, 1), route(T1), group(A, id1=ADDR1), live(ADDR1, version())],
    ),
    "slave_learns_its_master": Example(
        "masterAddr and haServerAddr, as long as the master has a live row in the slave's cluster.",
        [
            register(A, ADDR1, 0),
            succeeds(register(A, ADDR2, 1), masterAddr=ADDR1, haServerAddr="10.0.0.1:10912"),
            succeeds(register(A, ADDR3, 2, cluster=C2)),
        ],
    ),
    "wipe_survives_until_the_version_changes": Example(
        "With an equal DataVersion an existing row is never overwritten; an older one overwrites like a newer.",
        [
            register(A, ADDR1, at=version(counter=5)),
            wipe(A, 2),
            wipe(A, 2),
            wipe("broker-z", 0),
            register(A, ADDR1, at=version(counter=5)),
            route(T1, row(A, perm=4)),
            register(A, ADDR1, at=version(counter=4)),
            route(T1, row(A, perm=6)),
        ],
    ),
    "add_write_assigns_six": Example(
        "TBW102 goes 7, 5, 6.",
        [
            register(A, ADDR1, topics=[config("TBW102", 7), config(T1)]),
            wipe(A, 2),
            route("TBW102", row(A, perm=5)),
            add_write(A, 2),
            add_write("broker-z", 0),
            route("TBW102", row(A, perm=6)),
        ],
    ),
    "topics_stay_until_told_otherwise": Example(
        "A newer table without a topic does not remove its row; a chunk of an equal version adds, and updates nothing.",
        [
            register(A, ADDR1),
            register(A, ADDR1, topics=[config(T2, queues=8), config(T3)], at=version(counter=2)),
            route(T1, row(A)),
            route(T2, row(A, queues=8)),
            register(A, ADDR1, topics=[config(T1, queues=8), config("topic-d")], at=version(counter=2)),
            route(T1, row(A)),
            route("topic-d", row(A)),
        ],
    ),
    "delete_mode_drops_absent_topics": Example(
        "deleteTopicWithBrokerRegistration: on every registration, unless it carries mappings.",
        [
            register(A, ADDR1),
            register(A, ADDR1, topics=[config(T3), config(T2)], mappings=[mapping(T2, A)]),
            route(T1, row(A)),
            register(A, ADDR1, topics=[config(T3)]),
            route(T1),
            route(T2),
            route(T3, row(A)),
        ],
        Settings(delete_topic_with_broker_registration=True),
    ),
    "two_clusters_share_a_name": Example(
        "The name is the first registrant's; unregistering for the second cluster leaves the first one's set alone.",
        [
            register(A, ADDR1),
            register(A, ADDR2, 1, cluster=C2),
            clusters({C1: [A], C2: [A]}),
            route(T1, row(A), brokers=[broker(A, id0=ADDR1, id1=ADDR2)]),
            unregister(A, ADDR1),
            unregister(A, ADDR2, 1, C2),
            clusters({C1: [A]}),
        ],
    ),
    "an_address_moves_to_another_name": Example(
        "The two names share one live row: who comes second finds the version unchanged, but has no rows yet.",
        [
            register(A, ADDR1),
            register(B, ADDR1),
            route(T1, row(A), row(B)),
            unregister(A, ADDR1),
            live(ADDR1, None),
            route(T1, row(B)),
            group(B, id0=ADDR1),
        ],
    ),
    "filter_servers_go_with_their_broker": Example(
        "They are put, left alone by null, and removed by an empty list or by unregistering.",
        [
            register(A, ADDR1, filters=["10.0.0.9:31000"]),
            register(A, ADDR1, filters=None),
            Expect(route(T1, row(A)).step, {"body.filterServerTable": {ADDR1: ["10.0.0.9:31000"]}}),
            unregister(A, ADDR1),
            register(A, ADDR1, filters=None),
            Expect(route(T1, row(A)).step, {"body.filterServerTable": {}}),
            register(A, ADDR1, filters=["10.0.0.9:31000"]),
            register(A, ADDR1, filters=[]),
            Expect(route(T1, row(A)).step, {"body.filterServerTable": {}}),
        ],
    ),
    "mappings_never_go": Example(
        "They are kept by their own bname, and outlive the topic and the broker.",
        [
            register(A, ADDR1, mappings=[mapping(T1, "broker-d")]),
            Expect(route(T1, row(A)).step, {"body.topicQueueMappingByBroker": {"broker-d": mapping(T1, "broker-d")}}),
            register(A, ADDR1, mappings=[mapping(T1, "broker-d", epoch=2)]),
            Expect(route(T1, row(A)).step, {"body.topicQueueMappingByBroker": {"broker-d": mapping(T1, "broker-d")}}),
            Send(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1}),
            unregister(A, ADDR1),
            register(A, ADDR1),
            Expect(route(T1, row(A)).step, {"body.topicQueueMappingByBroker": {"broker-d": mapping(T1, "broker-d")}}),
        ],
    ),
}


UNREGISTRATION = {
    "unregistering_a_wrong_address_still_wipes": Example(
        "It removes nothing, and yet a group without master loses its write permissions.",
        [
            register(A, ADDR1, 1, acting=True),
            add_write(A, 2),
            route(T1, row(A, perm=6)),
            unregister(A, ADDR3, 7),
            group(A, id1=ADDR1),
            route(T1, row(A, perm=4)),
        ],
    ),
    "unregistering_for_another_cluster_leaves_the_live_row": Example(
        "The group goes, its stale live row stays: later the version is equal, and yet the rows, being absent, come.",
        [
            register(A, ADDR1),
            unregister(A, ADDR1, cluster=C2),
            route(T1),
            live(ADDR1, version()),
            clusters({C1: [A]}),
            register(A, ADDR2, topics=[]),
            register(A, ADDR1),
            route(T1, row(A), brokers=[broker(A, id0=ADDR1)]),
        ],
    ),
    "unregistering_goes_by_address": Example(
        "The id in the request only decides about the notification.",
        [register(A, ADDR1, 0), register(A, ADDR2, 1), unregister(A, ADDR1, 1), group(A, id1=ADDR2)],
    ),
    "a_lost_connection_takes_its_broker": Example(
        "Only registering binds a broker to a connection, heartbeats do not.",
        [
            register(A, ADDR1, channel="one"),
            Send(codes.BROKER_HEARTBEAT, who(A, ADDR1), channel="two"),
            CloseChannel("two"),
            route(T1, row(A)),
            CloseChannel("one"),
            route(T1),
            clusters({}),
        ],
    ),
    "a_superseded_address_leaves_a_stale_row": Example(
        "Its connection's end finds no group, and its live row stays.",
        [
            register(A, ADDR1, channel="one"),
            register(A, ADDR2, channel="two"),
            CloseChannel("one"),
            live(ADDR1, version()),
            group(A, id0=ADDR2),
        ],
    ),
    "silence": Example(
        "Registering, asking for the version and heartbeats keep a broker alive; asking even when it has changed.",
        [
            register(A, ADDR1, heartbeatTimeoutMillis="3000"),
            Advance(2_000),
            Send(codes.QUERY_DATA_VERSION, who(A, ADDR1), json.dumps(version(counter=9)), channel=f"{C1}/{ADDR1}"),
            Advance(2_000),
            Send(codes.BROKER_HEARTBEAT, who(A, ADDR1), channel=f"{C1}/{ADDR1}"),
            Advance(2_000),
            route(T1, row(A)),
            Advance(1_500),
            route(T1),
            clusters({}),
        ],
    ),
}
