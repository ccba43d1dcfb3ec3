# SPDX-License-Identifier: Apache-2.0
"""A table's staging folder: where delta-rs commits, on a log that stays short.

For each commit delta-rs lists the whole ``_delta_log`` folder twice, and its table object remembers every commit it
has made: 4 ms in a young table, 190 ms after 100,000 versions (docs/adr/0007). So the one writer works in a folder
whose log begins anew every 50 commits, and every commit is then linked into the table: its data files, and last its
entry in the log, which makes it exist. Hard links: no data is copied, and to whoever reads it the table is an ordinary
Delta table.

The folder holds nothing that is not in the table, but for a commit whose process died before it was linked: it is made
anew from the table at each start. Source: the Delta transaction protocol, "Delta Log Entries" and "Checkpoints".

Shards write data files (`lake.delta.data_file`), which are committed here. Files that are only added are committed by
delta-rs. A partition whose rows are replaced also takes a file of its change data feed, of which delta-rs's API knows
nothing, so that entry of the log is written here: with the actions that delta-rs's own MERGE writes (docs/adr/0021).
Either is a commit in the staging folder like any other, and exists for readers when `StagedTable.publish` has linked
it into the table.

Source: the Delta transaction protocol, "Actions": Commit Provenance Information, Transaction Identifiers, Add File and
Remove File, Add CDC File.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from lake.delta.arrow_types import drop_arrow_types
from lake.delta.data_file import (
    CHANGE_TYPE,
    INSERTED,
    NO_TWO_ALIKE,
    DataFile,
    Partition,
    write_data_file,
)
from lake.delta.ddl import write_whole
from lake.delta.log import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    LastCheckpoint,
    checkpoint_name,
    commit_info,
    encode_entry,
    entry_name,
    point_to_checkpoint,
    read_last_checkpoint,
)
from lake.publisher import Commit, Folder, publish
from lake.store import TakenError
from runtime.disk import at_start
from runtime.version import PROGRAM
from schemas.errors import UnavailableError, one_line
from schemas.tables import Table

STAGING_FOLDER: Final = "_staging"
"""In the lake. It can be deleted while the fold is stopped, and needs no place in a backup."""

_BEGIN_AFTER_COMMITS: Final = 50
_NO_CHECKPOINT: Final = LastCheckpoint(0, 0)


class StagedTable:
    """One table, written by one process. Call `publish` after each use of `delta` that commits.

    Attributes:
        path: the table.
        staging: its staging folder.
        delta: the table in its staging folder, for delta-rs to commit to.
        version: the newest version that has been published.
        last_checkpoint: of the table; of version and size 0 if there is none. Its actions are files, and files removed
            within the retention.
    """

    def __init__(self, table: DeltaTable, path: Path, staging: Path) -> None:
        """Make the staging folder.

        Args:
            table: the table, at its newest version.
            path: where it lies.
            staging: made anew, on the same file system.

        Raises:
            SetupError: a file of the table is missing, or the folder cannot be written.
            UnavailableError: the disk is full or failing.
        """
        self.path = path
        self.staging = staging
        self._table = Folder(path)
        self._staged = Folder(staging, may_copy=True)  # where files are only read
        self._stage(table)

    def stage_anew(self) -> None:
        """Begin again from what is there, where somebody else has written to the table.

        Raises:
            DeltaError: the table cannot be opened.
            SetupError, UnavailableError: as the constructor.
        """
        self._stage(DeltaTable(str(self.path)))

    def _stage(self, table: DeltaTable) -> None:
        path, staging = self.path, self.staging
        self.version = table.version()
        try:
            last = self.last_checkpoint = self._find_checkpoint(table)
            files = [unquote(file) for file in table.get_add_actions()["path"].to_pylist()]
            entries = [entry_name(version) for version in range(last.version, self.version + 1)]
            for name in (*files, *entries):
                (path / name).stat()  # what is lost may still be in the staging folder: `ops.doctor`
            if staging.exists():
                shutil.rmtree(staging)
            (staging / LOG_FOLDER).mkdir(parents=True)
            for name in (*files, *entries):
                self._staged.put(name, path / name)
            if last is not _NO_CHECKPOINT:
                self._stage_checkpoint(path / checkpoint_name(last.version), last.version)
            self.delta, self._begun_at = DeltaTable(str(staging)), last.version
        except (DeltaError, OSError) as error:
            raise at_start(error)(
                f"the table {path} cannot be made ready for writing in {staging}: {one_line(error)}. Both must be on "
                f"one file system, with room on it, and all files of the table must exist. Run `{PROGRAM} doctor` "
                "to see what is lost and can be repaired. Otherwise restore a backup."
            ) from error

    def publish(self) -> None:
        """Let the table have what was committed to `delta`.

        Raises:
            UnavailableError: somebody else has written to the table. `stage_anew`, or another start, goes on from what
                is there.
            DeltaError, OSError: storage failed; calling again goes on.
        """
        while self.version < self.delta.version():
            commit = Commit.read(self.staging, "", self.version + 1)
            for file in commit.files:
                drop_arrow_types(self.staging / file)
            try:
                publish(self.staging, self._table, [[commit]], done=self._reached)
            except TakenError as error:
                raise UnavailableError(
                    f"{self.path / entry_name(self.version + 1)} was written by another program while routelake held "
                    "the lake. routelake restarts from the present version."
                ) from error
        if self.version - self._begun_at >= _BEGIN_AFTER_COMMITS:
            self._begin_anew()

    def take(self, file: str, name: str) -> str:
        """Let the staging folder have a file that somebody else has written, for a commit.

        Args:
            file: where it lies, which may be its place; on the same file system it is linked, else copied.
            name: relative to the table.

        Returns:
            The name.

        Raises:
            OSError: storage failed.
        """
        old, new = Path(file), self.staging / name
        if old == new:
            return name
        if old.stat().st_uid == os.geteuid():  # a file of another user's could not be written to
            with suppress(OSError):  # another file system, or one that has no links
                self._staged.put(name, old)
                return name
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old, new)
        return name

    def commit(self, entry: bytes) -> None:
        """Commit the lines of an entry of the log to `delta`.

        Raises:
            DeltaError, OSError: storage failed.
        """
        write_whole(self.staging / entry_name(self.delta.version() + 1), entry.decode())
        self.delta.update_incremental()

    def checkpoint(self) -> None:
        """Write a checkpoint of the table."""
        self.publish()
        self.last_checkpoint = self._make_checkpoint(DeltaTable(str(self.path)))

    def maintain(self, work: Callable[[DeltaTable], object]) -> None:
        """Do what concerns the whole table, such as vacuum, on the table itself; its commits are taken over."""
        self.publish()
        try:
            work(DeltaTable(str(self.path)))
        finally:
            # Also what it committed before it failed: vacuum does so before it deletes.
            while (self.path / entry_name(self.version + 1)).exists():
                commit = Commit.read(self.path, "", self.version + 1)
                publish(self.path, self._staged, [[commit]], done=self._reached)
            self.delta.update_incremental()

    def _find_checkpoint(self, table: DeltaTable) -> LastCheckpoint:
        """One that can be begun with; none where none is needed."""
        try:
            last = read_last_checkpoint(self.path)
            if last is None and (self.path / entry_name(0)).exists():
                return _NO_CHECKPOINT
            if last is not None and last.parts is None and (self.path / checkpoint_name(last.version)).exists():
                return last
        except ValueError:
            pass  # torn, or not as the protocol has it: a new one takes its place
        return self._make_checkpoint(table)

    def _make_checkpoint(self, table: DeltaTable) -> LastCheckpoint:
        table.create_checkpoint()
        last = read_last_checkpoint(self.path)
        if last is None:
            raise OSError(f"delta-rs wrote a checkpoint of {self.path}, and {LAST_CHECKPOINT} does not name it")
        return last

    def _begin_anew(self) -> None:
        """Let the staged log begin at the newest version, and open it."""
        self.delta.create_checkpoint()
        self._stage_checkpoint(self.staging / checkpoint_name(self.version), self.version)
        for file in (self.staging / LOG_FOLDER).iterdir():
            number = file.name.partition(".")[0]
            if number.isdigit() and int(number) < self.version:
                file.unlink()
        self.delta, self._begun_at = DeltaTable(str(self.staging)), self.version

    def _stage_checkpoint(self, checkpoint: Path, version: int) -> None:
        """Take a checkpoint into staging, but for what only vacuum asks for.

        Those are the files that were removed within the retention, by far the most of a checkpoint.
        """
        wanted = pc.is_null(pc.field("remove")) if "remove" in pq.read_schema(checkpoint).names else None
        actions = pq.read_table(checkpoint, filters=wanted, partitioning=None)
        pq.write_table(actions, self.staging / checkpoint_name(version))
        point_to_checkpoint(self.staging, version)

    def _reached(self, commit: Commit) -> None:
        """Both have a commit. In staging nobody reads what it has removed, nor its change feed."""
        self.version = commit.version
        for file in (*commit.entry.feed, *commit.entry.removed):
            (self.staging / unquote(file.path)).unlink(missing_ok=True)


def stage(lake_dir: Path, tables: Mapping[str, DeltaTable]) -> dict[str, StagedTable]:
    """Make the staging folders of a lake's tables, which were just opened.

    Raises:
        SetupError: see `StagedTable`.
    """
    staging = lake_dir / STAGING_FOLDER
    return {name: StagedTable(table, lake_dir / name, staging / name) for name, table in tables.items()}


NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up are maintenance's, between batches."""

FEED_FOLDER: Final = "_change_data"


def append_files(
    staged: StagedTable, files: Iterable[tuple[dict[str, str], DataFile]], transaction: Transaction
) -> None:
    """Commit files that are only added.

    Args:
        staged: their table.
        files: each with the values of its partition; none where the table has no partitions.
        transaction: the application's.

    Raises:
        DeltaError, OSError: storage failed.
    """
    actions: list[Any] = []
    partition_by: list[str] = []
    for values, file in files:
        partition_by = list(values)
        name = staged.take(file.path, file.place(values))  # delta-rs encodes it
        actions.append(AddAction(name, file.size_bytes, values, file.modified_ms, True, file.stats))
    staged.delta.create_write_transaction(
        actions,
        "append",
        staged.delta.schema(),
        partition_by,
        commit_properties=CommitProperties(app_transactions=[transaction]),
        post_commithook_properties=NO_HOOKS,
    )
    staged.delta.update_incremental()
    staged.publish()


def change_partitions(
    staged: StagedTable, table: Table, partitions: Sequence[Partition], transaction: Transaction
) -> None:
    """Commit what becomes of some partitions, each of which is named once.

    Raises:
        ValueError: one is named twice, or without a change; nothing was committed.
        DeltaError, OSError: storage failed.
    """
    named = [tuple(partition.values.values()) for partition in partitions]
    if len(set(named)) < len(named):
        raise ValueError(f"a batch names a partition of {table.name} twice: its rows would be, too")
    for partition in partitions:
        if partition.added is None and partition.feed is None:
            raise ValueError(f"a batch names the partition {partition.values} of {table.name}, and no change of it")
    if all(partition.feed is None for partition in partitions):
        append_files(staged, [(one.values, one.added) for one in partitions if one.added is not None], transaction)
        return
    actions = list(_removed(staged, table, partitions))
    for partition in partitions:
        if partition.added is not None:
            actions.append(_add(staged, partition.values, partition.added))
        actions.append(_feed(staged, table, partition))
    info = commit_info("MERGE", {})
    # The transaction comes last, as in delta-rs's entries: one that has lost its end shows it
    # (`lake.delta.log`).
    end = {
        "txn": {"appId": transaction.app_id, "version": transaction.version, "lastUpdated": time.time_ns() // 1_000_000}
    }
    staged.commit(encode_entry([info, *actions, end]))
    staged.publish()


def _removed(staged: StagedTable, table: Table, partitions: Sequence[Partition]) -> Iterator[dict[str, Any]]:
    """The files of the partitions that are replaced."""
    (column,) = table.partition_by
    names = pa.array([partition.values[column] for partition in partitions if partition.feed is not None])
    active = pa.table(staged.delta.get_add_actions())
    of = pc.struct_field(active["partition"], column)
    found = active.select(["path", "size_bytes", "partition"]).filter(pc.is_in(of, names))
    now_ms = time.time_ns() // 1_000_000
    for file in found.to_pylist():
        yield {
            "remove": {
                "path": file["path"],
                "deletionTimestamp": now_ms,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": file["partition"],
                "size": file["size_bytes"],
            }
        }


def _add(staged: StagedTable, values: dict[str, str], file: DataFile) -> dict[str, Any]:
    return {
        "add": {
            "path": _path(staged.take(file.path, file.place(values))),
            "partitionValues": values,
            "size": file.size_bytes,
            "modificationTime": file.modified_ms,
            "dataChange": True,
            "stats": file.stats,
        }
    }


def _feed(staged: StagedTable, table: Table, partition: Partition) -> dict[str, Any]:
    """A commit with a change data feed has all of its changes there, also rows that were only added."""
    file = partition.feed
    if file is None:
        assert partition.added is not None
        with pq.ParquetFile(staged.staging / partition.added.place(partition.values)) as added:
            rows = added.read(use_threads=False)
        rows = rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(INSERTED), len(rows)))
        folder = (staged.staging / FEED_FOLDER / partition.added.place(partition.values)).parent
        folder.mkdir(parents=True, exist_ok=True)
        file = write_data_file(folder, rows, [NO_TWO_ALIKE[table.name]])
    path = _path(staged.take(file.path, f"{FEED_FOLDER}/{file.place(partition.values)}"))
    return {"cdc": {"path": path, "size": file.size_bytes, "partitionValues": partition.values, "dataChange": False}}


def _path(name: str) -> str:
    """As the log has it."""
    return quote(name, safe="/=")
