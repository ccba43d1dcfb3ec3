# SPDX-License-Identifier: Apache-2.0
"""Reading a lake as plain Python data, in one canonical form, to compare it with what the pure fold says.

Everything is read again from disk with delta-rs, as any other reader would, without help of the writer.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable

from schemas.tables import QUARANTINE_TABLE, ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE, STATE_TABLES

Tables = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]
"""State tables: name -> {key: values}, in the column order of schemas.tables; lists and maps as tuples."""

Rows = list[dict[str, Any]]

_read: dict[tuple[Path, str, int | None], Rows] | None = None
"""Results of `read_once`, while it holds."""


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Context in which no process writes: each version of a table is read from disk once. Do not change rows."""
    global _read
    outermost = _read is None
    _read = {} if _read is None else _read
    try:
        yield
    finally:
        if outermost:
            _read = None


def rows(lake_dir: Path, name: str, version: int | None = None) -> Rows:
    """All rows of a table, columns by name."""
    if _read is None:
        return _rows(DeltaTable(str(lake_dir / name), version=version), lake_dir / name)
    if (lake_dir, name, version) not in _read:
        table = DeltaTable(str(lake_dir / name), version=version)
        place = (lake_dir, name, table.version())  # of the newest one, too: asked for with its number or without
        if place not in _read:
            _read[place] = _rows(table, lake_dir / name)
        _read[lake_dir, name, version] = _read[place]
    return list(_read[lake_dir, name, version])


def _rows(table: DeltaTable, folder: Path) -> Rows:
    # A native file system: with delta-rs's own, an interpreter that ends right after a read may abort.
    files = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
    found: Rows = pa.table(table.to_pyarrow_dataset(filesystem=files).to_table()).to_pylist()
    return found


def commits(lake_dir: Path) -> Rows:
    """Rows of routeCommitTable in the order of their epochs."""
    return sorted(rows(lake_dir, ROUTE_COMMIT_TABLE.name), key=lambda row: int(row["epoch"]))


def state_tables(lake_dir: Path, commit: dict[str, Any] | None = None) -> Tables:
    """The state tables at an epoch (a row of routeCommitTable), or as they are now."""
    versions = dict(commit["versions"]) if commit is not None else {}
    tables: Tables = {}
    for table in STATE_TABLES:
        found = rows(lake_dir, table.name, versions.get(table.name))
        tables[table.name] = {
            tuple(row[name] for name in table.key): tuple(plain(row[name]) for name in table.value_columns)
            for row in found
        }
        assert len(found) == len(tables[table.name]), f"{table.name} has a key twice"
    return tables


def last_epoch_tables(lake_dir: Path) -> Tables:
    """The state tables at the last epoch; as they are now if there was none yet."""
    return state_tables(lake_dir, next(reversed(commits(lake_dir)), None))


def history(lake_dir: Path) -> Rows:
    """Rows of routeChangeTable up to the last epoch."""
    epochs = commits(lake_dir)
    last = epochs[-1]["epoch"] if epochs else 0
    return [row for row in rows(lake_dir, ROUTE_CHANGE_TABLE.name) if row["epoch"] <= last]


def quarantine(lake_dir: Path) -> Rows:
    """Rows of quarantineTable, by offset."""
    return sorted(rows(lake_dir, QUARANTINE_TABLE.name), key=lambda row: int(row["offset"]))


@read_once()
def check_epochs(lake_dir: Path) -> None:
    """Epochs are 1, 2, 3, ... without gaps; offsets, times and versions never go back; the history names them."""
    found = commits(lake_dir)
    assert [row["epoch"] for row in found] == list(range(1, len(found) + 1))
    for earlier, later in itertools.pairwise(found):
        assert earlier["logOffset"] <= later["logOffset"]
        assert earlier["livenessOffset"] <= later["livenessOffset"] <= later["logOffset"]
        assert earlier["eventTime"] <= later["eventTime"]
        assert earlier["watermark"] <= later["watermark"]
        before, after = dict(earlier["versions"]), dict(later["versions"])
        assert before.keys() == after.keys()
        assert all(before[name] <= after[name] for name in before)
    epochs = {row["epoch"] for row in rows(lake_dir, ROUTE_CHANGE_TABLE.name)}
    assert epochs <= {row["epoch"] for row in found}
    places = [
        (row["offset"], row["command"], row["brokerName"], row["tableName"], row["key"]) for row in history(lake_dir)
    ]
    assert len(places) == len(set(places)), "a change is in the history twice"


def plain(value: Any) -> Any:
    """A cell as the fold has it: lists, and maps as lists of pairs, become tuples."""
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    return value
