# SPDX-License-Identifier: Apache-2.0
"""Reading routeCommitTable."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.fs as pafs
from deltalake import DeltaTable


def native_dataset(table: DeltaTable) -> pds.Dataset:
    """A table version as an Arrow dataset that is read without Python.

    delta-rs's default reads through a Python file system. Then Arrow's threads hold Python buffers, and one that is
    released while the interpreter ends aborts the process ("terminate called without an active exception").
    """
    filesystem, path = pafs.FileSystem.from_uri(table.table_uri)
    return table.to_pyarrow_dataset(filesystem=pafs.SubTreeFileSystem(path, filesystem))


def last_commit(table: DeltaTable) -> dict[str, Any] | None:
    """The newest row of routeCommitTable as a dictionary by column name; None in an empty lake."""
    return commit_where(table, None)


def commit_where(table: DeltaTable, condition: pc.Expression | None) -> dict[str, Any] | None:
    """The row of the greatest epoch that meets a condition on routeCommitTable's columns."""
    dataset = native_dataset(table)
    epochs = dataset.to_table(columns=["epoch"], filter=condition)["epoch"]
    greatest = pc.max(epochs).as_py()
    if greatest is None:
        return None
    rows: list[dict[str, Any]] = pa.table(dataset.to_table(filter=pc.field("epoch") == greatest)).to_pylist()
    return rows[0]


def to_ms(moment: datetime) -> int:
    """A timestamp column's value in milliseconds since the epoch."""
    return round(moment.timestamp() * 1000)
