# SPDX-License-Identifier: Apache-2.0
"""A Delta table's log: entries, checkpoints, the files of a version, and damage that keeps a table from being opened.

deltalake lists the whole ``_delta_log`` folder to open a table and reads all that its checkpoint has, most of which are
files removed within the retention: 160 ms after 37,000 commits, four times in a gateway's start. `active` reads the
pointer ``_last_checkpoint``, four columns of the checkpoint, and a file for each commit since. Where that does not lead
to the version (an older one, a pointer that is torn, another layout, storage that is not local), deltalake opens it.

deltalake does not name a damaged file. It takes a commit of no bytes, as a power cut leaves it, for one that changed
nothing, and the table for an older one.

Source: the Delta transaction protocol, "Delta Log Entries", "Actions", "Checkpoints", "Last Checkpoint File", "Action
Reconciliation", "Per-file Statistics".
"""

from __future__ import annotations

import itertools
import json
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
"""Of routelake's tables: it makes none that need more, and reads none that do."""

_OF_A_BATCH: Final = ("WRITE", "MERGE")
"""Operations with the app transaction at the end of their commits (lake/write/writer.py)."""

_CHECKPOINT_COLUMNS: Final = ["add.path", "add.partitionValues", "add.stats", "add.size", "add.deletionVector"]


def table_uri(lake_dir: str, table: Table) -> str:
    """URI of a table."""
    return f"{lake_dir.rstrip('/')}/{table.name}"


def is_local(lake_dir: str) -> bool:
    """Return True if the lake is a directory of this machine."""
    return "://" not in lake_dir


def entry_name(version: int) -> str:
    """The path of a version's entry, relative to the table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def checkpoint_name(version: int) -> str:
    """The path of a version's checkpoint, relative to the table, if there is one and it is one file."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"


class LogVersions(NamedTuple):
    """Versions that have an entry, and those that have a checkpoint of one file, each in order."""

    entries: list[int]
    checkpoints: list[int]


def log_versions(names: Iterable[str]) -> LogVersions:
    """The versions that a log has, by the names of its files."""
    found: dict[str, list[int]] = {"json": [], "checkpoint.parquet": []}
    for name in names:
        number, _, kind = name.partition(".")
        if number.isdigit() and kind in found:
            found[kind].append(int(number))
    return LogVersions(*map(sorted, found.values()))


def versions_of(table: Path) -> LogVersions:
    """The versions that a table's log has. Raises OSError."""
    return log_versions(path.name for path in (table / LOG_FOLDER).iterdir())


# --- entries ---


class _Bounds(msgspec.Struct, frozen=True):
    epoch: int | None = None


class Statistics(msgspec.Struct, frozen=True, rename="camel"):
    """The statistics of a file, as far as routelake looks at them."""

    num_records: int | None = None
    min_values: _Bounds = _Bounds()
    max_values: _Bounds = _Bounds()


_decode_statistics = msgspec.json.Decoder(Statistics).decode


class File(msgspec.Struct, rename="camel"):
    """A data file or a file of the change feed.

    Attributes:
        path: Percent-encoded, relative to the table.
        partition_values: Of its rows, by column.
        stats: JSON: numRecords, minValues, maxValues, nullCount.
        size: In bytes; None in a removal that does not say it.
        data_change: False where rows were only put together anew.
        deletion_timestamp: That of a removal, ms since 1970.
        deletion_vector: routelake writes none.
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
    """Marker of a transaction action; no field is read."""


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
    """An entry or a checkpoint is not what it should be; says how."""


class Entry(msgspec.Struct, frozen=True):
    """A commit of a table, as routelake reads it."""

    actions: list[_Action]

    @property
    def added(self) -> list[File]:
        """Files that the table has from then on."""
        return [action.add for action in self.actions if action.add is not None]

    @property
    def removed(self) -> list[File]:
        """Files that the table has no more."""
        return [action.remove for action in self.actions if action.remove is not None]

    @property
    def feed(self) -> list[File]:
        """Files of the change feed."""
        return [action.cdc for action in self.actions if action.cdc is not None]

    @property
    def changed(self) -> list[File]:
        """Files that tell what the commit changed: its feed if it has one, else its data files."""
        changed = (action.add or action.remove for action in self.actions)
        return self.feed or [file for file in changed if file is not None and file.data_change]

    @property
    def time_ms(self) -> int:
        """Commit time, ms since 1970; 0 if the entry does not have it."""
        return next((action.commit_info.timestamp for action in self.actions if action.commit_info is not None), 0)

    @property
    def properties(self) -> dict[str, str] | None:
        """The table's properties, where it sets them."""
        return next((action.meta_data.configuration for action in self.actions if action.meta_data is not None), None)

    def apply_to(self, files: dict[str, File]) -> None:
        """Turn the files of the version before, by path, into those of this one."""
        for action in self.actions:
            if action.remove is not None:
                files.pop(action.remove.path, None)
            if action.add is not None:
                files[action.add.path] = action.add


def commit_info(operation: str, parameters: dict[str, str]) -> dict[str, Any]:
    """The action that tells who made a commit, when, and by which operation."""
    said = {"timestamp": time.time_ns() // 1_000_000, "operation": operation, "operationParameters": parameters}
    return {"commitInfo": {**said, "engineInfo": "routelake", "txnId": str(uuid.uuid4())}}


def encode_entry(actions: Iterable[dict[str, Any]]) -> bytes:
    """Encode the lines of a commit."""
    return b"".join(_json.encode(action) + b"\n" for action in actions)


def decode_entry(text: bytes) -> Entry:
    """Decode the lines of a commit.

    Raises:
        UnreadableError: It is torn, of which a power cut may have left no byte, or of a protocol that is not ours.
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
    """Read a commit that routelake has made.

    Raises:
        UnreadableError: As `decode_entry`; also where a batch's commit was cut after a line.
        OSError: It cannot be read.
    """
    entry = decode_entry(path.read_bytes())
    infos = (action.commit_info for action in entry.actions if action.commit_info is not None)
    if any(info.operation in _OF_A_BATCH for info in infos) and all(action.txn is None for action in entry.actions):
        raise UnreadableError("is cut after a line: it lacks its batch's transaction, which comes last")
    return entry


def _entries(table: Path, first: int, last: int | None = None) -> Iterator[tuple[int, Entry]]:
    """Commits from a version on, in order, up to the last or to one that is not there.

    Raises:
        DamagedTableError: One cannot be read.
        OSError: As for any file.
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
    """The pointer to a table's last checkpoint.

    Attributes:
        version: Of the table.
        size: Number of its actions.
        parts: Number of its files, where it is not one.
    """

    version: int
    size: int
    parts: int | None = None


_last_checkpoint_decoder = msgspec.json.Decoder(LastCheckpoint)


def read_last_checkpoint(table: Path) -> LastCheckpoint | None:
    """Read the pointer; None where the table has no checkpoint. Raises OSError, or ValueError for one that is torn."""
    try:
        text = (table / LAST_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return None
    return decode_last_checkpoint(text)


def decode_last_checkpoint(text: bytes) -> LastCheckpoint:
    """Decode the pointer. Raises ValueError for one that is torn."""
    return _last_checkpoint_decoder.decode(text)


def point_to_checkpoint(table: Path, version: int) -> None:
    """Point to a checkpoint of one file, in a table that nobody reads yet. Raises OSError, pyarrow.ArrowException."""
    rows = pq.read_metadata(table / checkpoint_name(version)).num_rows
    (table / LAST_CHECKPOINT).write_bytes(_json.encode(LastCheckpoint(version, rows)))


def read_checkpoint(path: Path) -> dict[str, File]:
    """The files of a checkpoint's version, by path.

    Raises:
        OSError, ValueError, KeyError, pyarrow.ArrowException: It cannot be read.
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
    """The files of a table at a version, or at the newest.

    Raises:
        TableNotFoundError: There is no table.
        DamagedTableError: A file of its log is damaged.
        DeltaError, OSError: It cannot be read.
    """
    if is_local(uri):
        try:
            found = _from_log(Path(uri).absolute(), version)
        except (OSError, ValueError, pa.ArrowException):
            check_commits(Path(uri))  # deltalake takes an empty one for one that changed nothing
            found = None  # cleaned up meanwhile, or not as routelake writes it
        if found is not None:
            return found
    try:
        table = DeltaTable(uri, version=version)
    except TableNotFoundError:
        if is_local(uri):
            with suppress(FileNotFoundError):
                Path(uri).stat()  # a loop of links, or a folder that is closed to us, is no table that is not there
        raise
    except DeltaError as error:
        if is_local(uri) and (damage := damage_in(Path(uri))):
            raise DamagedTableError(damage) from error
        raise
    return Active(table.version(), files_of(table))


def files_of(table: DeltaTable) -> list[File]:
    """The same from an open table."""
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
    """Statistics of whole numbers, in which routelake looks for an epoch."""
    return {name: value for name, value in (values or {}).items() if isinstance(value, int)}


def _from_log(table: Path, version: int | None) -> Active | None:
    """None where the last checkpoint is of no use, or a commit is missing."""
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
    """A file of a table's log is not as it was written; the message names it."""


def check_commits(table: Path) -> None:
    """Read the commits since the last checkpoint: those that tell what a table holds now.

    Raises:
        DamagedTableError: One is torn, or empty, or of a protocol that is not ours.
        OSError: One cannot be read.
    """
    for _ in _entries(table, _checkpointed(table) + 1):
        pass


def check_names(table: Path) -> None:
    """Look for a commit that is missing between others, or the last checkpoint.

    Raises:
        DamagedTableError: One is.
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
    """The file of a table's log that is damaged or missing, in words; None if there is none."""
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
    """Damage of a data file, in words; None if it is as it was written.

    Args:
        path: Where it lies.
        file: As an entry or a checkpoint names it.
        read: Whether all rows are read, too.
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
    """Version of the last checkpoint; -1 without one, or where the pointer to it is torn: then all commits count."""
    try:
        last = read_last_checkpoint(table)
    except (OSError, ValueError):
        return -1
    return -1 if last is None else last.version
