# SPDX-License-Identifier: Apache-2.0
"""Options that the commands of `routelake history` share, and what they come to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.credentials import resolve
from schemas.errors import SetupError

if TYPE_CHECKING:
    from cli.history_show import Form
    from cli.history_source import Source

_DEFAULT_GATEWAY: Final = "127.0.0.1:8080"

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

_TABLE_ROWS: Final = 100


def source_of(context: typer.Context, http: str, data_dir: Path | None, token: str) -> Source:
    """Where to ask: what the command line says before what variables say.

    Raises:
        SetupError: Both are said, there are no tables, or the token cannot be read.
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
    return HttpSource(http or _DEFAULT_GATEWAY, resolve("--token", token))


def _is_on_command_line(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def moments_of(from_: str, to: str, time_zone: str) -> dict[str, str]:
    """``from`` and ``to`` as HTTP has them, as far as they are said. Raises SetupError."""
    from cli.history_times import moment_text
    from cli.history_times import time_zone as zone_of

    now, zone = datetime.now(UTC), zone_of(time_zone)
    given = (("from", from_), ("to", to))
    return {name: moment_text(text, f"--{name}", now, zone) for name, text in given if text}


def form_of(as_json: bool, as_csv: bool) -> Form:
    """How to print. Raises SetupError."""
    from cli.history_show import Form

    if as_json and as_csv:
        raise SetupError("--json and --csv are both said: choose one")
    return Form.JSON if as_json else Form.CSV if as_csv else Form.TABLE


def limit_of(limit: int | None, form: Form) -> int | None:
    """How many rows; None: all."""
    from cli.history_show import Form

    return _TABLE_ROWS if limit is None and form is Form.TABLE else limit
