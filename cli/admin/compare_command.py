# SPDX-License-Identifier: Apache-2.0
"""compare: NameServers, stock or routelake, against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

from cli.admin import answers, requests, values
from cli.admin.clusters import Server
from cli.admin.command import command
from cli.admin.compare import Difference, Fields, Snapshot, differences
from cli.admin.report import Report
from cli.admin.session import Admin
from cli.foreign_text import printable
from remoting.errors import AnswerError
from schemas.codes import ResponseCode
from schemas.errors import SetupError
from schemas.route import TopicRouteData

_AT_A_TIME: Final = 64
"""Route requests on one connection before their answers."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "compare")(compare)


async def compare(
    admin: Admin,
    topic: Annotated[
        list[str] | None, typer.Option("-t", "--topic", help="This topic only; may be repeated. All without it.")
    ] = None,
) -> Report:
    """Compare the NameServers of -n: brokers, then topics. Exit code 0 only if they agree."""
    topics = [values.not_blank(name, "-t") for name in topic or []]
    servers = admin.name_servers
    if len(servers) < 2:
        raise SetupError("compare needs at least two NameServers: -n 'host:9876;other:9876'")
    snapshots = await asyncio.gather(*(_snapshot(admin, server, topics) for server in servers))
    found = differences(snapshots)
    return Report(
        tables=[table for table in (_brokers(servers, found), _topics(servers, found)) if table[1]],
        lines=[_conclusion(snapshots, found)],
        data={
            "same": not found,
            "nameServers": [server.address for server in servers],
            "brokers": [_document(one) for one in found if one.place.topic is None],
            "topics": [_document(one) for one in found if one.place.topic is not None],
        },
        failed=bool(found),
    )


async def _snapshot(admin: Admin, server: Server, topics: Sequence[str]) -> Snapshot:
    """Raises ClientError, AnswerBodyError."""
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


_Table = tuple[Sequence[str], list[Sequence[object]]]


def _brokers(servers: Sequence[Server], found: Iterable[Difference]) -> _Table:
    rows = [(one.place.broker_name or "", *map(_cell, one.found.values())) for one in found if one.place.topic is None]
    return ("Broker", *(server.address for server in servers)), list(rows)


def _topics(servers: Sequence[Server], found: Iterable[Difference]) -> _Table:
    rows = [
        (one.place.topic, one.place.broker_name or "(all)", *map(_cell, one.found.values()))
        for one in found
        if one.place.topic is not None
    ]
    return ("Topic", "Broker", *(server.address for server in servers)), list(rows)


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
