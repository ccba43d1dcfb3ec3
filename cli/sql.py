# SPDX-License-Identifier: Apache-2.0
"""`routelake sql` and `routelake spark-sql`: DuckDB or Spark on the tables, for one query or a session."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.data_options import DataDir, LakeUrl
from cli.fold_options import DriverMemory
from cli.output import Form, Output, json_value, warn, write_table
from cli.transfer import lake_folder
from runtime.java import use_java
from schemas.errors import RoutelakeError, one_line
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES

if TYPE_CHECKING:
    import duckdb

_TABLE_ROWS: Final = 1000
_FETCHED: Final = 1000
_COUNT: Final = [("Count", "BIGINT")]


def sql(
    query: Annotated[str, typer.Argument(help="SQL statements. Default: read them from standard input.")] = "",
    data_dir: DataDir = Path("data"),
    lake: LakeUrl = "",
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Maximum rows of each result. Default: 1,000 in a table, else all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print one CSV line per row.")] = False,
) -> None:
    """Query the tables in DuckDB's SQL. Without a query, start a session at a terminal.

    It only reads. routelake can run meanwhile. All tables are at the newest epoch.
    docs/how-to/analyze/queries.md has the views and macros (route_at, changes_between, live_at),
    docs/reference/tables.md has the columns. Tables at a URL are downloaded first, with their whole history.
    """
    from runtime.no_pandas import keep_pandas_out

    form = Form.of(as_json=as_json, as_csv=as_csv)
    keep_pandas_out()
    from lake.history.report_duckdb import MACROS, DuckLake
    from lake.history.sql_views import VIEWS

    with lake_folder(data_dir, lake) as folder, DuckLake(folder) as tables:

        def run(text: str) -> None:
            if _is_session(query):
                tables.refresh()
            _run_in_duckdb(tables.connection, text, form, limit)

        about = f"Views: {', '.join(view.name for view in VIEWS)}. Macros: {', '.join(MACROS)}."
        _run(query, _split_at_end, run, about)


def spark_sql(
    query: Annotated[str, typer.Argument(help="SQL statements. Default: read them from standard input.")] = "",
    data_dir: DataDir = Path("data"),
    lake: LakeUrl = "",
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.TABLE,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Maximum rows of each result. Default: 1,000 in a table, all in JSON."),
    ] = None,
    driver_memory: DriverMemory = "1g",
) -> None:
    """Query the tables in Spark SQL. Without a query, start a session at a terminal.

    It only reads. routelake can run meanwhile. JSON has one object per line. docs/reference/tables.md has the
    columns. Tables at a URL are downloaded first, with their whole history.
    """
    from pipelines.spark_sql import LakeSql, statements

    use_java()
    with lake_folder(data_dir, lake) as folder:
        if _is_session(query):
            print("Starting Spark ...", file=sys.stderr)
        with LakeSql(folder, driver_memory=driver_memory) as tables:
            _run(query, statements, lambda text: tables.print(text, as_json=output is Output.JSON, limit=limit))


def _is_session(query: str) -> bool:
    """Return True if statements are read from a terminal."""
    return not query and sys.stdin.isatty()


def _run(
    query: str, split: Callable[[str], tuple[list[str], str]], run: Callable[[str], None], about: str = ""
) -> None:
    """Run the statements of a query, or those of standard input, which may be a terminal.

    Args:
        query: The statements. Empty: they come from standard input.
        split: Function that divides a text into whole statements and the rest.
        run: Function that runs a statement and prints its result.
        about: Text about views and macros, in addition to the list of tables.

    Raises:
        RoutelakeError: A statement failed. The earlier statements have run. At a terminal, the error is only reported,
            and the session continues.
    """
    if not _is_session(query):
        whole, rest = split(query or sys.stdin.read())
        for statement in filter(None, (*whole, rest)):
            run(statement)
        return
    import readline  # noqa: F401 (gives input() its history and editing)

    tables = f"Tables: {', '.join(table.name for table in (*ALL_TABLES, *INTERVAL_TABLES))}."
    end = "End a statement with a semicolon, the session with Ctrl-D. Times are UTC."
    print(*filter(None, (tables, about, end)), sep="\n", file=sys.stderr)
    text = ""
    while True:
        try:
            line = input("    > " if text else "sql > ")
            whole, text = split(f"{text}\n{line}")
            for statement in whole:
                run(statement)
        except RoutelakeError as error:
            warn(str(error))
        except KeyboardInterrupt:
            print(file=sys.stderr)
            text = ""
        except EOFError:
            print(file=sys.stderr)
            return


def _split_at_end(text: str) -> tuple[list[str], str]:
    """Return the whole text if its last line ends a statement. DuckDB divides the text."""
    return ([text], "") if text.rstrip().endswith(";") else ([], text)


def _run_in_duckdb(connection: duckdb.DuckDBPyConnection, text: str, form: Form, limit: int | None) -> None:
    import duckdb

    try:
        for statement in connection.extract_statements(text):
            connection.execute(statement)
            _print(connection, form, limit)
    except duckdb.Error as error:
        raise RoutelakeError(one_line(error)) from error


def _print(connection: duckdb.DuckDBPyConnection, form: Form, limit: int | None) -> None:
    """Print the rows of the last statement, if it has any."""
    columns = [(str(each[0]), str(each[1])) for each in connection.description or []]
    if not columns or columns == _COUNT:
        return
    names = [name for name, _ in columns]
    if form is Form.TABLE:
        most = limit or _TABLE_ROWS
        rows = connection.fetchmany(most + 1)
        write_table(names, [[_cell(value) for value in row] for row in rows[:most]])
        if len(rows) > most:
            print(f"there are more rows. Set --limit to show more ({most})")
        return
    if form is Form.CSV:
        from lake.history.change_json import csv_line

        sys.stdout.write(csv_line(names))
        sys.stdout.writelines(csv_line(map(_csv_value, row)) for row in _rows(connection, limit))
        return
    for row in _rows(connection, limit):
        print(json.dumps(dict(zip(names, map(json_value, row), strict=True)), ensure_ascii=False))


def _rows(connection: duckdb.DuckDBPyConnection, limit: int | None) -> Iterator[tuple[Any, ...]]:
    left = limit
    while left is None or left > 0:
        rows = connection.fetchmany(_FETCHED if left is None else min(_FETCHED, left))
        if not rows:
            return
        yield from rows
        left = None if left is None else left - len(rows)


def _cell(value: Any) -> str:  # noqa: ANN401 (of any column)
    plain = json_value(value)
    return "" if plain is None else plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _csv_value(value: Any) -> Any:  # noqa: ANN401 (of any column)
    """Return a value for `csv_line`. Numbers of any size stay numbers."""
    if isinstance(value, Decimal) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value) if isinstance(value, float) else json_value(value)
