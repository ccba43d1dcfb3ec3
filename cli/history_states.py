# SPDX-License-Identifier: Apache-2.0
"""`routelake history timeline` and `blame`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.credentials import HttpToken
from cli.history_options import Csv, Gateway, Json, Limit, Tables, Zone, form_of, limit_of, moments_of, source_of
from schemas.errors import SetupError


def timeline(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="The topic.")] = "",
    broker: Annotated[str, typer.Option("--broker", metavar="BROKERNAME", help="A broker group in its place.")] = "",
    from_: Annotated[str, typer.Option("--from", metavar="MOMENT", help="Only states that held then or later.")] = "",
    to: Annotated[str, typer.Option("--to", metavar="MOMENT", help="Only states that began by then.")] = "",
    limit: Limit = None,
    as_json: Json = False,
    as_csv: Csv = False,
    http: Gateway = "",
    data_dir: Tables = None,
    http_token: HttpToken = "",
    time_zone: Zone = "",
) -> None:
    """Show the states of a topic's route, or of a broker group, one after the other, newest first.

    From when to when, what began and ended it, and what it was. With --to, what had not ended by then has no end. JSON
    is an object a line.
    """
    from cli.history_show_states import show_timeline
    from cli.history_times import time_zone as zone_of

    if bool(topic) == bool(broker):
        raise SetupError("name a topic, or a broker group with --broker, and not both")
    form, zone = form_of(as_json, as_csv), zone_of(time_zone)
    kind, name = ("topics", topic) if topic else ("brokers", broker)
    asked = moments_of(from_, to, time_zone)
    pages = source_of(context, http, data_dir, http_token).timeline(kind, name, asked)
    show_timeline(pages, form, limit_of(limit, form), zone)


def blame(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    as_of: Annotated[
        str, typer.Option("--as-of", metavar="MOMENT", help="Of its route then: an epoch, -2h, 'yesterday 02:55'.")
    ] = "now",
    as_json: Json = False,
    as_csv: Csv = False,
    http: Gateway = "",
    data_dir: Tables = None,
    http_token: HttpToken = "",
    time_zone: Zone = "",
) -> None:
    """Show who set each field of a topic's route, when, by what."""
    from cli.history_show_states import show_blame
    from cli.history_times import moment_text
    from cli.history_times import time_zone as zone_of

    form, zone = form_of(as_json, as_csv), zone_of(time_zone)
    moment = moment_text(as_of, "--as-of", datetime.now(UTC), zone)
    show_blame(source_of(context, http, data_dir, http_token).blame(topic, moment), form, zone)


def register(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("timeline")(timeline)
    group.command("blame")(blame)
