# SPDX-License-Identifier: Apache-2.0
"""Log of a Delta table: entries, checkpoints, the files of a version, and detection of damaged files.

To open a table, deltalake lists the whole ``_delta_log`` folder and reads the whole checkpoint, mostly files removed
within the retention. That takes 160 ms after 37,000 commits, four times in a gateway's start. `active` reads the
pointer ``_last_checkpoint``, four columns of the checkpoint, and one file for each later commit. If this does not lead
to the version, deltalake opens the table. Reasons are an older version, a truncated pointer, another layout, or
storage that is not local.

deltalake does not name a damaged file. It reads an empty entry, as a power loss leaves it, as a commit without
changes, and opens the table at an older state.

Source: the Delta transaction protocol, "Delta Log Entries", "Actions", "Checkpoints", "Last Checkpoint File", "Action
Reconciliation", "Per-file Statistics".
"""

from __future__ import annotations

import itertools
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from schemas.errors import RoutelakeError, one_line
from schemas.tables import Table

LOG_FOLDER: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG_FOLDER}/_last_checkpoint"

READER_VERSION: Final = 1
"""Delta reader version of routelake's tables. Tables that need a newer one are refused."""

_OF_A_BATCH: Final = ("WRITE", "MERGE")
"""Operations of batches. Their entries end with the app transaction (lake/write/writer.py)."""

_CHECKPOINT_COLUMNS: Final = ["add.path", "add.partitionValues", "add.stats", "add.size", "add.deletionVector"]


def table_uri(lake_dir: str, table: Table) -> str:
    """URI of a table."""
    return f"{lake_dir.rstrip('/')}/{table.name}"


def is_local(lake_dir: str) -> bool:
    """Return True if the lake is a directory of this machine."""
    return "://" not in lake_dir


def entry_name(version: int) -> str:
    """Path of the entry of a version, relative to the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """Path of the one-file checkpoint of a version, relative to the table."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"


class LogVersions(NamedTuple):
    """Versions with an entry, and versions with a one-file checkpoint, each in order."""

    entries: list[int]
    checkpoints: list[int]


def log_versions(names: Iterable[str]) -> LogVersions:
    """Versions in a log, from the names of its files."""
    found: dict[str, list[int]] = {"json": [], "checkpoint.parquet": []}
    for name in names:
        number, _, kind = name.partition(".")
        if number.isdigit() and kind in found:
            found[kind].append(int(number))
    return LogVersions(*map(sorted, found.values()))


def versions_of(table: Path) -> LogVersions:
    """Versions in the log of a table. Raises OSError."""
    return log_versions(path.name for path in (table / LOG_FOLDER).iterdir())


def data_files(table: Path) -> Iterator[Path]:
    """Data files and change feed files of a table, of all its versions, folder by folder."""
    for folder, folders, names in os.walk(table):
        folders[:] = [name for name in folders if name != LOG_FOLDER]
        yield from (Path(folder, name) for name in names if name.endswith(".parquet"))


# --- entries ---


class _Bounds(msgspec.Struct, frozen=True):
    epoch: int | None = None


class Statistics(msgspec.Struct, frozen=True, rename="camel"):
    """Statistics of a file that routelake reads."""

    num_records: int | None = None
    min_values: _Bounds = _Bounds()
    max_values: _Bounds = _Bounds()


_decode_statistics = msgspec.json.Decoder(Statistics).decode


class File(msgspec.Struct, rename="camel"):
    """A data file or a file of the change feed.

    Attributes:
        path: Path relative to the table, percent-encoded.
        partition_values: Partition values, by column.
        stats: JSON with numRecords, minValues, maxValues, nullCount.
        size: Size in bytes, or None in a removal without a size.
        data_change: False if the commit only rearranged rows into other files.
        deletion_timestamp: Time of a removal, ms since 1970.
        deletion_vector: Deletion vector, which routelake never writes.
    """

    path: str
    partition_values: dict[str, str | None] | None = None
    stats: str | None = None
    size: int | None = None
    data_change: bool = True
    deletion_timestamp: int | None = None
    deletion_vector: Any = None

    @property
    def statistics(self) -> Statistics:
        """Decoded ``stats``."""
        return _decode_statistics(self.stats) if self.stats else Statistics()


class _Protocol(msgspec.Struct, rename="camel"):
    min_reader_version: int
    reader_features: list[str] | None = None


class _CommitInfo(msgspec.Struct):
    timestamp: int = 0
    operation: str = ""


class _MetaData(msgspec.Struct):
    configuration: dict[str, str] = {}


class _Transaction(msgspec.Struct):
    """Marker of a transaction action. No field is read."""


class _Action(msgspec.Struct, rename="camel"):
    """A line of an entry."""

    add: File | None = None
    remove: File | None = None
    cdc: File | None = None
    protocol: _Protocol | None = None
    meta_data: _MetaData | None = None
    commit_info: _CommitInfo | None = None
    txn: _Transaction | None = None


_json = msgspec.json.Encoder()
_action_decoder = msgspec.json.Decoder(_Action)


class UnreadableError(ValueError):
    """An entry or a checkpoint is damaged or of another protocol. The message says how."""


class Entry(msgspec.Struct, frozen=True):
    """A decoded log entry, with the actions that routelake reads."""

    actions: list[_Action]

    @property
    def added(self) -> list[File]:
        """Files that the commit adds to the table."""
        return [action.add for action in self.actions if action.add is not None]

    @property
    def removed(self) -> list[File]:
        """Files that the commit removes from the table."""
        return [action.remove for action in self.actions if action.remove is not None]

    @property
    def feed(self) -> list[File]:
        """Files of the change feed."""
        return [action.cdc for action in self.actions if action.cdc is not None]

    @property
    def changed(self) -> list[File]:
        """Files with the changed rows: the feed if the commit has one, otherwise its data files."""
        changed = (action.add or action.remove for action in self.actions)
        return self.feed or [file for file in changed if file is not None and file.data_change]

    @property
    def time_ms(self) -> int:
        """Commit time, ms since 1970, or 0 if the entry has no time."""
        return next((action.commit_info.timestamp for action in self.actions if action.commit_info is not None), 0)

    @property
    def properties(self) -> dict[str, str] | None:
        """Table properties that the commit sets, or None."""
        return next((action.meta_data.configuration for action in self.actions if action.meta_data is not None), None)

    def apply_to(self, files: dict[str, File]) -> None:
        """Update the files of the previous version, by path, to those of this version."""
        for action in self.actions:
            if action.remove is not None:
                files.pop(action.remove.path, None)
            if action.add is not None:
                files[action.add.path] = action.add


def commit_info(operation: str, parameters: dict[str, str]) -> dict[str, Any]:
    """The commitInfo action: time, operation and its parameters."""
    said = {"timestamp": time.time_ns() // 1_000_000, "operation": operation, "operationParameters": parameters}
    return {"commitInfo": {**said, "engineInfo": "routelake", "txnId": str(uuid.uuid4())}}


def encode_entry(actions: Iterable[dict[str, Any]]) -> bytes:
    """Encode the lines of a commit."""
    return b"".join(_json.encode(action) + b"\n" for action in actions)


def decode_entry(text: bytes) -> Entry:
    """Decode the lines of a commit.

    Raises:
        UnreadableError: The entry is truncated or empty, as after a power loss, or of a newer protocol.
    """
    try:
        actions = _action_decoder.decode_lines(text)
    except ValueError as error:
        raise UnreadableError(f"is torn: {len(text)} bytes, which are no whole commit ({error})") from error
    if not actions:
        raise UnreadableError("is torn: it is empty")
    for action in actions:
        if action.protocol is not None and action.protocol.min_reader_version > READER_VERSION:
            features = ", ".join(action.protocol.reader_features or ())
            raise UnreadableError(
                f"needs version {action.protocol.min_reader_version} of the Delta protocol ({features}), and routelake "
                f"knows {READER_VERSION}: another program has changed the table"
            )
        file = action.add or action.remove
        if file is not None and file.deletion_vector is not None:
            raise UnreadableError("has deletion vectors, which routelake never writes")
    return Entry(actions)


def read_entry(path: Path) -> Entry:
    """Read an entry that routelake wrote.

    Raises:
        UnreadableError: As `decode_entry`. Also if the entry of a batch was truncated at the end of a line.
        OSError: The file cannot be read.
    """
    entry = decode_entry(path.read_bytes())
    infos = (action.commit_info for action in entry.actions if action.commit_info is not None)
    if any(info.operation in _OF_A_BATCH for info in infos) and all(action.txn is None for action in entry.actions):
        raise UnreadableError("is cut after a line: it lacks its batch's transaction, which comes last")
    return entry


def _entries(table: Path, first: int, last: int | None = None) -> Iterator[tuple[int, Entry]]:
    """Entries in order, from a version up to `last` or up to the first missing one.

    Raises:
        DamagedTableError: An entry is damaged.
        OSError: A file cannot be read.
    """
    for version in itertools.count(first) if last is None else range(first, last + 1):
        path = table / entry_name(version)
        try:
            yield version, decode_entry(path.read_bytes())
        except FileNotFoundError:
            return
        except UnreadableError as error:
            raise DamagedTableError(f"{path} {error}") from error


# --- checkpoints ---


class LastCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pointer to the last checkpoint of a table.

    Attributes:
        version: Version of the table.
        size: Number of actions in the checkpoint.
        parts: Number of files if the checkpoint has several, otherwise None.
    """

    version: int
    size: int
    parts: int | None = None


_last_checkpoint_decoder = msgspec.json.Decoder(LastCheckpoint)


def read_last_checkpoint(table: Path) -> LastCheckpoint | None:
    """Read the pointer; None if the table has no checkpoint. Raises OSError, or ValueError for a truncated pointer."""
    try:
        text = (table / LAST_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return None
    return decode_last_checkpoint(text)


def decode_last_checkpoint(text: bytes) -> LastCheckpoint:
    """Decode the pointer. Raises ValueError for a truncated one."""
    return _last_checkpoint_decoder.decode(text)


def point_to_checkpoint(table: Path, version: int) -> None:
    """Write the pointer to a one-file checkpoint, while no process reads the table.

    Raises:
        OSError, pyarrow.ArrowException: The checkpoint cannot be read, or the pointer cannot be written.
    """
    rows = pq.read_metadata(table / checkpoint_name(version)).num_rows
    (table / LAST_CHECKPOINT).write_bytes(_json.encode(LastCheckpoint(version, rows)))


def read_checkpoint(path: Path) -> dict[str, File]:
    """Active files at the version of a checkpoint, by path.

    Raises:
        OSError, ValueError, KeyError, pyarrow.ArrowException: The checkpoint cannot be read.
    """
    with pq.ParquetFile(path) as checkpoint:
        adds = checkpoint.read(_CHECKPOINT_COLUMNS, use_threads=False)["add"].combine_chunks()
    adds = adds.filter(pc.is_valid(pc.struct_field(adds, "path")))
    if pc.any(pc.is_valid(pc.struct_field(adds, ["deletionVector", "storageType"]))).as_py():
        raise UnreadableError(f"{path} has deletion vectors")
    columns = ("path", "partitionValues", "stats", "size")
    paths, values, stats, sizes = (pc.struct_field(adds, name).to_pylist() for name in columns)
    return {found[0]: File(*found) for found in zip(paths, map(dict, values), stats, sizes, strict=True)}


# --- the files of a version ---


class Active(NamedTuple):
    """The files of a table at a version."""

    version: int
    files: list[File]


def active(uri: str, version: int | None = None) -> Active:
    """The files of a table at a version. Default: the newest version.

    Raises:
        TableNotFoundError: There is no table.
        DamagedTableError: A file of its log is damaged.
        DeltaError, OSError: The table cannot be read.
    """
    if is_local(uri):
        try:
            found = _from_log(Path(uri).absolute(), version)
        except (OSError, ValueError, pa.ArrowException):
            check_commits(Path(uri))  # deltalake reads an empty entry as a commit without changes
            found = None  # cleaned up meanwhile, or written by another program
        if found is not None:
            return found
    try:
        table = DeltaTable(uri, version=version)
    except TableNotFoundError:
        if is_local(uri):
            with suppress(FileNotFoundError):
                Path(uri).stat()  # OSError if the table exists but cannot be read (loop of links, permission)
        raise
    except DeltaError as error:
        if is_local(uri) and (damage := damage_in(Path(uri))):
            raise DamagedTableError(damage) from error
        raise
    return Active(table.version(), files_of(table))


def files_of(table: DeltaTable) -> list[File]:
    """The active files of an open table."""
    return [
        File(
            path=action["path"],
            partition_values=action.get("partition") or {},
            stats=json.dumps({"minValues": _integers(action.get("min")), "maxValues": _integers(action.get("max"))}),
            size=action["size_bytes"],
        )
        for action in pa.table(table.get_add_actions()).to_pylist()
    ]


def _integers(values: Mapping[str, Any] | None) -> dict[str, int]:
    """Integer statistics. routelake reads epochs from them."""
    return {name: value for name, value in (values or {}).items() if isinstance(value, int)}


def _from_log(table: Path, version: int | None) -> Active | None:
    """Read the files from the log. None if the last checkpoint cannot be used or a commit is missing."""
    at, files = -1, dict[str, File]()
    last = read_last_checkpoint(table)
    if last is not None:
        if last.parts is not None:
            return None
        at, files = last.version, read_checkpoint(table / checkpoint_name(last.version))
    for reached, entry in _entries(table, at + 1, version):
        entry.apply_to(files)
        at = reached
    return Active(at, list(files.values())) if at >= 0 and version in (None, at) else None


# --- damage ---


class DamagedTableError(RoutelakeError):
    """A file of the log of a table is damaged. The message names the file."""


def check_commits(table: Path) -> None:
    """Check that all commits since the last checkpoint can be read. The present state depends on them.

    Raises:
        DamagedTableError: An entry is truncated, empty or of a newer protocol.
        OSError: An entry cannot be read.
    """
    for _ in _entries(table, _checkpointed(table) + 1):
        pass


def check_names(table: Path) -> None:
    """Check that no commit is missing between others, and that the last checkpoint exists.

    Raises:
        DamagedTableError: A commit or the checkpoint is missing.
        OSError: The folder of the log cannot be read.
    """
    checkpoint = _checkpointed(table)
    if checkpoint >= 0:
        (table / checkpoint_name(checkpoint)).stat()
    try:
        versions = versions_of(table).entries
    except FileNotFoundError:
        return  # there is no table yet
    for before, after in itertools.pairwise(versions):
        if after != before + 1 and after > checkpoint:
            raise DamagedTableError(f"{table / entry_name(before + 1)} is missing, though {entry_name(after)} is there")


def damage_in(table: Path) -> str | None:
    """Describe the damaged or missing file of a table's log. None if the log is intact."""
    try:
        table.stat()
        check_commits(table)
        check_names(table)
    except (OSError, DamagedTableError) as found:
        return one_line(found)
    return None


def explain(table: Path, error: BaseException) -> str:
    """Reason why a table cannot be opened, in one line: the damaged file, or the library's message."""
    return damage_in(table) or one_line(error)


def damage_of(path: Path, file: File, *, read: bool = True) -> str | None:
    """Describe the damage of a data file. None if it is intact.

    Args:
        path: Path of the file.
        file: The file in an entry or a checkpoint.
        read: Also read all rows.
    """
    try:
        size = path.stat().st_size
        if file.size not in (None, size):
            return f"has {size} bytes, and was written with {file.size}"
        if not read:
            return None
        with pq.ParquetFile(path) as parquet:
            groups = range(parquet.num_row_groups)
            rows = sum(parquet.read_row_group(group, use_threads=False).num_rows for group in groups)
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"cannot be read: {one_line(error)}"
    expected = file.statistics.num_records
    return None if expected in (None, rows) else f"has {rows} rows, and was written with {expected}"


def _checkpointed(table: Path) -> int:
    """Version of the last checkpoint, or -1 (all commits count) without one or if the pointer is truncated."""
    try:
        last = read_last_checkpoint(table)
    except (OSError, ValueError):
        return -1
    return -1 if last is None else last.version
