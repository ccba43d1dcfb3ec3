# SPDX-License-Identifier: Apache-2.0
"""compare: comparison of NameServers, stock or routelake.

The data of a NameServer is split into entries with the key (topic, brokerName). An entry without a topic is the
registration of a broker group. An entry without a broker is data of the whole topic. Two NameServers agree if all their
entries are equal.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple

import typer

from cli.admin import answers, requests, values
from cli.admin.clusters import Server
from cli.admin.report import CommandResult
from cli.admin.session import Admin
from cli.foreign_text import printable
from cli.output import Output
from remoting.errors import AnswerError, ClientError
from schemas.broker import TopicQueueMappingInfo
from schemas.codes import ResponseCode
from schemas.errors import SetupError
from schemas.route import BrokerData, ClusterInfo, TopicRouteData

Fields = dict[str, str]
"""Fields of one entry. A missing entry has no Fields at all, which is different from an empty mapping."""


class FactKey(NamedTuple):
    """Key of an entry. A registration has no ``topic`` (None), and data of a whole topic no ``broker_name``."""

    topic: str | None
    broker_name: str | None


class Snapshot(NamedTuple):
    """Data of one NameServer. A topic in its list without a route (TOPIC_NOT_EXIST) has the route None."""

    name_server: str
    clusters: ClusterInfo
    routes: Mapping[str, TopicRouteData | None]


class Difference(NamedTuple):
    """A key, and the fields of its entry at each NameServer. It has only the fields that differ.

    If the entry is missing at a NameServer (None), the fields of the others are complete.
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
    """Return all entries of one NameServer."""
    facts = {FactKey(None, name): _registration(data) for name, data in snapshot.clusters.broker_addr_table.items()}
    listed: dict[str, list[str]] = {}
    for cluster, names in sorted(snapshot.clusters.cluster_addr_table.items()):
        for name in names:
            listed.setdefault(name, []).append(cluster)
    for name, clusters in listed.items():
        fields = facts.setdefault(FactKey(None, name), {})
        if clusters != [fields.get("cluster")]:  # in two clusters, or in another one than it has registered
            fields["clusters"] = " ".join(clusters)
    for topic, route in snapshot.routes.items():
        facts.update(_route_facts(topic, route))
    return facts


def _order(place: FactKey) -> tuple[bool, str, bool, str]:
    topic, name = place
    return (topic is not None, topic or "", name is not None, name or "")


def _narrowed(at_place: dict[str, Fields | None]) -> dict[str, Fields | None]:
    """Remove the fields that are equal everywhere, unless the entry is missing at a NameServer."""
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


_AT_A_TIME: Final = 64
"""Maximum number of unanswered route requests on one connection."""
_NO_ANSWER: Final = "no answer"


async def compare(
    admin: Admin,
    topic: Annotated[
        list[str] | None,
        typer.Option("-t", "--topic", help="Compare only this topic. May be repeated. Default: all topics."),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Compare again and again. End with exit code 1 at the first lasting difference."),
    ] = False,
    every_s: Annotated[
        float, typer.Option("--every-s", min=0.1, max=3_600, help="With --watch: seconds between two comparisons.")
    ] = 5.0,
    settle_s: Annotated[
        float,
        typer.Option(
            "--settle-s",
            min=0,
            max=86_400,
            help="With --watch: seconds after which a difference is a lasting one. Brokers register every 30 s.",
        ),
    ] = 60.0,
    for_s: Annotated[
        float,
        typer.Option("--for-s", min=0, help="With --watch: seconds after which to end, with exit code 0. 0: never."),
    ] = 0.0,
) -> CommandResult:
    """Compare the NameServers of -n: brokers, then topics. Exit code 0 only if they agree.

    With --watch, a NameServer that does not answer is a difference, too.
    """
    topics = [values.not_blank(name, "-t") for name in topic or []]
    if len(admin.name_servers) < 2:
        raise SetupError("compare needs at least two NameServers: -n 'host:9876;other:9876'")
    if watch:
        return await _watched(admin, topics, every_s=every_s, settle_s=settle_s, for_s=for_s)
    return _report(admin.name_servers, *await _compared(admin, topics))


async def _watched(
    admin: Admin, topics: Sequence[str], *, every_s: float, settle_s: float, for_s: float
) -> CommandResult:
    """Compare until a difference has lasted for `settle_s`, or until `for_s` is over. Print each change of the result.

    Raises:
        ClientError: A NameServer has not answered for `settle_s`.
    """
    now = asyncio.get_running_loop().time
    began = now()
    since: dict[FactKey | str, float] = {}
    """Start of each present difference, by its key or `_NO_ANSWER`, in seconds."""
    shown = ""
    while True:
        snapshots: list[Snapshot] = []
        found: list[Difference] = []
        failure: ClientError | None = None
        try:
            snapshots, found = await _compared(admin, topics)
            result = _conclusion(snapshots, found)
        except ClientError as error:
            failure, result = error, str(error)
        keys = {one.place for one in found} if failure is None else {*since, _NO_ANSWER}
        since = {key: since.get(key, now()) for key in keys}
        if result != shown:
            shown = result
            time = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            print(
                f"{time} {printable(result)}",
                file=sys.stderr if admin.output is Output.JSON else sys.stdout,
                flush=True,
            )
        lasting = {key for key, at in since.items() if now() - at >= settle_s}
        if lasting and failure is not None:
            raise failure
        if lasting:
            return _report(admin.name_servers, snapshots, [one for one in found if one.place in lasting])
        if for_s and now() - began >= for_s:
            if failure is not None:
                raise failure
            return _report(admin.name_servers, snapshots, found)
        await asyncio.sleep(every_s)


async def _compared(admin: Admin, topics: Sequence[str]) -> tuple[list[Snapshot], list[Difference]]:
    """Ask every NameServer. Raises ClientError, AnswerBodyError."""
    snapshots = await asyncio.gather(*(_snapshot(admin, server, topics) for server in admin.name_servers))
    return snapshots, differences(snapshots)


def _report(servers: Sequence[Server], snapshots: Sequence[Snapshot], found: Sequence[Difference]) -> CommandResult:
    addresses = [server.address for server in servers]
    brokers = [one for one in found if one.place.topic is None]
    topics = [one for one in found if one.place.topic is not None]
    rows = [(one.place.broker_name or "", *map(_cell, one.found.values())) for one in brokers]
    topic_rows = [
        (one.place.topic, one.place.broker_name or "(all)", *map(_cell, one.found.values())) for one in topics
    ]
    return CommandResult(
        tables=[(("Broker", *addresses), list(rows)), (("Topic", "Broker", *addresses), list(topic_rows))],
        lines=[_conclusion(snapshots, found)],
        data={
            "same": not found,
            "nameServers": addresses,
            "brokers": list(map(_document, brokers)),
            "topics": list(map(_document, topics)),
        },
        failed=bool(found),
    )


async def _snapshot(admin: Admin, server: Server, topics: Sequence[str]) -> Snapshot:
    """Read the data of one NameServer. Raises ClientError, AnswerBodyError."""
    info = answers.cluster_info((await admin.read(server, requests.get_broker_cluster_info())).body)
    listed = topics or answers.topic_list((await admin.read(server, requests.get_all_topic_list())).body)
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def route(topic: str) -> TopicRouteData | None:
        async with gate:
            try:
                return answers.topic_route((await admin.read(server, requests.get_routeinfo_by_topic(topic))).body)
            except AnswerError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return None

    routes = dict(zip(listed, await asyncio.gather(*map(route, listed)), strict=True))
    if topics:
        routes = {topic: found for topic, found in routes.items() if found is not None}
    return Snapshot(server.address, info, routes)


def _cell(fields: Fields | None) -> str:
    if fields is None:
        return "-"
    return "\n".join(printable(f"{key}={value}") for key, value in fields.items()) or "(not set)"


def _conclusion(snapshots: Sequence[Snapshot], found: Sequence[Difference]) -> str:
    brokers = {name for snapshot in snapshots for name in snapshot.clusters.broker_addr_table}
    topics = {topic for snapshot in snapshots for topic in snapshot.routes}
    compared = f"{_count(len(brokers), 'broker')} and {_count(len(topics), 'topic')} on {len(snapshots)} NameServers"
    if not found:
        return f"{compared}: no difference."
    differing_brokers = {one.place.broker_name for one in found if one.place.topic is None}
    differing_topics = {one.place.topic for one in found if one.place.topic is not None}
    differing = f"{_count(len(differing_brokers), 'broker')} and {_count(len(differing_topics), 'topic')}"
    return f"{compared}; different: {differing}."


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _document(one: Difference) -> dict[str, object]:
    places = {} if one.place.topic is None else {"topic": one.place.topic}
    return {**places, "brokerName": one.place.broker_name, "nameServers": one.found}
