# SPDX-License-Identifier: Apache-2.0
"""Generators of steps for every request code of the NameServer; see `dev.histories.universe` for `pick`.

The universe is small on purpose: a handful of names, addresses, ids and DataVersions, so that the interesting
coincidences (the same address under another id, name or cluster; an equal, older or newer version; a slave that becomes
master) happen all the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dev.histories.steps import Advance, CloseChannel, CompressedBody, Send, Step
from dev.histories.universe import EVENLY, RARELY, Pick, Universe, channel_of
from dev.model import codes
from dev.model.settings import Settings

V5_5_0, V5_1_4, V4_9_8, V4_9_4, V4_9_3, V3_0_10 = 513, 441, 409, 401, 399, 35
PEERS = (V5_5_0, V5_5_0, V5_5_0, V5_1_4, V4_9_8, V4_9_4, V4_9_3)

DATA_VERSIONS = tuple(
    {"counter": counter, "stateVersion": state, "timestamp": timestamp}
    for timestamp, state, counter in product((1_700_000_000_000, 1_700_000_001_000), (0, 0, 1, 2), (1, 1, 2))
)
# perm, readQueueNums, writeQueueNums, topicSysFlag
_QUEUES = tuple(product((6, 6, 6, 7, 4, 2, 0), (4, 8), (4, 8), (0, 0, 0, 1, 2, 3)))
_FILTER_SERVERS: tuple[list[str] | None, ...] = (
    [],
    [],
    [],
    ["10.0.0.9:31000"],
    ["10.0.0.9:31000", "10.0.0.8:31000"],
    None,
)

# Switches that act at once when 318 sets them. notifyMinBrokerIdChanged is not among them: with it the real server
# connects to the brokers, and no process has these addresses.
SWITCHES = (
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "supportActingMaster",
    "enableAllTopicList",
    "enableTopicList",
    "deleteTopicWithBrokerRegistration",
    "needWaitForService",
)


@dataclass(frozen=True)
class World:
    """Values that a generator may use.

    Attributes:
        universe: Names in play.
        timeouts_ms: Values of heartbeatTimeoutMillis, in addition to an absent one.
        advances_ms: Steps of the clock, in milliseconds.
    """

    universe: Universe
    timeouts_ms: tuple[int, ...] = (3_000,)
    advances_ms: tuple[int, ...] = ()


Generator = Callable[[Pick, World], list[Step]]


# --- registrations ---


def topic_table(pick: Pick, world: World) -> dict[str, dict[str, Any]]:
    """A topicConfigTable: none, exactly one, or several topics."""
    topics = world.universe.topics
    size = pick((2, 2, len(topics), len(topics), 1, 0))
    first = pick(range(len(topics)))
    names = [topics[(first + index) % len(topics)] for index in range(size)]
    return {name: _topic_config(pick, name) for name in names}


def _topic_config(pick: Pick, topic: str) -> dict[str, Any]:
    perm, reads, writes, flag = pick(_QUEUES)
    return {
        "attributes": {"message.type": "NORMAL"} if flag else {},
        "order": writes == 8,
        "perm": perm,
        "readQueueNums": reads,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": flag,
        "writeQueueNums": writes,
    }


def _mapping_table(pick: Pick, world: World, broker_name: str) -> dict[str, dict[str, Any]]:
    """A topicQueueMappingInfoMap, usually empty; the mapping's bname is usually the broker itself."""
    if not pick(RARELY):
        return {}
    return {
        topic: {
            "bname": pick((broker_name, broker_name, "broker-a", "broker-d")),
            "currIdMap": {str(queue): queue for queue in range(pick((0, 1, 2)))},
            "dirty": pick(EVENLY),
            "epoch": pick((1, 2)),
            "scope": "__global__",
            "topic": topic,
            "totalQueues": pick((4, 8)),
        }
        for topic in world.universe.topics[: pick((1, 2))]
    }


def registration(pick: Pick, world: World) -> list[Step]:
    """REGISTER_BROKER by anybody: see `_register`."""
    return _register(pick, world, world.universe.identity(pick), pick((*PEERS, V3_0_10)), None)


def _register(pick: Pick, world: World, identity: dict[str, str], version: int, acting: str | None) -> list[Step]:
    """REGISTER_BROKER: one request, or several chunks that share one DataVersion (split registration).

    All forms of the body: JSON envelope, deflated, the bare topic table of releases before 3.0.11, and none at all.
    """
    ext = {**identity, "haServerAddr": identity["brokerAddr"].replace(":10911", ":10912")}
    if version >= V5_1_4:
        acting = acting or pick((None, "true", "true", "false"))
        if acting is not None:
            ext["enableActingMaster"] = acting
    timeout_ms = pick((None, *world.timeouts_ms))
    if timeout_ms is not None:
        ext["heartbeatTimeoutMillis"] = str(timeout_ms)
    zone = pick((None, None, None, "HZ", "hz", "SH"))
    if zone is not None:
        ext["__ZONE_NAME"] = zone
    data_version = pick(DATA_VERSIONS)
    compressed = version > V3_0_10 and pick(RARELY)
    if compressed:
        ext["compressed"] = "true"
    mappings = _mapping_table(pick, world, identity["brokerName"]) if version >= V5_1_4 else {}
    servers = pick(_FILTER_SERVERS)
    crc = pick((None, None, None, None, "right", "wrong"))
    channel = pick((channel_of(identity), channel_of(identity), channel_of(identity), "another"))
    binary = pick(RARELY)
    chunks = pick((1, 1, 1, 2, 3, 0))
    bodies: list[str | CompressedBody] = [""] if chunks == 0 else []
    for _ in range(chunks):
        table = topic_table(pick, world)
        wrapper: dict[str, Any] = {"dataVersion": data_version, "topicConfigTable": table}
        if version <= V3_0_10:
            bodies.append(to_json(wrapper))
        elif compressed:
            bodies.append(
                CompressedBody(
                    to_json(data_version),
                    tuple(map(_topic_line, table.values())),
                    to_json(servers or []),
                    tuple(map(to_json, mappings.values())) if version >= V5_1_4 else None,
                )
            )
        else:
            wrapper |= {"mappingDataVersion": data_version, "topicQueueMappingDetailMap": {}}
            wrapper["topicQueueMappingInfoMap"] = mappings
            bodies.append(to_json({"filterServerList": servers, "topicConfigSerializeWrapper": wrapper}))
    return [Send(codes.REGISTER_BROKER, ext, body, version, channel, crc, binary) for body in bodies]


def to_json(value: Any) -> str:
    """JSON as a Java peer writes it: no blanks, keys in order."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _topic_line(config: dict[str, Any]) -> str:
    """TopicConfig.encode; flags and order are not in it."""
    fields = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    return " ".join([*(str(config[name]) for name in fields), to_json(config["attributes"])])


def failover(pick: Pick, world: World) -> list[Step]:
    """A group with slave acting master registers; its master, or a slave, goes; the route is asked for."""
    universe = world.universe
    name = pick(universe.names)
    steps: list[Step] = []
    for broker_id in pick(((0, 1), (1, 0), (0, 1, 2), (2, 1, 0), (1, 2, 0))):
        steps += _register(pick, world, universe.member(name, broker_id), V5_5_0, "true")
    gone = universe.member(name, pick((0, 0, 1)))
    new_id = pick((None, "0", "3"))
    if new_id is None:
        steps.append(Send(codes.UNREGISTER_BROKER, gone, channel=channel_of(gone)))
    else:
        steps += _register(pick, world, gone | {"brokerId": new_id}, V5_5_0, "true")
    return [*steps, *route_query(pick, world), *route_query(pick, world)]


# --- other writes ---


def unregistration(pick: Pick, world: World) -> list[Step]:
    """UNREGISTER_BROKER."""
    identity = world.universe.identity(pick)
    return [Send(codes.UNREGISTER_BROKER, identity, version=pick(PEERS), channel=channel_of(identity))]


def heartbeat(pick: Pick, world: World) -> list[Step]:
    """BROKER_HEARTBEAT."""
    identity = world.universe.identity(pick)
    return [Send(codes.BROKER_HEARTBEAT, identity, channel=channel_of(identity))]


def version_query(pick: Pick, world: World) -> list[Step]:
    """QUERY_DATA_VERSION, rarely without a body."""
    identity = world.universe.identity(pick)
    body = "" if pick(RARELY) else to_json(pick(DATA_VERSIONS))
    return [Send(codes.QUERY_DATA_VERSION, identity, body, channel=channel_of(identity))]


def topic_registration(pick: Pick, world: World) -> list[Step]:
    """REGISTER_TOPIC_IN_NAMESRV: rows of known and unknown brokers, rarely none."""
    rows = []
    for _ in range(pick((1, 2, 3, 0))):
        perm, reads, writes, flag = pick(_QUEUES)
        rows.append(
            {
                "brokerName": pick(world.universe.any_broker),
                "perm": perm,
                "readQueueNums": reads,
                "topicSysFlag": flag,
                "writeQueueNums": writes,
            }
        )
    body = "" if pick(RARELY) else to_json({"queueDatas": rows})
    return [Send(codes.REGISTER_TOPIC_IN_NAMESRV, {"topic": pick(world.universe.any_topic)}, body)]


def topic_deletion(pick: Pick, world: World) -> list[Step]:
    """DELETE_TOPIC_IN_NAMESRV, with and without a cluster."""
    ext = {"topic": pick(world.universe.any_topic)}
    cluster = pick((None, *world.universe.any_cluster, ""))
    return [Send(codes.DELETE_TOPIC_IN_NAMESRV, ext if cluster is None else {**ext, "clusterName": cluster})]


def setting_update(pick: Pick, world: World) -> list[Step]:
    """UPDATE_NAMESRV_CONFIG: switches, and what must be refused or ignored."""
    pairs = {pick(SWITCHES): pick(("true", "TRUE", "false")) for _ in range(pick((1, 2, 0)))}
    # Either way the start-up gate is clear: long over, or not over for a day.
    wait = pick((None, "0", "0", "100000", "many"))
    if wait is not None:
        pairs["waitSecondsForService"] = wait
    rare = pick((None, None, None, "configStorePath", "kvConfigPath", "rocketmqHome", "noSuchSetting"))
    if rare is not None:
        pairs[rare] = "/nowhere"
    return [Send(codes.UPDATE_NAMESRV_CONFIG, {}, "".join(f"{key}={value}\n" for key, value in pairs.items()))]


def kv_put(pick: Pick, world: World) -> list[Step]:
    """PUT_KV_CONFIG, rarely without a value."""
    ext = {"namespace": pick(world.universe.any_namespace), "key": pick(world.universe.any_key)}
    value = pick(("broker-a:8", "broker-a:8;broker-b:4", "8", "é/☃", None))
    return [Send(codes.PUT_KV_CONFIG, ext if value is None else {**ext, "value": value}, binary=pick(RARELY))]


# --- reads, and writes that are only a header ---


def route_query(pick: Pick, world: World) -> list[Step]:
    """GET_ROUTEINFO_BY_TOPIC, with every header field and peer version."""
    ext = {"topic": pick(world.universe.any_topic)}
    standard = pick((None, None, None, "true", "false"))
    if standard is not None:
        ext["acceptStandardJsonOnly"] = standard
    mode = pick((None, None, None, "true", "false"))
    if mode is not None:
        ext |= {"__ZONE_MODE": mode, "__ZONE_NAME": pick(("HZ", "SH", " "))}
    return [Send(codes.GET_ROUTEINFO_BY_TOPIC, ext, version=pick((*PEERS, 0)), binary=pick(EVENLY))]


def _header_only(code: int, **fields: str) -> Generator:
    """A request of header fields alone.

    Args:
        code: RequestCode.
        fields: Name -> attribute of the universe that lists its values.
    """

    def generate(pick: Pick, world: World) -> list[Step]:
        ext = {name: pick(getattr(world.universe, values)) for name, values in fields.items()}
        return [Send(code, ext, version=pick(PEERS), binary=pick(RARELY))]

    return generate


def advance(pick: Pick, world: World) -> list[Step]:
    """Time passes."""
    return [Advance(pick(world.advances_ms))]


def close(pick: Pick, world: World) -> list[Step]:
    """A connection is lost."""
    return [CloseChannel("another" if pick(RARELY) else channel_of(world.universe.identity(pick)))]


# Request code -> its generators, by weight.
GENERATORS: dict[int, list[Generator]] = {
    codes.GET_ROUTEINFO_BY_TOPIC: [route_query] * 5,
    codes.REGISTER_BROKER: [failover, *[registration] * 12],
    codes.UNREGISTER_BROKER: [unregistration] * 5,
    codes.QUERY_DATA_VERSION: [version_query] * 2,
    codes.BROKER_HEARTBEAT: [heartbeat],
    codes.REGISTER_TOPIC_IN_NAMESRV: [topic_registration] * 2,
    codes.DELETE_TOPIC_IN_NAMESRV: [topic_deletion],
    codes.UPDATE_NAMESRV_CONFIG: [setting_update],
    codes.PUT_KV_CONFIG: [kv_put] * 2,
    **{
        code: [_header_only(code, **fields)]
        for code, fields in {
            codes.WIPE_WRITE_PERM_OF_BROKER: {"brokerName": "any_broker"},
            codes.ADD_WRITE_PERM_OF_BROKER: {"brokerName": "any_broker"},
            codes.GET_BROKER_CLUSTER_INFO: {},
            codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
            codes.GET_KV_CONFIG: {"namespace": "any_namespace", "key": "any_key"},
            codes.DELETE_KV_CONFIG: {"namespace": "any_namespace", "key": "any_key"},
            codes.GET_KVLIST_BY_NAMESPACE: {"namespace": "any_namespace"},
            codes.GET_TOPICS_BY_CLUSTER: {"cluster": "any_cluster"},
            codes.GET_SYSTEM_TOPIC_LIST_FROM_NS: {},
            codes.GET_UNIT_TOPIC_LIST: {},
            codes.GET_HAS_UNIT_SUB_TOPIC_LIST: {},
            codes.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {},
            codes.GET_NAMESRV_CONFIG: {},
            codes.GET_BROKER_MEMBER_GROUP: {"clusterName": "any_cluster", "brokerName": "any_broker"},
            codes.UNKNOWN_CODE: {},
        }.items()
    },
}


def generators_for(request_codes: frozenset[int], *, advances: bool = False, closes: bool = False) -> list[Generator]:
    """The generators of some request codes, by weight.

    Args:
        request_codes: `codes.MAIN_CODES` for the main job, `codes.ALL_CODES` for the whole NameServer.
        advances: Whether the clock advances.
        closes: Whether connections are lost.
    """
    chosen = [generator for code, weighted in GENERATORS.items() if code in request_codes for generator in weighted]
    return chosen + [advance] * (3 * advances) + [close] * (3 * closes)


def random_settings(pick: Pick) -> Settings:
    """NamesrvConfig switches for a whole history."""
    return Settings(
        order_message_enable=pick(EVENLY),
        return_order_topic_config_to_broker=not pick(RARELY),
        support_acting_master=pick(EVENLY),
        delete_topic_with_broker_registration=pick(RARELY),
        enable_all_topic_list=not pick(RARELY),
        enable_topic_list=not pick(RARELY),
    )


def spread(pick: Pick, generators: Sequence[Generator], world: World) -> list[Step]:
    """One step, or a few that belong together."""
    return pick(generators)(pick, world)
