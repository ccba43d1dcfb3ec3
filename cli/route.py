# SPDX-License-Identifier: Apache-2.0
"""`routelake route`: a topic's route from any NameServer, once or with every change."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cli.client_options import ClientOptions, HttpToken, secret
from cli.foreign_text import printable
from cli.options import NamesrvOrHttp, namesrv_source, with_options
from cli.output import Output
from clients.addresses import namesrv_addresses
from clients.broker.topic_config import perm_text
from schemas.broker import MASTER_ID
from schemas.errors import SetupError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from clients.route.cache import RouteChange
    from clients.route.settings import RouteSettings
    from schemas.route import TopicRouteData

_WIDTH_OF_A_FILE: Final = 500
"""Width of the output if it is not a terminal. It is large, so that no line is wrapped and grep finds all text."""


@with_options
def route(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    namesrv_addr: NamesrvOrHttp = "",
    watch: Annotated[bool, typer.Option("--watch", help="Keep running, and show every change.")] = False,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Namespace to put before the topic.")] = None,
    http_token: HttpToken = "",
    *,
    client: ClientOptions,
) -> None:
    """Show a topic's route, as clients get it.

    If a NameServer does not answer, the next one is asked. With --watch, a routelake that is asked over HTTP sends each
    change at once. Other NameServers are asked every 30 s. JSON is the route as in routelake's HTTP API. With --watch,
    JSON has one line per change, {"time", "topic", "route"}. The route of a topic that does not exist is null.
    """
    from clients.route.settings import RouteSettings
    from runtime.logs import configure

    configure("route")
    if not topic.strip():
        raise SetupError("TOPIC is empty. Name a topic")
    addresses = namesrv_addresses(namesrv_addr, namesrv_source(namesrv_addr), http=True)
    settings = RouteSettings(
        namespace=namespace,
        http_token=secret("--http-token", http_token) or None,
        credentials=client.keys(),
        tls=client.encryption(),
    )
    try:
        asyncio.run(_show(topic, addresses, settings, watch=watch, as_json=output is Output.JSON))
    except KeyboardInterrupt:
        raise typer.Exit(0 if watch else 130) from None


async def _show(topic: str, addresses: list[str], settings: RouteSettings, *, watch: bool, as_json: bool) -> None:
    from rich.text import Text

    from cli.plain_console import PlainConsole
    from clients.route.client import RouteClient

    console = PlainConsole(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    async with RouteClient(addresses, settings) as client:
        if not watch:
            route = await client.route(topic)
            if as_json:
                _write(_json(route))
            else:
                console.print(as_table(client.with_namespace(topic), route, client.name_server))
            return
        async for change in client.watch(topic):
            time = datetime.now(UTC)
            if as_json:
                _write(_line(time, change))
            else:
                console.print(Text(f"{time:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z", style="bold"))
                console.print(as_table(change.topic, change.new, client.name_server))


def as_table(topic: str, route: TopicRouteData | None, name_server: str | None) -> RenderableType:
    """Return a route as a table with a line for each broker group, and with its other data."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from clients.route.queues import static_topic_end_points

    if route is None:
        return Text(f"{printable(topic)} is not known to {name_server}\n")
    rows = {row.broker_name: row for row in route.queue_datas}
    table = Table(title=f"{printable(topic)}, from {name_server}", title_justify="left", box=None, padding=(0, 3, 0, 0))
    for name in ("broker", "cluster", "perm", "write", "read", "master", "slaves"):
        table.add_column(name, justify="right" if name in ("write", "read") else "left", overflow="fold")
    groups = {group.broker_name: group for group in route.broker_datas}
    for name in sorted(rows | groups):
        row, group = rows.get(name), groups.get(name)
        addrs = {} if group is None else group.broker_addrs
        cells = (
            name,
            "-" if group is None else group.cluster,
            "-" if row is None else perm_text(row.perm)[:2],
            "-" if row is None else str(row.write_queue_nums),
            "-" if row is None else str(row.read_queue_nums),
            addrs.get(MASTER_ID, "none"),
            " ".join(f"{number}={addr}" for number, addr in sorted(addrs.items()) if number != MASTER_ID) or "-",
        )
        table.add_row(*map(printable, cells))
    beside = []
    if route.order_topic_conf is not None:
        beside.append(f"order configuration: {route.order_topic_conf}")
    beside += [
        f"logical queue {queue.broker_name} {queue.queue_id}: on {holder}"
        for queue, holder in static_topic_end_points(topic, route).items()
    ]
    beside += [f"filter servers of {addr}: {' '.join(servers)}" for addr, servers in route.filter_server_table.items()]
    return Group(table, Text("\n".join([*map(printable, beside), ""])))


def _line(time: datetime, change: RouteChange) -> bytes:
    route = msgspec.Raw(b"null" if change.new is None else _json(change.new))
    return msgspec.json.encode({"time": time, "topic": change.topic, "route": route})


def _json(route: TopicRouteData) -> bytes:
    from schemas.rocketmq_json import encode_topic_route

    return encode_topic_route(route, numeric_keys=False)


def _write(line: bytes) -> None:
    print(line.decode(), flush=True)
