# SPDX-License-Identifier: Apache-2.0
"""Rows of a Delta table: of single commits, and of the files of a version, straight from Parquet.

A reader that follows a lake asks two things again and again: is the next version there, and what did it change. Both
are answered by one small file of the log, at a price that does not grow with the log. deltalake's
``update_incremental`` and ``load_cdf`` list the whole ``_delta_log`` folder each time and keep the interpreter lock
while they plan (an epoch cost 20 ms of processor time, 32 ms after 2,500 epochs; so it costs 3 ms, then as now).

Source: the Delta transaction protocol, "Change Data Files": a commit with ``cdc`` actions changed exactly what these
files say; without, its rows are those of the added and removed files that carry dataChange.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.fs as pfs
import pyarrow.parquet as pq

from lake.delta.data_file import BEFORE, CHANGE_TYPE, DELETED
from lake.delta.log import LOG_FOLDER, Entry, File, active, decode_entry, entry_name, is_local, table_uri
from lake.delta.types import arrow_schema
from lake.store import store_of
from schemas.tables import Table

GONE: Final = "_gone"
"""Boolean column of what `CommitReader.changes` returns: this row was removed."""

_MAX_AHEAD: Final = 200
"""Commits that are read before they are asked for: the objects are held in memory."""

FileIdentity = tuple[int, int]
"""Modification time in nanoseconds and size of a commit's file: different if another file stands in its place.

In a store: CRC of its text, and size. Each commit has a time and an id, so another one in its place has others."""


class ReadEntry(NamedTuple):
    """An entry of a log as it was read."""

    text: bytes
    identity: FileIdentity


def plain_text(part: pa.Table) -> pa.Table:
    """String views, for which Arrow lacks most functions, as strings."""
    for index, field in enumerate(part.schema):
        if field.type == pa.string_view():
            part = part.set_column(index, field.name, part[index].cast(pa.string()))
    return part


class CommitReader:
    """Reads single commits of one table."""

    def __init__(self, lake_dir: str, table: Table, codes: tuple[str, ...] = ()) -> None:
        """Open nothing yet.

        Args:
            lake_dir: Directory or URI of the lake.
            table: Which table.
            codes: Text columns to be read as dictionaries, which take less room.
        """
        self._uri = table_uri(lake_dir, table)
        self._local = Path(self._uri).absolute() if is_local(lake_dir) else None
        self._lake = lake_dir
        self._table = table
        self._codes = codes
        self._ahead: dict[str, bytes] = {}
        """Objects of a store that were read before they are asked for, and will be asked for once."""

    def find(self, version: int) -> ReadEntry | None:
        """Read a version's entry; None if the version has not been committed, or its file does not exist any more."""
        name = entry_name(version)
        try:
            if self._local is not None:
                identity = _identity_of(self._local / name)
                return ReadEntry((self._local / name).read_bytes(), identity)
            text = store_of(self._lake).get(self._path(name))
        except FileNotFoundError:
            return None
        return ReadEntry(text, (zlib.crc32(text), len(text)))

    def identity(self, version: int) -> FileIdentity | None:
        """Identity of a version's file; None if the file does not exist (any more)."""
        if self._local is None:
            found = self.find(version)
            return None if found is None else found.identity
        try:
            return _identity_of(self._local / entry_name(version))
        except FileNotFoundError:
            return None

    def mtime_ns(self) -> int | None:
        """Modification time of the log's folder, which moves with every entry; None where there is no such thing.

        Raises:
            OSError: The log is not there.
        """
        return None if self._local is None else (self._local / LOG_FOLDER).stat().st_mtime_ns

    def appended(self, version: int) -> pa.Table | None:
        """The rows that a version of an append-only table added; None for maintenance.

        Raises:
            OSError: It, or its data, is not there.
            ValueError: It is torn.
        """
        return self.added(self._entry(version))

    def added(self, entry: Entry) -> pa.Table | None:
        """The same by the version's entry. Raises OSError."""
        added = [file for file in entry.added if file.data_change]
        parts = [self._read(file, self._table.column_names) for file in added]
        return pa.concat_tables(parts) if parts else None

    def changes(self, first: int, last: int, pause: Callable[[], None]) -> pa.Table | None:
        """The changed rows of versions first to last, oldest first, `GONE` marking removed ones.

        Within one version removals come first: the row that takes a removed row's place is in the same version.

        Args:
            first: First version.
            last: Last version.
            pause: Called between files.

        Raises:
            OSError: A commit, or its data, is not there (any more).
            ValueError: A commit is torn, or of a kind that cannot be read here.
        """
        parts = [part for version in range(first, last + 1) for part in self._changes(version, pause)]
        return pa.concat_tables(parts) if parts else None

    def _changes(self, version: int, pause: Callable[[], None]) -> Iterator[pa.Table]:
        entry = self._entry(version)
        feed = entry.feed
        gone: list[pa.Table] = []
        there: list[pa.Table] = []
        for file in feed:
            pause()
            part = self._read(file, (*self._table.column_names, CHANGE_TYPE))
            kind = part[CHANGE_TYPE]
            part = part.drop_columns([CHANGE_TYPE])
            removed = pc.equal(kind, DELETED)
            gone.append(part.filter(removed))
            there.append(part.filter(pc.invert(pc.or_(removed, pc.equal(kind, BEFORE)))))
        for files, parts in () if feed else ((entry.removed, gone), (entry.added, there)):
            for file in files:
                if file.data_change:
                    pause()
                    parts.append(self._read(file, self._table.column_names))
        for parts, removed in ((gone, True), (there, False)):
            for part in parts:
                if part.num_rows:
                    yield part.append_column(GONE, pa.repeat(pa.scalar(removed), part.num_rows))

    def _entry(self, version: int) -> Entry:
        name = entry_name(version)
        return decode_entry(self._object(name) if self._local is None else (self._local / name).read_bytes())

    def _read(self, file: File, columns: tuple[str, ...]) -> pa.Table:
        """Columns of a data file, those of its partition included."""
        path = unquote(file.path)
        source = str(self._local / path) if self._local is not None else pa.BufferReader(self._object(path))
        values = file.partition_values or {}
        stored = [name for name in columns if name not in values]
        codes = [name for name in self._codes if name in stored]
        with pq.ParquetFile(source, read_dictionary=codes) as parquet:
            part = plain_text(parquet.read(stored, use_threads=False))
        arrays = {name: part[name] for name in part.column_names}
        for name, value in values.items():
            column = pa.repeat(pa.scalar(value, pa.string()), part.num_rows)
            arrays[name] = column.dictionary_encode() if name in self._codes else column
        return pa.table({name: arrays[name] for name in columns})

    def _path(self, name: str) -> str:
        """An object's, relative to the lake."""
        return f"{self._table.name}/{name}"

    def _object(self, name: str) -> bytes:
        found = self._ahead.pop(name, None)
        return store_of(self._lake).get(self._path(name)) if found is None else found

    def _files_of(self, version: int) -> list[str]:
        """Paths of the files that `changes` reads of a version. Its entry has been read ahead."""
        return [unquote(file.path) for file in decode_entry(self._ahead[entry_name(version)]).changed]


def _identity_of(path: Path) -> FileIdentity:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def read_ahead(wanted: Sequence[tuple[CommitReader, range]]) -> None:
    """Read what `CommitReader.changes` of these versions will ask for side by side, in two round trips.

    Args:
        wanted: Logs of one lake, and versions. Nothing is read where it is local, or where they are many.

    Raises:
        OSError: A commit, or its data, is not there (any more).
    """
    if not wanted or wanted[0][0]._local is not None or sum(len(versions) for _, versions in wanted) > _MAX_AHEAD:
        return
    store = store_of(wanted[0][0]._lake)

    def read(one: tuple[CommitReader, str]) -> None:
        log, name = one
        log._ahead[name] = store.get(log._path(name))

    for log, _ in wanted:
        log._ahead.clear()
    store.side_by_side(read, [(log, entry_name(version)) for log, versions in wanted for version in versions])
    store.side_by_side(
        read, [(log, file) for log, versions in wanted for version in versions for file in log._files_of(version)]
    )


def file_system(uri: str) -> pfs.FileSystem:
    """Arrow's view of a table's folder: straight to the files where they are local."""
    if is_local(uri):
        return pfs.SubTreeFileSystem(str(Path(uri).absolute()), pfs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return pfs.PyFileSystem(DeltaStorageHandler(uri))


def dataset(lake_dir: str, table: Table, files: Sequence[File], codes: Sequence[str] = ()) -> pds.Dataset:
    """Files of a table as an Arrow dataset, read without Python.

    delta-rs's own reads through a Python file system. Then Arrow's threads hold Python buffers, and one that is
    released while the interpreter ends aborts the process ("terminate called without an active exception").

    Args:
        lake_dir: directory or URI of the lake.
        table: which table.
        files: of it, at one version.
        codes: text columns to be read as dictionaries, which take less room; those of the partition never are.
    """
    text = [name for name in codes if name not in table.partition_by]
    schema = arrow_schema(table)
    for name in text:
        index = schema.get_field_index(name)
        schema = schema.set(index, schema.field(index).with_type(pa.dictionary(pa.int32(), pa.string())))
    layout = pds.ParquetFileFormat(read_options=pds.ParquetReadOptions(dictionary_columns=text))
    storage = file_system(table_uri(lake_dir, table))
    fragments = [
        layout.make_fragment(unquote(file.path), filesystem=storage, partition_expression=_partition(file, schema))
        for file in files
    ]
    return pds.FileSystemDataset(fragments, schema, layout, storage)


def table_at(lake_dir: str, table: Table, version: int | None = None, codes: Sequence[str] = ()) -> pds.Dataset:
    """The `dataset` of a table at a version, or at its newest. Raises as `lake.delta.log.active`."""
    return dataset(lake_dir, table, active(table_uri(lake_dir, table), version).files, codes)


def _partition(file: File, schema: pa.Schema) -> pc.Expression | None:
    """The columns that all rows of a file have in common, which are not in it."""
    terms = [
        pc.field(name) == pa.scalar(value, pa.string()).cast(schema.field(name).type)
        for name, value in (file.partition_values or {}).items()
    ]
    return reduce(and_, terms) if terms else None
