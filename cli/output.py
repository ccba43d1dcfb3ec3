# SPDX-License-Identifier: Apache-2.0
"""Output formats of several commands, and their writers: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any, Final

from cli.foreign_text import printable
from schemas.errors import SetupError

_NOTHING: Final = "-"
"""Text of an empty cell in a table with columns that are separated by spaces."""


class Output(StrEnum):
    """A table for people or JSON for scripts."""

    TABLE = "table"
    JSON = "json"


class TextOutput(StrEnum):
    """Text for people or JSON for scripts."""

    TEXT = "text"
    JSON = "json"


class Form(StrEnum):
    """Form of rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"

    @classmethod
    def of(cls, *, as_json: bool, as_csv: bool) -> Form:
        """Return the form for --json and --csv. Raises SetupError if both are set."""
        if as_json and as_csv:
            raise SetupError("--json and --csv cannot be used together. Choose one")
        return cls.JSON if as_json else cls.CSV if as_csv else cls.TABLE


def warn(message: str) -> None:
    """Print one line on standard error."""
    print(f"routelake: {printable(message)}", file=sys.stderr)


def write_json(document: object) -> None:
    """Print one indented document on standard output."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def write_table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on standard output. Text is printed as it is, without markup.

    Into a pipe or a file, the table has mqadmin's form: titles after ``#``, columns separated by two spaces, no cuts.
    """
    from rich.table import Table

    from cli.plain_console import PlainConsole

    console = PlainConsole()
    if not console.is_terminal:
        _write_plain(titles, rows)
        return
    table = Table(*titles)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def _write_plain(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print one line for each row. An empty cell is a dash, so that every row has the same number of columns."""
    lines = [[f"#{title}" for title in titles], *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _plain(cell: object) -> str:
    return printable(" ".join(str(cell).splitlines()).strip()) or _NOTHING


def json_value(value: Any) -> Any:  # noqa: ANN401 (of any column)
    """Return a value of any column for JSON, with times in RFC 3339."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    return str(value)
