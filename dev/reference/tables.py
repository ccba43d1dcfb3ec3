# SPDX-License-Identifier: Apache-2.0
"""Blocks `tables` and `reports`: every table and column, and every report, as the code declares them."""

from __future__ import annotations

from collections.abc import Iterator

from dev.reference.markdown import code, sentence, table
from lake.history.reports import REPORTS
from schemas.intervals import INTERVAL_TABLES, INTERVALS
from schemas.tables import ALL_TABLES, STATE_TABLES, Column, Table


def sections() -> str:
    """Return a section for each table."""
    return "\n".join("\n".join(_lines(one)) for one in (*ALL_TABLES, *INTERVAL_TABLES))


def reports() -> str:
    """Return a table of the reports."""
    return table(("report", "shows", "a row is"), [(code(one.name), one.title, one.comment) for one in REPORTS])


def _lines(of: Table) -> Iterator[str]:
    yield f"### {of.name}"
    yield ""
    yield f"{sentence(of.comment)} {_rows(of)}"
    if of.trap:
        yield ""
        yield f"**Trap:** {of.trap}."
    yield ""
    rows = (
        (
            _name(of, column),
            column.type,
            column.unit,
            "yes" if column.nullable else "no",
            column.comment,
            column.trap,
        )
        for column in of.columns
    )
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


def _name(of: Table, column: Column) -> str:
    return f"**{column.name}** (key)" if column.name in of.key else column.name
