# SPDX-License-Identifier: Apache-2.0
"""Options that the commands of `routelake history` share, and what they come to."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from cli.credentials import HttpToken, secret
from cli.groups import Options, with_options
from cli.options import lake_place, no_password, option, usable_folder
from schemas.errors import SetupError

if TYPE_CHECKING:
    from cli.history.show import Form
    from cli.history.source import Source

_DEFAULT_GATEWAY: Final = "127.0.0.1:8080"

Gateway = Annotated[
    str,
    typer.Option(
        "--http",
        envvar="ROUTELAKE_GATEWAY",
        metavar="HOST:PORT",
        callback=no_password,
        help=f"Ask this gateway, also https://HOST:PORT. {_DEFAULT_GATEWAY} where no tables are named.",
    ),
]
Tables = Annotated[
    Path | None,
    option("--data-dir", metavar="FOLDER", callback=usable_folder, help="Read the tables there, without a gateway."),
]
TablesAt = Annotated[
    str,
    typer.Option(
        "--lake",
        metavar="URL",
        callback=no_password,
        help="Read the tables there, without a gateway: s3://, gs:// or az://bucket/prefix.",
    ),
]
From = Annotated[
    str,
    typer.Option("--from", metavar="MOMENT", help="After this moment: an epoch, -2h, 'yesterday 02:55', a time."),
]
To = Annotated[str, typer.Option("--to", metavar="MOMENT", help="Up to and including this moment; else now.")]
Zone = Annotated[
    str,
    option(
        "--time-zone",
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


class Asking(NamedTuple):
    """What was said of where to ask."""

    context: typer.Context
    http: str
    data_dir: Path | None
    lake: str
    token: str

    def source(self) -> Source:
        """Where to ask: what the command line says before what variables say.

        Raises:
            SetupError: Both are said, there are no tables, or the token cannot be read.
        """
        from cli.history.source import HttpSource, LakeSource

        data_dir = self.data_dir
        if self.lake:
            if any(is_on_command_line(self.context, name) for name in ("http", "data_dir")):
                raise SetupError("--lake is said beside --http or --data-dir: name one place to ask")
            data_dir = Path()
        elif self.http and data_dir is not None:
            by_hand = [name for name in ("http", "data_dir") if is_on_command_line(self.context, name)]
            if len(by_hand) != 1:
                both = (
                    "--http and --data-dir are both said"
                    if by_hand
                    else "ROUTELAKE_GATEWAY and ROUTELAKE_DATA_DIR are both set"
                )
                raise SetupError(f"{both}: say --http to ask a gateway, or --data-dir to read the tables")
            data_dir = None if by_hand == ["http"] else data_dir
        if data_dir is not None:
            from lake.history.no_pandas import keep_pandas_out

            keep_pandas_out()
            return LakeSource(lake_place(data_dir, self.lake))
        return HttpSource(self.http or _DEFAULT_GATEWAY, secret("--http-token", self.token))


def _asking(values: dict[str, Any]) -> Asking:
    return Asking(values["context"], *(values.pop(name) for name, _, _ in _ASKING))


def is_on_command_line(context: typer.Context, name: str) -> bool:
    """Whether an option was said there, and not by a variable or not at all."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


class Shown(NamedTuple):
    """How to print an answer.

    Attributes:
        form: A table, JSON or CSV.
        limit: How many rows; None: all.
        time_zone: Of times, as it was said.
    """

    form: Form
    limit: int | None
    time_zone: str

    @property
    def zone(self) -> tzinfo | None:
        """Of times; None: this machine's. Raises SetupError."""
        from cli.history.times import time_zone

        return time_zone(self.time_zone)

    def moments(self, from_: str, to: str) -> dict[str, str]:
        """``from`` and ``to`` as HTTP has them, as far as they are said. Raises SetupError."""
        from cli.history.times import moment_text

        now, zone = datetime.now(UTC), self.zone
        given = (("from", from_), ("to", to))
        return {name: moment_text(text, f"--{name}", now, zone) for name, text in given if text}


def _shown(values: dict[str, Any]) -> Shown:
    """Raises SetupError."""
    from cli.history.show import Form

    as_json, as_csv = values.pop("as_json"), values.pop("as_csv")
    if as_json and as_csv:
        raise SetupError("--json and --csv are both said: choose one")
    form = Form.JSON if as_json else Form.CSV if as_csv else Form.TABLE
    limit = values.pop("limit", None)
    return Shown(form, _TABLE_ROWS if limit is None and form is Form.TABLE else limit, values.pop("time_zone"))


def _filters(values: dict[str, Any]) -> dict[str, str]:
    """As HTTP has them, as far as they are said."""
    said = {_HTTP_NAMES.get(name, name): values.pop(name) for name, _, _ in _FILTERS}
    return {name: value for name, value in said.items() if value}


_ASKING: Final[Options] = (
    *(("http", Gateway, ""), ("data_dir", Tables, None), ("lake", TablesAt, "")),
    ("http_token", HttpToken, ""),
)
_SHOWN: Final[Options] = (("as_json", Json, False), ("as_csv", Csv, False), ("time_zone", Zone, ""))
_FILTERS: Final[Options] = (
    *(("topic", Topic, ""), ("broker", Broker, ""), ("cluster", Cluster, ""), ("table", TableName, "")),
    *(("command", Command, ""), ("peer", Peer, ""), ("user", User, ""), ("outcome", Outcome, "")),
)
_HTTP_NAMES: Final = {"broker": "brokerName", "table": "tableName"}

with_asking = with_options("asking", _ASKING, _asking)
"""Gives a command ``asking``, an `Asking`; it has a ``context``."""
with_shown = with_options("shown", (("limit", Limit, None), *_SHOWN), _shown)
"""Gives a command ``shown``, a `Shown`."""
with_shown_whole = with_options("shown", _SHOWN, _shown)
"""The same without --limit."""
with_filters = with_options("filters", _FILTERS, _filters)
"""Gives a command ``filters``, parameters of `GET /v1/changes`."""
