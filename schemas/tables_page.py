# SPDX-License-Identifier: Apache-2.0
"""The part of docs/reference/tables.md that comes from `schemas.tables`: every table and column.

Commands::

    python -m schemas.tables_page           write it
    python -m schemas.tables_page --check   exit with 1 if it is not up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from schemas.intervals import INTERVAL_TABLES, INTERVALS
from schemas.tables import ALL_TABLES, STATE_TABLES, Column, Table

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "tables.md"
_BEGIN: Final = "<!-- from schemas/tables.py, by python -m schemas.tables_page -->\n"
_END: Final = "<!-- end -->\n"


def with_tables(page: str) -> str:
    """The page with its tables as they are declared now.

    Raises:
        ValueError: it lacks the two comments between which they stand.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"no line {_BEGIN.strip()!r}, or none {_END.strip()!r} after it")
    return (
        before
        + begin
        + "\n"
        + "\n".join(_section(table) for table in (*ALL_TABLES, *INTERVAL_TABLES))
        + "\n"
        + end
        + after
    )


def _section(table: Table) -> str:
    return "\n".join(_lines(table)) + "\n"


def _lines(table: Table) -> Iterator[str]:
    yield f"### {table.name}"
    yield ""
    yield f"{_sentence(table.comment)} {_rows(table)}"
    if table.trap:
        yield ""
        yield f"**Trap:** {table.trap}."
    yield ""
    yield "| column | type | unit | null | meaning | trap |"
    yield "|---|---|---|---|---|---|"
    for column in table.columns:
        cells = (_name(table, column), column.type, column.unit, "yes" if column.nullable else "no")
        yield "| " + " | ".join(map(_cell, (*cells, column.comment, column.trap))) + " |"


def _rows(table: Table) -> str:
    if table in INTERVAL_TABLES:
        (key,) = [intervals.source.key for intervals in INTERVALS if intervals.table is table]
        split = " and ".join(table.partition_by)
        return f"The key is ({', '.join(key)}); one partition for each {split}. Belongs to no epoch's versions."
    if table not in STATE_TABLES:
        return "Rows are only added."
    split = f", one partition for each {table.partition_by[0]}" if table.partition_by else ""
    return f"One row for each ({', '.join(table.key)}){split}; has a change data feed."


def _name(table: Table, column: Column) -> str:
    return f"**{column.name}** (key)" if column.name in table.key else column.name


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check it; returns the exit code."""
    found = PAGE.read_text(encoding="utf-8")
    wanted = with_tables(found)
    if found == wanted:
        return 0
    if "--check" in arguments:
        print("docs/reference/tables.md is not up to date: python -m schemas.tables_page", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
