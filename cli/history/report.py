# SPDX-License-Identifier: Apache-2.0
"""`routelake history report`: reports on brokers, topics and clients. See docs/how-to/analyze/reports.md."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.client_options import HttpToken, secret
from cli.data_options import DataDir, LakeUrl, check_there
from cli.fold_options import DriverMemory
from cli.history.options import From, Shown, To, is_on_command_line
from cli.options import no_password, with_options
from cli.output import Form, json_value, write_table
from cli.transfer import lake_folder
from schemas.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Sequence

_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Name(StrEnum):
    """Names of the reports, as in `lake.history.reports.REPORTS`. The help does not import that module."""

    FLAPPING = "flapping"
    UNAVAILABLE = "unavailable"
    CHURN = "churn"
    EXPIRY = "expiry"
    REFUSED = "refused"
    PEERS = "peers"
    ALIVE = "alive"
    UNEVEN = "uneven"


class Engine(StrEnum):
    """Engine of the query."""

    DUCKDB = "duckdb"
    SPARK = "spark"


@with_options
def report(
    context: typer.Context,
    name: Annotated[Name, typer.Argument(help="Name of the report.")],
    from_: From = "",
    to: To = "",
    times: Annotated[
        int, typer.Option("--times", min=0, help="For flapping: brokers that came back more than this many times.")
    ] = 2,
    *,
    shown: Shown,
    as_html: Annotated[bool, typer.Option("--html", help="Print one self-contained HTML page with a chart.")] = False,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="Query engine: DuckDB (a second) or a Spark job. Both give the same rows."),
    ] = Engine.DUCKDB,
    data_dir: DataDir = Path("data"),
    lake: LakeUrl = "",
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            callback=no_password,
            help="Ask this gateway instead of the tables, also https://HOST:PORT.",
        ),
    ] = "",
    http_token: HttpToken = "",
    driver_memory: DriverMemory = "1g",
) -> None:
    """Report on a window of time, from the tables. Default: the whole history.

    flapping: brokers that left and came back. unavailable: topics without a writable queue, and for how long. churn:
    topics created and deleted per hour. expiry: brokers removed after a heartbeat timeout or a lost connection.
    refused: registrations and commands that were refused. peers: clients with the most changes. alive: number of live
    brokers. uneven: topics with different queues or perm on their brokers, at the end. Tables at a URL are downloaded
    first, with their whole history.
    """
    from cli.history.show import local_text, zone_text
    from lake.history.reports import BY_NAME, query_of

    if as_html and shown.form is not Form.TABLE:
        raise SetupError("--html cannot be used with --json or --csv. Choose one")
    zone = shown.zone
    asked = shown.window(from_, to)
    if http:
        if engine is Engine.SPARK or any(is_on_command_line(context, name) for name in ("data_dir", "lake")):
            raise SetupError(
                "--http cannot be used with --engine spark, --data-dir or --lake. Ask a gateway, or read the tables"
            )
        if name is Name.FLAPPING:
            asked["times"] = str(times)
        since, until, columns, rows = _from_gateway(http, secret("--http-token", http_token), name, asked, shown.rows)
        query = query_of(BY_NAME[name], since, until, times)
    else:
        if engine is Engine.DUCKDB:
            from runtime.no_pandas import keep_pandas_out

            keep_pandas_out()
        from lake.history.history import History
        from lake.history.report import window

        with lake_folder(data_dir, lake) as lake_dir:
            check_there(lake_dir, data_dir)
            since, until = window(History(lake_dir), asked.get("from"), asked.get("to"), dashes="--")
            query = query_of(BY_NAME[name], since, until, times)
            columns, rows = _rows(engine, lake_dir, query, driver_memory)
    begin = "the beginning" if since == _BEGINNING else local_text(since, zone)
    window_text = f"from {begin} to {local_text(until, zone)}, {zone_text(until, zone)}"
    if as_html:
        from lake.history.report_html import page

        text = partial(local_text, zone=zone)
        print(page(BY_NAME[name], columns, rows, window=window_text, query=query, time_text=text), end="")
        return
    _show(columns, rows, shown, window_text)


def _from_gateway(
    address: str, token: str, name: Name, asked: dict[str, str], limit: int | None
) -> tuple[datetime, datetime, list[str], list[tuple[Any, ...]]]:
    """Return start and end of the window, columns and rows of a report from a gateway.

    No more pages are read after ``limit`` rows are exceeded.

    Raises:
        RoutelakeError: The gateway does not answer, or the answer is an error.
    """
    from cli.history.source import of_gateway
    from lake.history.reports import TIME_COLUMNS

    def value_of(column: str, value: object) -> object:
        return datetime.fromisoformat(str(value)) if column in TIME_COLUMNS and value is not None else value

    rows: list[tuple[Any, ...]] = []
    page: dict[str, Any] = {}
    for page in of_gateway(address, token).report(name, asked):
        rows += [tuple(value_of(*cell) for cell in row.items()) for row in page["rows"]]
        if limit is not None and len(rows) > limit:
            break
    given = (page.get(each) for each in ("from", "to"))
    since, until = (_BEGINNING if time is None else datetime.fromisoformat(time) for time in given)
    return since, until, page["columns"], rows


def _rows(engine: Engine, lake_dir: Path, query: str, driver_memory: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    if engine is Engine.DUCKDB:
        from lake.history.report_duckdb import rows_by_duckdb

        return rows_by_duckdb(lake_dir, query)
    from pipelines.report_views import rows_by_spark

    return rows_by_spark(lake_dir, query, driver_memory)


def _show(columns: Sequence[str], rows: Sequence[tuple[Any, ...]], how: Shown, window: str) -> None:
    from cli.history.show import local_text, plain_text, write_rows

    shown, zone = rows[: how.rows], how.zone
    if how.form is not Form.TABLE:
        plain = [dict(zip(columns, map(json_value, row), strict=True)) for row in shown]
        write_rows([plain], how.form, tuple(columns))
        return

    def cell(value: object) -> str:
        if isinstance(value, datetime):
            return local_text(value, zone)
        return plain_text("" if value is None else str(value))

    if shown:
        write_table(columns, [tuple(map(cell, row)) for row in shown])
    else:
        print("there is nothing to report")
    print(window)
    if len(rows) > len(shown):
        print(f"there are {len(rows) - len(shown):,} more rows. Set --limit to show more ({how.rows})")


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("report")(report)
