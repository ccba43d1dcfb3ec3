"""Reading routeCommitTable."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable


def last_commit(table: DeltaTable) -> dict[str, Any] | None:
    """The newest row of routeCommitTable as a dictionary by column name; None in an empty lake."""
    return commit_where(table, None)


def commit_where(table: DeltaTable, condition: pc.Expression | None) -> dict[str, Any] | None:
    """The row of the greatest epoch that meets a condition on routeCommitTable's columns."""
    dataset = table.to_pyarrow_dataset()
    epochs = dataset.to_table(columns=["epoch"], filter=condition)["epoch"]
    greatest = pc.max(epochs).as_py()
    if greatest is None:
        return None
    rows: list[dict[str, Any]] = pa.table(dataset.to_table(filter=pc.field("epoch") == greatest)).to_pylist()
    return rows[0]


def to_ms(moment: datetime) -> int:
    """A timestamp column's value in milliseconds since the epoch."""
    return round(moment.timestamp() * 1000)
