"""Hypothesis strategies for histories of a NameServer.

The universe is small on purpose: a handful of names, addresses, ids and DataVersions, so that the interesting
coincidences (the same address under another id, name or cluster; an equal, older or newer version; a slave that becomes
master) happen all the time. `histories` is the entry point; its arguments narrow it down.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.histories import Advance, CloseChannel, CompressedBody, Send, Step
from tests.model import codes
from tests.model.settings import Settings
from tests.universe import UNIVERSES, Universe, channel_of, often

V5_5_0, V5_1_4, V4_9_8, V4_9_4, V4_9_3, V3_0_10 = 513, 441, 409, 401, 399, 35
PEERS = (V5_5_0, V5_5_0, V5_5_0, V5_1_4, V4_9_8, V4_9_4, V4_9_3)

SHORT_TIMEOUT_MS = 3_000


# --- bodies ---

data_versions: st.SearchStrategy[dict[str, int]] = st.fixed_dictionaries(
    {
        "counter": st.sampled_from((1, 1, 2)),
        "stateVersion": st.sampled_from((0, 0, 1, 2)),
        "timestamp": st.sampled_from((1_700_000_000_000, 1_700_000_000_000, 1_700_000_001_000)),
    }
)


def topic_configs(topic: str) -> st.SearchStrategy[dict[str, Any]]:
    """One entry of a topicConfigTable."""
    return st.fixed_dictionaries(
        {
            "attributes": st.sampled_from(({}, {"message.type": "NORMAL"})),
            "order": st.booleans(),
            "perm": st.sampled_from((6, 6, 6, 7, 4, 2, 0)),
            "readQueueNums": st.sampled_from((4, 8)),
            "topicFilterType": st.just("SINGLE_TAG"),
            "topicName": st.just(topic),
            "topicSysFlag": st.sampled_from((0, 0, 0, 1, 2, 3)),
            "writeQueueNums": st.sampled_from((4, 8)),
        }
    )


@st.composite
def topic_tables(draw: st.DrawFn, universe: Universe) -> dict[str, dict[str, Any]]:
    """A topicConfigTable: none, exactly one, or several topics."""
    names = draw(
        st.one_of(
            st.lists(st.sampled_from(universe.topics), min_size=2, unique=True),
            st.lists(st.sampled_from(universe.topics), min_size=2, unique=True),
            st.lists(st.sampled_from(universe.topics), max_size=1),
        )
    )
    return {name: draw(topic_configs(name)) for name in names}


@st.composite
def mapping_tables(draw: st.DrawFn, universe: Universe, broker_name: str) -> dict[str, dict[str, Any]]:
    """A topicQueueMappingInfoMap, usually empty; the mapping's bname is usually the broker itself."""
    topics = draw(st.one_of(st.just([]), st.lists(st.sampled_from(universe.topics[:3]), max_size=2, unique=True)))
    return {
        topic: {
            "bname": draw(often(broker_name, "broker-a", "broker-d")),
            "currIdMap": {str(queue): queue for queue in range(draw(st.integers(0, 3)))},
            "dirty": draw(st.booleans()),
            "epoch": draw(st.sampled_from((1, 2))),
            "scope": "__global__",
            "topic": topic,
            "totalQueues": draw(st.sampled_from((4, 8))),
        }
        for topic in topics
    }


filter_servers: st.SearchStrategy[list[str] | None] = st.sampled_from(
    ([], [], [], ["10.0.0.9:31000"], ["10.0.0.9:31000", "10.0.0.8:31000"], None)
)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _topic_line(config: dict[str, Any]) -> str:
    """TopicConfig.encode; flags and order are not in it."""
    fields = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    return " ".join([*(str(config[name]) for name in fields), _json(config["attributes"])])


# --- writes ---


@st.composite
def registrations(
    draw: st.DrawFn, universe: Universe, timeouts_ms: Sequence[int], member: dict[str, str] | None = None
) -> list[Step]:
    """REGISTER_BROKER: one request, or several chunks that share one DataVersion (split registration).

    All forms of the body: JSON envelope, deflated, the bare topic table of releases before 3.0.11, and none at all.

    Args:
        draw: Given by Hypothesis.
        universe: Where the broker is from.
        timeouts_ms: What heartbeatTimeoutMillis may be, besides absent.
        member: Who registers, as a 5.x broker with slave acting master on; None for anybody.
    """
    identity = member or draw(universe.identity())
    version = V5_5_0 if member else draw(st.sampled_from((*PEERS, V3_0_10)))
    ext = {**identity, "haServerAddr": identity["brokerAddr"].replace(":10911", ":10912")}
    if version >= V5_1_4:
        acting = "true" if member else draw(st.sampled_from((None, "true", "true", "false")))
        if acting is not None:
            ext["enableActingMaster"] = acting
    timeout_ms = draw(st.sampled_from((None, *timeouts_ms)))
    if timeout_ms is not None:
        ext["heartbeatTimeoutMillis"] = str(timeout_ms)
    zone = draw(often(None, "HZ", "hz", "SH"))
    if zone is not None:
        ext["__ZONE_NAME"] = zone
    data_version = draw(data_versions)
    one = topic_tables(universe)
    tables = draw(st.one_of(st.lists(one, min_size=1, max_size=1), st.lists(one, max_size=3)))
    mappings = draw(mapping_tables(universe, identity["brokerName"])) if version >= V5_1_4 else {}
    servers = draw(filter_servers)
    compressed = version > V3_0_10 and draw(often(False, True))
    crc = draw(often(None, "right", "wrong"))
    channel = draw(often(channel_of(identity), "another"))
    binary = draw(often(False, True))
    if compressed:
        ext["compressed"] = "true"
    if not tables:
        return [Send(codes.REGISTER_BROKER, ext, "", version, channel, crc, binary)]
    steps: list[Step] = []
    for table in tables:
        body: str | CompressedBody
        wrapper = {"dataVersion": data_version, "topicConfigTable": table}
        if version <= V3_0_10:
            body = _json(wrapper)
        elif compressed:
            body = CompressedBody(
                _json(data_version),
                tuple(map(_topic_line, table.values())),
                _json(servers or []),
                tuple(map(_json, mappings.values())) if version >= V5_1_4 else None,
            )
        else:
            wrapper |= {"mappingDataVersion": data_version, "topicQueueMappingDetailMap": {}}
            wrapper["topicQueueMappingInfoMap"] = mappings
            body = _json({"filterServerList": servers, "topicConfigSerializeWrapper": wrapper})
        steps.append(Send(codes.REGISTER_BROKER, ext, body, version, channel, crc, binary))
    return steps


@st.composite
def failovers(draw: st.DrawFn, universe: Universe, timeouts_ms: Sequence[int]) -> list[Step]:
    """A group with slave acting master registers; its master, or an earlier slave, goes; the route is asked for."""
    name = draw(st.sampled_from(universe.names))
    members = [universe.member(name, broker_id) for broker_id in draw(st.permutations((0, 1, 2)))]
    steps: list[Step] = []
    for member in members[: draw(st.sampled_from((3, 2)))]:
        steps += draw(registrations(universe, timeouts_ms, member))
    gone = universe.member(name, draw(st.sampled_from((0, 0, 1))))
    if draw(st.booleans()):
        steps += draw(registrations(universe, timeouts_ms, gone | {"brokerId": draw(st.sampled_from(("0", "3")))}))
    else:
        steps.append(Send(codes.UNREGISTER_BROKER, gone, channel=channel_of(gone)))
    return [*steps, *draw(route_queries(universe)), *draw(route_queries(universe))]


def _send(code: int, ext: st.SearchStrategy[dict[str, str]], **more: Any) -> st.SearchStrategy[list[Step]]:
    """A single request over a connection that carries no registrations."""
    return st.builds(
        lambda fields, version, binary: [Send(code, fields, version=version, binary=binary, **more)],
        ext,
        st.sampled_from(PEERS),
        often(False, True),
    )


def _named(**fields: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries(dict(fields))


@st.composite
def unregistrations(draw: st.DrawFn, universe: Universe) -> list[Step]:
    """UNREGISTER_BROKER."""
    identity = draw(universe.identity())
    return [Send(codes.UNREGISTER_BROKER, identity, version=draw(st.sampled_from(PEERS)), channel=channel_of(identity))]


@st.composite
def heartbeats(draw: st.DrawFn, universe: Universe) -> list[Step]:
    """BROKER_HEARTBEAT."""
    identity = draw(universe.identity())
    return [Send(codes.BROKER_HEARTBEAT, identity, channel=channel_of(identity))]


@st.composite
def version_queries(draw: st.DrawFn, universe: Universe) -> list[Step]:
    """QUERY_DATA_VERSION, rarely without a body."""
    identity = draw(universe.identity())
    body = draw(st.one_of(data_versions.map(_json), data_versions.map(_json), st.just("")))
    return [Send(codes.QUERY_DATA_VERSION, identity, body, channel=channel_of(identity))]


@st.composite
def topic_registrations(draw: st.DrawFn, universe: Universe) -> list[Step]:
    """REGISTER_TOPIC_IN_NAMESRV: rows of known and unknown brokers, rarely none."""
    rows = [
        {
            "brokerName": name,
            "perm": draw(st.sampled_from((6, 4, 2))),
            "readQueueNums": draw(st.sampled_from((4, 8))),
            "topicSysFlag": draw(st.sampled_from((0, 1, 2))),
            "writeQueueNums": draw(st.sampled_from((4, 8))),
        }
        for name in draw(st.lists(universe.any_broker, max_size=3))
    ]
    body = draw(often(_json({"queueDatas": rows}), ""))
    return [Send(codes.REGISTER_TOPIC_IN_NAMESRV, {"topic": draw(universe.any_topic)}, body)]


@st.composite
def topic_deletions(draw: st.DrawFn, universe: Universe) -> list[Step]:
    """DELETE_TOPIC_IN_NAMESRV, with and without a cluster."""
    ext = {"topic": draw(universe.any_topic)}
    cluster = draw(st.one_of(st.none(), universe.any_cluster, st.just("")))
    if cluster is not None:
        ext["clusterName"] = cluster
    return [Send(codes.DELETE_TOPIC_IN_NAMESRV, ext)]


_kv_values = st.sampled_from(("broker-a:8", "broker-a:8;broker-b:4", "8", "é/☃"))

# Switches that act at once when 318 sets them. notifyMinBrokerIdChanged is not among them: with it the real server
# connects to the brokers, whose addresses here are nobody's.
SWITCHES = (
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "supportActingMaster",
    "enableAllTopicList",
    "enableTopicList",
    "deleteTopicWithBrokerRegistration",
    "needWaitForService",
)


@st.composite
def setting_updates(draw: st.DrawFn) -> list[Step]:
    """UPDATE_NAMESRV_CONFIG: switches, and what must be refused or ignored."""
    pairs = draw(st.dictionaries(st.sampled_from(SWITCHES), st.sampled_from(("true", "TRUE", "false")), max_size=3))
    if draw(st.booleans()):
        # Either way the start-up gate is clear: long over, or not over for a day.
        pairs["waitSecondsForService"] = draw(st.sampled_from(("0", "0", "100000", "many")))
    rare = draw(often(None, "configStorePath", "kvConfigPath", "rocketmqHome", "noSuchSetting"))
    if rare is not None:
        pairs[rare] = "/nowhere"
    return [Send(codes.UPDATE_NAMESRV_CONFIG, {}, "".join(f"{key}={value}\n" for key, value in pairs.items()))]


@st.composite
def route_queries(draw: st.DrawFn, universe: Universe) -> list[Step]:
    """GET_ROUTEINFO_BY_TOPIC, with every header field and peer version."""
    ext = {"topic": draw(universe.any_topic)}
    standard = draw(often(None, "true", "false"))
    if standard is not None:
        ext["acceptStandardJsonOnly"] = standard
    mode = draw(often(None, "true", "false"))
    if mode is not None:
        ext["__ZONE_MODE"] = mode
        ext["__ZONE_NAME"] = draw(st.sampled_from(("HZ", "SH", " ")))
    return [
        Send(codes.GET_ROUTEINFO_BY_TOPIC, ext, version=draw(st.sampled_from((*PEERS, 0))), binary=draw(st.booleans()))
    ]


def _steps_by_code(universe: Universe, timeouts_ms: Sequence[int]) -> dict[int, list[st.SearchStrategy[list[Step]]]]:
    """For each request code the strategies of its steps, repeated by weight."""
    nothing: st.SearchStrategy[dict[str, str]] = st.just({})
    return {
        codes.REGISTER_BROKER: [registrations(universe, timeouts_ms)] * 12 + [failovers(universe, timeouts_ms)],
        codes.UNREGISTER_BROKER: [unregistrations(universe)] * 5,
        codes.GET_ROUTEINFO_BY_TOPIC: [route_queries(universe)] * 5,
        codes.WIPE_WRITE_PERM_OF_BROKER: [
            _send(codes.WIPE_WRITE_PERM_OF_BROKER, _named(brokerName=universe.any_broker))
        ],
        codes.ADD_WRITE_PERM_OF_BROKER: [_send(codes.ADD_WRITE_PERM_OF_BROKER, _named(brokerName=universe.any_broker))],
        codes.GET_BROKER_CLUSTER_INFO: [_send(codes.GET_BROKER_CLUSTER_INFO, nothing)],
        codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: [_send(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, nothing)],
        codes.DELETE_TOPIC_IN_NAMESRV: [topic_deletions(universe)],
        codes.REGISTER_TOPIC_IN_NAMESRV: [topic_registrations(universe)] * 2,
        codes.QUERY_DATA_VERSION: [version_queries(universe)] * 2,
        codes.BROKER_HEARTBEAT: [heartbeats(universe)],
        codes.PUT_KV_CONFIG: [
            _send(
                codes.PUT_KV_CONFIG, _named(namespace=universe.any_namespace, key=universe.any_key, value=_kv_values)
            ),
            _send(codes.PUT_KV_CONFIG, _named(namespace=universe.any_namespace, key=universe.any_key)),
        ],
        codes.GET_KV_CONFIG: [
            _send(codes.GET_KV_CONFIG, _named(namespace=universe.any_namespace, key=universe.any_key))
        ],
        codes.DELETE_KV_CONFIG: [
            _send(codes.DELETE_KV_CONFIG, _named(namespace=universe.any_namespace, key=universe.any_key))
        ],
        codes.GET_KVLIST_BY_NAMESPACE: [_send(codes.GET_KVLIST_BY_NAMESPACE, _named(namespace=universe.any_namespace))],
        codes.GET_TOPICS_BY_CLUSTER: [_send(codes.GET_TOPICS_BY_CLUSTER, _named(cluster=universe.any_cluster))],
        codes.GET_SYSTEM_TOPIC_LIST_FROM_NS: [_send(codes.GET_SYSTEM_TOPIC_LIST_FROM_NS, nothing)],
        codes.GET_UNIT_TOPIC_LIST: [_send(codes.GET_UNIT_TOPIC_LIST, nothing)],
        codes.GET_HAS_UNIT_SUB_TOPIC_LIST: [_send(codes.GET_HAS_UNIT_SUB_TOPIC_LIST, nothing)],
        codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: [_send(codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, nothing)],
        codes.UPDATE_NAMESRV_CONFIG: [setting_updates()],
        codes.GET_NAMESRV_CONFIG: [_send(codes.GET_NAMESRV_CONFIG, nothing)],
        codes.GET_BROKER_MEMBER_GROUP: [
            _send(
                codes.GET_BROKER_MEMBER_GROUP, _named(clusterName=universe.any_cluster, brokerName=universe.any_broker)
            )
        ],
        codes.UNKNOWN_CODE: [_send(codes.UNKNOWN_CODE, nothing)],
    }


def settings(*, order: bool = True) -> st.SearchStrategy[Settings]:
    """NamesrvConfig switches for a whole history.

    Args:
        order: Whether orderMessageEnable and returnOrderTopicConfigToBroker vary as well.
    """
    varied = st.booleans() if order else st.just(False)
    return st.builds(
        Settings,
        order_message_enable=varied,
        return_order_topic_config_to_broker=st.just(True) if not order else often(True, False),
        support_acting_master=st.booleans(),
        delete_topic_with_broker_registration=often(False, True),
        enable_all_topic_list=often(True, False),
        enable_topic_list=often(True, False),
    )


def histories(
    request_codes: frozenset[int] = codes.ALL_CODES,
    *,
    max_steps: int = 40,
    shared_addresses: bool = True,
    shared_names: bool = True,
    timeouts_ms: Sequence[int] = (SHORT_TIMEOUT_MS,),
    advances_ms: Sequence[int] = (),
    closes: bool = False,
) -> st.SearchStrategy[list[Step]]:
    """Sequences of reads and writes, mixed.

    Args:
        request_codes: `codes.MAIN_CODES` for the main job, `codes.ALL_CODES` for the whole NameServer.
        max_steps: About the longest history.
        shared_addresses: Whether one address may serve several broker names or clusters. RocketMQ keeps liveness by
            (cluster, address), so such brokers disturb each other there.
        shared_names: Whether one broker name may appear in several clusters.
        timeouts_ms: What heartbeatTimeoutMillis may be, besides absent.
        advances_ms: By how much the clock may advance; empty for histories without time.
        closes: Whether connections are lost.
    """
    in_universes = []
    for names, topics in UNIVERSES:
        universe = Universe(names, topics, shared_addresses=shared_addresses, shared_names=shared_names)
        kinds = kinds_of_steps(universe, request_codes, timeouts_ms)
        if advances_ms:
            kinds += [st.sampled_from(tuple(advances_ms)).map(lambda ms: [Advance(ms)])] * 3
        if closes:
            channels = st.one_of(universe.identity().map(channel_of), st.just("another"))
            kinds += [channels.map(lambda channel: [CloseChannel(channel)])] * 3
        in_universes.append(sequences(kinds, max_steps))
    return st.one_of(in_universes)


def kinds_of_steps(
    universe: Universe, request_codes: frozenset[int], timeouts_ms: Sequence[int]
) -> list[st.SearchStrategy[list[Step]]]:
    """Strategies of one or a few steps, repeated by weight."""
    by_code = _steps_by_code(universe, timeouts_ms)
    return [strategy for code in sorted(request_codes) for strategy in by_code[code]]


def weighted(kinds: list[st.SearchStrategy[list[Step]]]) -> st.SearchStrategy[list[Step]]:
    """One of several, by index, because `one_of` merges equal alternatives and with them their weights."""
    return st.integers(0, len(kinds) - 1).flatmap(kinds.__getitem__)


def sequences(kinds: list[st.SearchStrategy[list[Step]]], max_steps: int) -> st.SearchStrategy[list[Step]]:
    """Histories of these kinds of steps."""
    # Alternatives with a minimum, because a plain list is short on average; the first one is what shrinking ends in.
    sizes = (0, max_steps // 4, max_steps // 2)
    return st.one_of([st.lists(weighted(kinds), min_size=size, max_size=max_steps) for size in sizes]).map(
        lambda groups: [step for group in groups for step in group][: max_steps + 3]
    )
