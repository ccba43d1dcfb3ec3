# SPDX-License-Identifier: Apache-2.0
"""State tables at an epoch whose versions are not kept any more: from the tables of intervals, and from the changes.

Intervals answer for topics, addresses and KV entries, for the price of what is asked for. The other tables, and a
table of intervals that is not that far, are the last change of each key up to the epoch, which is a search in all
changes. What every heartbeat moves (times in brokerLiveTable) is in neither: it is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

from lake.delta.query import names, select, text
from lake.history.partial_epoch import rows_from_json
from schemas.intervals import INTERVALS, INTERVALS_APP, Intervals
from schemas.tables import KV_CONFIG_TABLE, Table

_WHOLE: Final[Mapping[str, Intervals]] = {
    intervals.source.name: intervals for intervals in INTERVALS if intervals.state == intervals.source.value_columns
}
"""By state table, those that have all its columns."""

_WIDE_ROWS: Final = 16
"""Rows decoded at a time: a KV value may have 256 KiB."""


def intervals_of(spec: Table) -> Table | None:
    """The table of intervals that has all of a state table."""
    found = _WHOLE.get(spec.name)
    return None if found is None else found.table


def is_up_to(table: DeltaTable, epoch: int) -> bool:
    """Whether a table of intervals has an epoch."""
    return (table.transaction_version(INTERVALS_APP) or 0) >= epoch


def from_intervals(table: DeltaTable, spec: Table, epoch: int, condition: str) -> pa.Table:
    """Rows of a state table at an epoch.

    Args:
        table: its intervals, up to that epoch or later.
        spec: the state table.
        epoch: when.
        condition: SQL on its columns.
    """
    return select(
        table,
        f"SELECT {names(spec.column_names)} FROM t "  # noqa: S608
        f'WHERE "fromEpoch" <= {epoch} AND ("toEpoch" IS NULL OR "toEpoch" > {epoch}) AND {condition}',
    )


def from_changes(table: DeltaTable, spec: Table, epoch: int, condition: str) -> pa.Table:
    """Rows of a state table at an epoch, without what the changes do not have.

    Args:
        table: routeChangeTable.
        spec: the state table.
        epoch: when.
        condition: SQL on columns of routeChangeTable.
    """
    found = select(
        table,
        'SELECT "key", "after" FROM (SELECT "key", "after", row_number() OVER (PARTITION BY "key" '  # noqa: S608
        'ORDER BY "epoch" DESC, "eventTime" DESC, "offset" DESC, "seq" DESC) AS "n" '
        f'FROM t WHERE "epoch" <= {epoch} AND "tableName" = {text(spec.name)} AND {condition}) AS c '
        'WHERE "n" = 1 AND "after" IS NOT NULL',
        batch_rows=_WIDE_ROWS if spec is KV_CONFIG_TABLE else None,
    )
    return rows_from_json(spec, found["key"].to_pylist(), found["after"].to_pylist())
