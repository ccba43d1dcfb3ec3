# SPDX-License-Identifier: Apache-2.0
"""`routelake history`: who changed what, and what is different, from a running gateway or from the tables alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli import history_verify
from cli.usage import TEXT, Commands
from schemas.errors import SetupError

if TYPE_CHECKING:
    from cli.history_show import Form
    from cli.history_source import Source

history = typer.Typer(
    cls=Commands,
    help="The past: changes, what is different, and a proof. Asks a gateway (--http), or reads tables (--data-dir).",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **TEXT,
)

_DEFAULT_GATEWAY = "127.0.0.1:8080"

Gateway = Annotated[
    str,
    typer.Option(
        "--http",
        envvar="ROUTELAKE_GATEWAY",
        metavar="HOST:PORT",
        help=f"Ask this gateway, also https://HOST:PORT. {_DEFAULT_GATEWAY} where neither it nor --data-dir is said.",
    ),
]
Tables = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="ROUTELAKE_DATA_DIR", metavar="FOLDER", help="Read the tables there, without a gateway."
    ),
]
Token = Annotated[
    str, typer.Option("--http-token", envvar="ROUTELAKE_HTTP_TOKEN", help="Bearer token for routelake's HTTP.")
]
From = Annotated[
    str,
    typer.Option("--from", metavar="MOMENT", help="After this moment: an epoch, -2h, 'yesterday 02:55', a time."),
]
To = Annotated[str, typer.Option("--to", metavar="MOMENT", help="Up to and including this moment; else now.")]
Zone = Annotated[
    str,
    typer.Option(
        "--time-zone",
        envvar="ROUTELAKE_TIME_ZONE",
        metavar="NAME",
        help="Of times, those written and those shown: UTC, Asia/Shanghai; else this machine's.",
    ),
]
Topic = Annotated[str, typer.Option("--topic", help="Only rows of this topic, and commands that name it.")]
Broker = Annotated[str, typer.Option("--broker", metavar="BROKERNAME", help="Only of this broker group.")]
Cluster = Annotated[str, typer.Option("--cluster", help="Only of broker groups that ever registered into it.")]
TableName = Annotated[str, typer.Option("--table", metavar="NAME", help="Only changed rows of this state table.")]
Command = Annotated[
    str,
    typer.Option("--command", metavar="NAME", help="Only by this RequestCode name, or BROKER_EXPIRED and its like."),
]
Peer = Annotated[str, typer.Option("--peer", metavar="ADDRESS", help="Only from here, with a port or without.")]
User = Annotated[str, typer.Option("--user", help="Only by this user.")]
Outcome = Annotated[str, typer.Option("--outcome", help="Only applied, unchanged or rejected.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Rows; else 100 in a table, all as JSON or CSV.")]
Json = Annotated[bool, typer.Option("--json", help="JSON, as HTTP has it.")]
Csv = Annotated[bool, typer.Option("--csv", help="CSV.")]

_TABLE_ROWS = 100


@history.command("changes")
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
    http_token: Token = "",
    time_zone: Zone = "",
) -> None:
    """Show everything that changed, newest first: when, by whom, what.

    In the table, rows that one cause changed alike in several topics are one line. JSON is an object a line.
    """
    from cli.history_show import show_changes
    from cli.history_times import time_zone as zone_of

    form, zone = _form(as_json, as_csv), zone_of(time_zone)
    asked = {
        **_moments(from_, to, time_zone),
        **_filters(topic, broker, cluster, table, command, peer, user, outcome),
    }
    limit = _limit(limit, form)
    page = 1000 if limit is None else min(1000, limit + 1)
    show_changes(_source(context, http, data_dir, http_token).changes(asked, page), form, limit, zone)


@history.command("diff")
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
    http_token: Token = "",
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
    form, zone = _form(as_json, as_csv), zone_of(time_zone)
    asked = {
        **_moments(from_, to, time_zone),
        **_filters(topic, broker, cluster, table, command, peer, user, outcome),
    }
    show_diff(_source(context, http, data_dir, http_token).diff(asked), form, _limit(limit, form), zone)


def _source(context: typer.Context, http: str, data_dir: Path | None, token: str) -> Source:
    """Where to ask: what the command line says before what variables say.

    Raises:
        SetupError: Both are said, or there are no tables.
    """
    from cli.history_source import HttpSource, LakeSource

    if http and data_dir is not None:
        by_hand = [name for name in ("http", "data_dir") if _is_on_command_line(context, name)]
        if len(by_hand) != 1:
            raise SetupError("--http and --data-dir are both said: ask a gateway, or read the tables")
        data_dir = None if by_hand == ["http"] else data_dir
    if data_dir is not None:
        from api.view.no_pandas import keep_pandas_out

        keep_pandas_out()
        return LakeSource(data_dir)
    return HttpSource(http or _DEFAULT_GATEWAY, token)


def _is_on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _moments(from_: str, to: str, time_zone: str) -> dict[str, str]:
    from cli.history_times import moment_text
    from cli.history_times import time_zone as zone_of

    now, zone = datetime.now(UTC), zone_of(time_zone)
    given = (("from", from_), ("to", to))
    return {name: moment_text(text, f"--{name}", now, zone) for name, text in given if text}


def _filters(
    topic: str, broker: str, cluster: str, table: str, command: str, peer: str, user: str, outcome: str
) -> dict[str, str]:
    named = {
        **{"topic": topic, "brokerName": broker, "cluster": cluster, "tableName": table},
        **{"command": command, "peer": peer, "user": user, "outcome": outcome},
    }
    return {name: value for name, value in named.items() if value}


def _form(as_json: bool, as_csv: bool) -> Form:
    from cli.history_show import Form

    if as_json and as_csv:
        raise SetupError("--json and --csv are both said: choose one")
    return Form.JSON if as_json else Form.CSV if as_csv else Form.TABLE


def _limit(limit: int | None, form: Form) -> int | None:
    from cli.history_show import Form

    return _TABLE_ROWS if limit is None and form is Form.TABLE else limit


history_verify.register(history)


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(history, name="history")
