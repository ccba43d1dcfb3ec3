# SPDX-License-Identifier: Apache-2.0
"""`routelake route`: a topic's route from any NameServer, once or with every change."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.client_options import ClientOptions, HttpToken, secret
from cli.options import NamesrvOrHttp, with_options
from cli.output import Output


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
    from cli.route_show import show_route
    from clients.route.settings import RouteSettings
    from runtime.logs import configure

    configure("route")
    raise typer.Exit(
        show_route(
            topic,
            namesrv_addr,
            RouteSettings(
                namespace=namespace,
                http_token=secret("--http-token", http_token) or None,
                credentials=client.keys(),
                tls=client.encryption(),
            ),
            watch=watch,
            as_json=output is Output.JSON,
        )
    )
