# SPDX-License-Identifier: Apache-2.0
"""A lost data file of a state table, written again under its own name from the history.

routeChangeTable has every change of every row since the lake began, whatever the event log still has. So what a state
table holds at an epoch follows from it, and what is in none of the table's other files was in the one that is lost. The
number of rows is known from the log of the table, and each change says what was before it: if either does not fit, the
file is left lost.

The new file is as long as the old one, since readers of Delta look for its end by the length in the log. All versions
that need it can be read again, and no epoch changes.

Not for brokerLiveTable: what every heartbeat moves is not in the history. Its files are young; the event log has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lake.delta.active import dataset
from lake.delta.inspection import StoredFile
from lake.delta.types import arrow_schema
from ops.doctor.examine import Examination
from schemas.tables import BROKER_LIVE_TABLE, ROUTE_CHANGE_TABLE, STATE_TABLES, Table

_ORDER: Final = [(name, "ascending") for name in ("eventTime", "epoch", "offset", "seq")]
_PAD: Final = "pad"
_TRIES: Final = 8
_WAYS: Final[tuple[dict[str, Any], ...]] = (
    {"compression_level": 1},
    {"compression_level": 1, "use_dictionary": False, "write_statistics": False},
    {"compression_level": 19, "write_statistics": False},
    {"compression_level": 19, "use_dictionary": False, "write_statistics": False, "data_page_version": "2.0"},
)
"""How to write it, until it is no longer than it was. What a reader may skip by is in the table's log."""

Key = tuple[Any, ...]


class CannotRebuildError(Exception):
    """The history does not have what is needed, or does not fit; says what."""


class _Rows(msgspec.Struct, rename="camel"):
    num_records: int | None = None


def rebuild(found: Examination, table_name: str, lost: StoredFile) -> bytes:
    """The content of a lost file of the newest epoch.

    Raises:
        CannotRebuildError: It cannot be told.
        OSError, ValueError, pa.ArrowException: Another file cannot be read.
    """
    table = next((table for table in STATE_TABLES if table.name == table_name), None)
    if table is None or table is BROKER_LIVE_TABLE:
        raise CannotRebuildError(f"the history does not have the rows of {table_name}")
    examined, last = found.tables[table_name], found.last
    if last is None or examined.disk is None or examined.newest != last.versions[table_name]:
        raise CannotRebuildError(f"{table_name} is not at the version of the last epoch")
    files = examined.disk.files_at(examined.newest) or {}
    beside = [file for file in files.values() if file.partition_values == lost.partition_values]
    if any(file.path in examined.broken and file.path != lost.path for file in beside):
        raise CannotRebuildError("more than one file of its rows is lost: which of them had which row cannot be told")
    expected = msgspec.json.decode(lost.stats, type=_Rows).num_records if lost.stats else None
    rows = _rows_at(found, table, lost.partition_values or {})
    others = [file for file in beside if file.path != lost.path]
    if others:
        keys = dataset(str(found.lake_dir), table, others).to_table(columns=list(table.key)).to_pylist()
        for row in keys:
            if rows.pop(tuple(row[name] for name in table.key), None) is None:
                raise CannotRebuildError(f"a row is in {table_name} that the history does not have")
    if expected is None or len(rows) != expected or lost.size is None:
        raise CannotRebuildError(f"the file had {expected} rows, and the history has {len(rows)} for it")
    names = [name for name in table.column_names if name not in (lost.partition_values or {})]
    schema = pa.schema([arrow_schema(table).field(name) for name in names])
    content = pa.Table.from_pylist([{name: row[name] for name in names} for row in rows.values()], schema=schema)
    return _of_size(content, lost.size)


def place_of(found: Examination, table_name: str, lost: StoredFile) -> Path:
    """Where a file belongs."""
    return found.lake_dir / table_name / unquote(lost.path)


def _rows_at(found: Examination, table: Table, partition: Mapping[str, str | None]) -> dict[Key, dict[str, Any]]:
    """A state table's rows at the last epoch, of one partition, by key."""
    assert found.last is not None
    history = found.tables[ROUTE_CHANGE_TABLE.name]
    version = found.last.versions[ROUTE_CHANGE_TABLE.name]
    if history.disk is None or not history.can_read(version):
        raise CannotRebuildError(f"{ROUTE_CHANGE_TABLE.name} cannot be read in full")
    files = history.disk.files_at(version) or {}
    wanted = pc.field("tableName") == table.name
    for name, value in partition.items():
        wanted &= pc.field(name) == value
    columns = ["eventTime", "epoch", "offset", "seq", "key", "before", "after"]
    changes = dataset(str(found.lake_dir), ROUTE_CHANGE_TABLE, [*files.values()]).to_table(columns, filter=wanted)
    rows: dict[str, str] = {}
    for change in _in_order(changes):
        key, before, after = change["key"], change["before"], change["after"]
        if rows.pop(key, None) != before:
            raise CannotRebuildError(f"the history of {table.name} does not fit together at offset {change['offset']}")
        if after is not None:
            rows[key] = after
    typed: dict[Key, dict[str, Any]] = {}
    for key, after in rows.items():
        row = {**json.loads(key), **json.loads(after)}
        typed[tuple(row[name] for name in table.key)] = {name: _typed(row[name]) for name in table.column_names}
    return typed


def _in_order(changes: pa.Table) -> Iterable[dict[str, Any]]:
    for batch in changes.sort_by(_ORDER).to_batches():
        yield from batch.to_pylist()


def _typed(value: object) -> object:
    """JSON has no map but of text: brokerAddrs."""
    return [(int(key), text) for key, text in value.items()] if isinstance(value, dict) else value


def _of_size(content: pa.Table, size: int) -> bytes:
    """A Parquet file of a given length: what is left over is a text in its footer, which nobody reads.

    Raises:
        CannotRebuildError: It does not get that small.
    """
    for way in _WAYS:
        written, pad = _write(content, None, way), 0
        for _ in range(_TRIES):
            if len(written) == size:
                return written
            pad += size - len(written)
            if pad < 0:
                break  # larger without any, or it falls between two lengths that it can have
            written = _write(content, pad, way)
    raise CannotRebuildError(f"what it held does not fit into the {size} bytes that it had")


def _write(content: pa.Table, pad: int | None, way: Mapping[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, content.schema, compression="zstd", store_schema=False, **way) as writer:
        writer.write_table(content)
        if pad is not None:
            writer.add_key_value_metadata({_PAD: "x" * pad})
    return bytes(sink.getvalue())
