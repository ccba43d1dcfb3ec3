# SPDX-License-Identifier: Apache-2.0
"""The statements of `routelake sql`, one after the other, and what they answer."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb

from cli.admin.report import write_table
from cli.history.show import Form
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
            print(f"routelake: {error}", file=sys.stderr)
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
        print(json.dumps(dict(zip(names, map(_plain, row), strict=True)), ensure_ascii=False))


def _rows(connection: duckdb.DuckDBPyConnection, limit: int | None) -> Iterator[tuple[Any, ...]]:
    left = limit
    while left is None or left > 0:
        rows = connection.fetchmany(_FETCHED if left is None else min(_FETCHED, left))
        if not rows:
            return
        yield from rows
        left = None if left is None else left - len(rows)


def _cell(value: Any) -> str:  # noqa: ANN401 (of any column)
    plain = _plain(value)
    return "" if plain is None else plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _csv_value(value: Any) -> Any:  # noqa: ANN401 (of any column)
    """For `csv_line`: numbers as numbers, of whatever size."""
    if isinstance(value, Decimal) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value) if isinstance(value, float) else _plain(value)


def _plain(value: Any) -> Any:  # noqa: ANN401 (of any column)
    """As JSON has it; times in RFC 3339."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)
