# SPDX-License-Identifier: Apache-2.0
"""Options that the commands of `routelake history` share, and their values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli.client_options import HttpToken, secret
from cli.data_options import lake_place
from cli.options import Options, no_password, option, usable_folder
from cli.output import Form
from schemas.errors import SetupError

if TYPE_CHECKING:
    from cli.history.source import Source

_DEFAULT_GATEWAY: Final = "127.0.0.1:8080"

From = Annotated[
    str,
    typer.Option("--from", metavar="TIME", help="After this point in time: an epoch, -2h, 'yesterday 02:55', a time."),
]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Up to and including this point in time. Default: now.")]

_TABLE_ROWS: Final = 100


@dataclass(frozen=True, kw_only=True)
class Asking(Options):
    """The options of where to ask."""

    http: Annotated[
        str,
        option(
            envvar="ROUTELAKE_GATEWAY",
            metavar="HOST:PORT",
            help=f"Gateway to ask, also https://HOST:PORT. Default: {_DEFAULT_GATEWAY}, if no tables are named.",
        ),
    ] = ""
    data_dir: Annotated[
        Path | None,
        option(
            metavar="FOLDER", callback=usable_folder, help="Read the tables in this data directory, without a gateway."
        ),
    ] = None
    lake: Annotated[
        str,
        typer.Option(
            "--lake",
            metavar="URL",
            callback=no_password,
            help="Read the tables at this URL, without a gateway: s3://, gs:// or az://bucket/prefix.",
        ),
    ] = ""
    http_token: HttpToken = ""

    def source(self, context: typer.Context) -> Source:
        """Return the place to ask. Options on the command line win over variables.

        Raises:
            SetupError: The options contradict each other, there are no tables, or the token cannot be read.
        """
        from cli.history.source import of_gateway, of_tables

        data_dir = self.data_dir
        if self.lake:
            if any(is_on_command_line(context, name) for name in ("http", "data_dir")):
                raise SetupError("--lake cannot be used with --http or --data-dir. Choose one")
            data_dir = Path()
        elif self.http and data_dir is not None:
            by_hand = [name for name in ("http", "data_dir") if is_on_command_line(context, name)]
            if len(by_hand) != 1:
                both = (
                    "--http and --data-dir cannot be used together"
                    if by_hand
                    else "ROUTELAKE_GATEWAY and ROUTELAKE_DATA_DIR are both set"
                )
                raise SetupError(f"{both}. Use --http to ask a gateway, or --data-dir to read the tables")
            data_dir = None if by_hand == ["http"] else data_dir
        if data_dir is not None:
            from runtime.no_pandas import keep_pandas_out

            keep_pandas_out()
            return of_tables(lake_place(data_dir, self.lake))
        return of_gateway(self.http or _DEFAULT_GATEWAY, secret("--http-token", self.http_token))


def is_on_command_line(context: typer.Context, name: str) -> bool:
    """True if an option is on the command line, and not from a variable or a default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@dataclass(frozen=True, kw_only=True)
class ShownWhole(Options):
    """The options of how to print an answer."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, as HTTP does.")] = False
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False
    time_zone: Annotated[
        str,
        option(
            metavar="NAME",
            help="Time zone of input and output, for example UTC or Asia/Shanghai. Default: this machine's.",
        ),
    ] = ""

    @property
    def form(self) -> Form:
        """Form of the output: a table, JSON or CSV. Raises SetupError."""
        return Form.of(as_json=self.as_json, as_csv=self.as_csv)

    @property
    def zone(self) -> tzinfo | None:
        """Time zone of the output. None: this machine's. Raises SetupError."""
        from cli.history.show import time_zone

        return time_zone(self.time_zone)

    def window(self, from_: str, to: str) -> dict[str, str]:
        """Return ``from`` and ``to`` as HTTP parameters, if they are set. Raises SetupError."""
        from cli.history.show import point_in_time

        now, zone = datetime.now(UTC), self.zone
        given = (("from", from_), ("to", to))
        return {name: point_in_time(text, f"--{name}", now, zone) for name, text in given if text}


@dataclass(frozen=True, kw_only=True)
class Shown(ShownWhole):
    """The options of how to print rows."""

    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Maximum number of rows. Default: 100 in a table, all in JSON or CSV."),
    ] = None

    @property
    def rows(self) -> int | None:
        """Maximum number of rows. None: all."""
        return _TABLE_ROWS if self.limit is None and not (self.as_json or self.as_csv) else self.limit


@dataclass(frozen=True, kw_only=True)
class Filters(Options):
    """The options that filter changes, as `GET /v1/changes` has them."""

    topic: Annotated[str, typer.Option("--topic", help="Only rows of this topic, and commands for it.")] = ""
    broker: Annotated[str, typer.Option("--broker", metavar="BROKERNAME", help="Only of this broker group.")] = ""
    cluster: Annotated[str, typer.Option("--cluster", help="Only of broker groups that ever registered into it.")] = ""
    table: Annotated[str, typer.Option("--table", metavar="NAME", help="Only changed rows of this state table.")] = ""
    command: Annotated[
        str,
        typer.Option(
            "--command", metavar="NAME", help="Only this command: a RequestCode name, BROKER_EXPIRED and others."
        ),
    ] = ""
    peer: Annotated[
        str, typer.Option("--peer", metavar="ADDRESS", help="Only from this client address, with or without port.")
    ] = ""
    user: Annotated[str, typer.Option("--user", help="Only by this user.")] = ""
    outcome: Annotated[str, typer.Option("--outcome", help="Only applied, unchanged or rejected.")] = ""

    def query(self) -> dict[str, str]:
        """Return the filters that are set, by their names in HTTP."""
        return {_HTTP_NAMES.get(name, name): value for name, value in asdict(self).items() if value}


_HTTP_NAMES: Final = {"broker": "brokerName", "table": "tableName"}
