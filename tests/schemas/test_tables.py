# SPDX-License-Identifier: Apache-2.0
"""The tables are a format: readers of any age, Spark SQL and DuckDB queries of analysts, depend on names and types.

`tables.txt` is what LAKE_FORMAT_VERSION stands for. Each change needs a new format: a table with other columns is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import intervals, tables
from schemas.tables import Table

ALL = sorted(
    (*(value for value in vars(tables).values() if isinstance(value, Table)), *intervals.INTERVAL_TABLES),
    key=lambda table: table.name,
)


def described(table: Table) -> list[str]:
    return [
        f"{table.name}.{column.name} {column.type}"
        f"{'' if column.nullable else ' not null'}"
        f"{' key' if column.name in table.key else ''}"
        f"{' partition' if column.name in table.partition_by else ''}"
        for column in table.columns
    ]


def test_names_and_types() -> None:
    assert tables.LAKE_FORMAT_VERSION == 2
    expected = Path(__file__).with_name("tables.txt").read_text(encoding="utf-8").splitlines()
    assert [line for table in ALL for line in described(table)] == expected


@pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)
def test_keys_come_first_and_are_never_null(table: Table) -> None:
    assert table.column_names[: len(table.key)] == table.key
    assert not any(column.nullable for column in table.columns[: len(table.key)])
    assert set(table.partition_by) <= set(table.column_names)
    assert all(column.comment for column in table.columns)
    assert table.comment
