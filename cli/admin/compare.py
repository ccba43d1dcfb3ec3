# SPDX-License-Identifier: Apache-2.0
"""Differences of NameServers, by broker and by topic. Pure.

What a NameServer knows is laid out as facts, one to each (topic, brokerName): a broker without a topic is a broker
group's registration, a topic without a broker is what holds for the topic as a whole. Two NameServers agree when their
facts are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemas.broker import TopicQueueMappingInfo
from schemas.route import BrokerData, ClusterInfo, TopicRouteData

Fields = dict[str, str]
"""Known values of one place; absent is an empty mapping's opposite: no Fields at all."""


class FactKey(NamedTuple):
    """``topic`` is None for a registration, ``broker_name`` is None for a topic as a whole."""

    topic: str | None
    broker_name: str | None


class Snapshot(NamedTuple):
    """Answer of one NameServer. A topic whose route is None is listed but has no route (TOPIC_NOT_EXIST)."""

    name_server: str
    clusters: ClusterInfo
    routes: Mapping[str, TopicRouteData | None]


class Difference(NamedTuple):
    """A place and what each NameServer knows of it; None for nothing. Only fields that differ are left in.

    If some NameServer knows nothing, the fields of the others are complete.
    """

    place: FactKey
    found: dict[str, Fields | None]


def differences(snapshots: Sequence[Snapshot]) -> list[Difference]:
    """Differences of snapshots: registrations first, then topics, each in alphabetical order."""
    facts = {snapshot.name_server: facts_of(snapshot) for snapshot in snapshots}
    places = sorted({place for known in facts.values() for place in known}, key=_order)
    found = []
    for place in places:
        at_place = {name_server: known.get(place) for name_server, known in facts.items()}
        if any(fields != next(iter(at_place.values())) for fields in at_place.values()):
            found.append(Difference(place, _narrowed(at_place)))
    return found


def facts_of(snapshot: Snapshot) -> dict[FactKey, Fields]:
    """All facts of one NameServer."""
    facts = {FactKey(None, name): _registration(data) for name, data in snapshot.clusters.broker_addr_table.items()}
    listed: dict[str, list[str]] = {}
    for cluster, names in sorted(snapshot.clusters.cluster_addr_table.items()):
        for name in names:
            listed.setdefault(name, []).append(cluster)
    for name, clusters in listed.items():
        fields = facts.setdefault(FactKey(None, name), {})
        if clusters != [fields.get("cluster")]:  # in two clusters, or in another one than it says
            fields["clusters"] = " ".join(clusters)
    for topic, route in snapshot.routes.items():
        facts.update(_route_facts(topic, route))
    return facts


def _order(place: FactKey) -> tuple[bool, str, bool, str]:
    topic, name = place
    return (topic is not None, topic or "", name is not None, name or "")


def _narrowed(at_place: dict[str, Fields | None]) -> dict[str, Fields | None]:
    """Without the fields that are equal everywhere, unless somebody knows nothing."""
    if any(fields is None for fields in at_place.values()):
        return at_place
    known = [fields for fields in at_place.values() if fields is not None]
    differing = {key for fields in known for key in fields if any(other.get(key) != fields[key] for other in known)}
    return {
        name_server: {key: value for key, value in (fields or {}).items() if key in differing}
        for name_server, fields in at_place.items()
    }


def _registration(data: BrokerData) -> Fields:
    fields = {"cluster": data.cluster, "enableActingMaster": str(data.enable_acting_master).lower()}
    if data.zone_name is not None:
        fields["zoneName"] = data.zone_name
    return fields | {f"brokerAddrs[{broker_id}]": addr for broker_id, addr in sorted(data.broker_addrs.items())}


def _route_facts(topic: str, route: TopicRouteData | None) -> dict[FactKey, Fields]:
    if route is None:
        return {FactKey(topic, None): {"route": "none"}}
    whole = {"route": "found"}
    if route.order_topic_conf is not None:
        whole["orderTopicConf"] = route.order_topic_conf
    for addr, servers in sorted(route.filter_server_table.items()):
        if servers:
            whole[f"filterServerTable[{addr}]"] = " ".join(servers)
    facts = {FactKey(topic, None): whole}
    for row in route.queue_datas:
        facts[FactKey(topic, row.broker_name)] = {
            "readQueueNums": str(row.read_queue_nums),
            "writeQueueNums": str(row.write_queue_nums),
            "perm": str(row.perm),
            "topicSysFlag": str(row.topic_sys_flag),
        }
    for name, info in (route.topic_queue_mapping_by_broker or {}).items():
        facts.setdefault(FactKey(topic, name), {})["queueMapping"] = _mapping(info)
    return facts


def _mapping(info: TopicQueueMappingInfo) -> str:
    ids = " ".join(f"{logical}:{physical}" for logical, physical in sorted((info.curr_id_map or {}).items()))
    return f"epoch {info.epoch}, scope {info.scope}, {info.total_queues} queues, {ids}"
