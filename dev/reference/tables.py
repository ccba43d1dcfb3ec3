# SPDX-License-Identifier: Apache-2.0
"""Blocks `tables` and `reports`: every table and column, and every report, as the code declares them.

`tables.toml` has units and traps.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dev.reference.markdown import code, sentence, table
from lake.history.reports import REPORTS
from schemas.intervals import INTERVAL_TABLES, INTERVALS
from schemas.tables import ALL_TABLES, STATE_TABLES, Column, Table

_NOTES: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_name("tables.toml").read_text(encoding="utf-8")
)


def sections() -> str:
    """Return a section for each table. Raises ValueError: a note is on a table or column that does not exist."""
    known = {(one.name, column) for one in ALL_TABLES for column in (*one.column_names, "trap")}
    known |= {("intervals", column) for one in INTERVAL_TABLES for column in one.column_names}
    if unknown := {(name, column) for name, notes in _NOTES.items() for column in notes} - known:
        raise ValueError(f"tables.toml has notes on {sorted(unknown)}, which do not exist")
    return "\n".join("\n".join(_lines(one)) for one in (*ALL_TABLES, *INTERVAL_TABLES))


def reports() -> str:
    """Return a table of the reports."""
    return table(("report", "shows", "a row is"), [(code(one.name), one.title, one.comment) for one in REPORTS])


def _lines(of: Table) -> Iterator[str]:
    yield f"### {of.name}"
    yield ""
    yield f"{sentence(of.comment)} {_rows(of)}"
    if trap := _NOTES.get(of.name, {}).get("trap"):
        yield ""
        yield f"**Trap:** {trap}."
    yield ""
    rows = []
    for column in of.columns:
        note = _note(of, column)
        null = "yes" if column.nullable else "no"
        rows.append((_name(of, column), column.type, note.get("unit", ""), null, column.comment, note.get("trap", "")))
    yield table(("column", "type", "unit", "null", "meaning", "trap"), rows)


def _rows(of: Table) -> str:
    if of in INTERVAL_TABLES:
        (key,) = [intervals.source.key for intervals in INTERVALS if intervals.table is of]
        split = " and ".join(of.partition_by)
        return f"The key is ({', '.join(key)}); one partition for each {split}. Belongs to no epoch's versions."
    if of not in STATE_TABLES:
        return "Rows are only added."
    split = f", one partition for each {of.partition_by[0]}" if of.partition_by else ""
    return f"One row for each ({', '.join(of.key)}){split}; has a change data feed."


def _note(of: Table, column: Column) -> dict[str, str]:
    source = next((intervals.source for intervals in INTERVALS if intervals.table is of), of)
    place = source.name if column in source.columns else "intervals"
    found: dict[str, str] = _NOTES.get(place, {}).get(column.name, {})
    return found


def _name(of: Table, column: Column) -> str:
    return f"**{column.name}** (key)" if column.name in of.key else column.name
