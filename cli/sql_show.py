# SPDX-License-Identifier: Apache-2.0
"""The statements of `routelake sql`, one after the other, and what they answer."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb

from cli.output import Form, json_value, warn, write_table
from lake.history.report_duckdb import MACROS, DuckLake
from lake.history.sql_views import VIEWS
from schemas.errors import RoutelakeError, one_line
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES

_TABLE_ROWS: Final = 1000
_FETCHED: Final = 1000
_COUNT: Final = [("Count", "BIGINT")]


class StatementError(RoutelakeError):
    """A statement cannot be run; says what DuckDB says, in one line."""


def run_sql(lake_dir: Path, query: str, form: Form, limit: int | None) -> None:
    """Run the statements of a query, or of standard input, which may be a person's terminal.

    At a terminal, a statement that fails is reported and the next one asked for.

    Raises:
        SetupError: There is no lake.
        StatementError: The first statement that failed; those before it have run.
    """
    with DuckLake(lake_dir) as lake:
        if query or not sys.stdin.isatty():
            _run(lake, query or sys.stdin.read(), form, limit)
            return
        print(f"Tables: {', '.join(table.name for table in (*ALL_TABLES, *INTERVAL_TABLES))}.", file=sys.stderr)
        print(f"Views: {', '.join(view.name for view in VIEWS)}. Macros: {', '.join(MACROS)}.", file=sys.stderr)
        print("End a statement with a semicolon, the session with Ctrl-D. Times are UTC.", file=sys.stderr)
        _converse(lake, form, limit)


def _run(lake: DuckLake, text: str, form: Form, limit: int | None) -> None:
    try:
        for statement in lake.connection.extract_statements(text):
            lake.connection.execute(statement)
            _print(lake.connection, form, limit)
    except duckdb.Error as error:
        raise StatementError(one_line(error)) from error


def _converse(lake: DuckLake, form: Form, limit: int | None) -> None:
    import readline  # noqa: F401 (gives input() its history and editing)

    text = ""
    while True:
        try:
            text += input("    > " if text else "sql > ") + "\n"
            if text.rstrip().endswith(";"):
                whole, text = text, ""
                lake.refresh()
                _run(lake, whole, form, limit)
        except StatementError as error:
            warn(str(error))
        except KeyboardInterrupt:
            print(file=sys.stderr)
            text = ""
        except EOFError:
            print(file=sys.stderr)
            return


def _print(connection: duckdb.DuckDBPyConnection, form: Form, limit: int | None) -> None:
    """The rows of the statement that was run last, if it has any."""
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
    """For `csv_line`: numbers as numbers, of whatever size."""
    if isinstance(value, Decimal) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value) if isinstance(value, float) else json_value(value)
