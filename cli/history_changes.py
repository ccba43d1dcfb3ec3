# SPDX-License-Identifier: Apache-2.0
"""`routelake history changes` and `diff`."""

from __future__ import annotations

import typer

from cli.credentials import HttpToken
from cli.history_options import (
    Broker,
    Cluster,
    Command,
    Csv,
    From,
    Gateway,
    Json,
    Limit,
    Outcome,
    Peer,
    TableName,
    Tables,
    To,
    Topic,
    User,
    Zone,
    form_of,
    limit_of,
    moments_of,
    source_of,
)
from schemas.errors import SetupError


def changes(
    context: typer.Context,
    from_: From = "",
    to: To = "",
    topic: Topic = "",
    broker: Broker = "",
    cluster: Cluster = "",
    table: TableName = "",
    command: Command = "",
    peer: Peer = "",
    user: User = "",
    outcome: Outcome = "",
    limit: Limit = None,
    as_json: Json = False,
    as_csv: Csv = False,
    http: Gateway = "",
    data_dir: Tables = None,
    http_token: HttpToken = "",
    time_zone: Zone = "",
) -> None:
    """Show everything that changed, newest first: when, by whom, what.

    In the table, rows that one cause changed alike in several topics are one line. JSON is an object a line.
    """
    from cli.history_show import show_changes
    from cli.history_times import time_zone as zone_of

    form, zone = form_of(as_json, as_csv), zone_of(time_zone)
    asked = {
        **moments_of(from_, to, time_zone),
        **_filters(topic, broker, cluster, table, command, peer, user, outcome),
    }
    limit = limit_of(limit, form)
    page = 1000 if limit is None else min(1000, limit + 1)
    show_changes(source_of(context, http, data_dir, http_token).changes(asked, page), form, limit, zone)


def diff(
    context: typer.Context,
    from_: From = "",
    to: To = "",
    topic: Topic = "",
    broker: Broker = "",
    cluster: Cluster = "",
    table: TableName = "",
    command: Command = "",
    peer: Peer = "",
    user: User = "",
    outcome: Outcome = "",
    limit: Limit = None,
    as_json: Json = False,
    as_csv: Csv = False,
    http: Gateway = "",
    data_dir: Tables = None,
    http_token: HttpToken = "",
    time_zone: Zone = "",
) -> None:
    """Show what is different between two moments, whatever happened in between.

    In the table, + is a row that only the later moment has, - one that only the earlier has, ~ one that both have, with
    other values. --command, --peer, --user and --outcome keep the rows that such a change touched.
    """
    from cli.history_show import show_diff
    from cli.history_times import time_zone as zone_of

    if not from_:
        raise SetupError("--from is missing: the earlier moment, such as -2h or 'yesterday 02:55'")
    form, zone = form_of(as_json, as_csv), zone_of(time_zone)
    asked = {
        **moments_of(from_, to, time_zone),
        **_filters(topic, broker, cluster, table, command, peer, user, outcome),
    }
    show_diff(source_of(context, http, data_dir, http_token).diff(asked), form, limit_of(limit, form), zone)


def _filters(
    topic: str, broker: str, cluster: str, table: str, command: str, peer: str, user: str, outcome: str
) -> dict[str, str]:
    named = {
        **{"topic": topic, "brokerName": broker, "cluster": cluster, "tableName": table},
        **{"command": command, "peer": peer, "user": user, "outcome": outcome},
    }
    return {name: value for name, value in named.items() if value}


def register(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("changes")(changes)
    group.command("diff")(diff)
