# SPDX-License-Identifier: Apache-2.0
"""Staging folder of a table, in which delta-rs commits to a short log.

For each commit, delta-rs lists the whole ``_delta_log`` folder twice, and its table object keeps every commit it has
made. A commit takes 4 ms in a young table and 190 ms after 100,000 versions (docs/adr/0007). So the one writer works in
a folder with a log that starts again every 50 commits. Each commit is then hard-linked into the table: first its data
files, then its log entry, which makes the commit visible. No data is copied. Readers see an ordinary Delta table.

The folder is made again from the table at each start. It has nothing that the table lacks, except a commit of a process
that died before it linked the commit. Source: the Delta transaction protocol, "Delta Log Entries" and "Checkpoints".

Shards write data files (`lake.delta.data_file`), and this module commits them. A partition with replaced rows needs a
file of its change data feed, which the API of delta-rs does not support. So this module writes the log entries, with
the actions of delta-rs's own WRITE and MERGE (docs/adr/0021). They are commits in the staging folder. Readers see them
after `StagedTable.publish` has linked them into the table.

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
from deltalake import DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError

from lake.delta.data_file import (
    CHANGE_TYPE,
    INSERTED,
    NO_TWO_ALIKE,
    DataFile,
    Partition,
    drop_arrow_types,
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
"""Folder in the lake. It can be deleted while the fold is stopped. Backups leave it out."""

_BEGIN_AFTER_COMMITS: Final = 50
_NO_CHECKPOINT: Final = LastCheckpoint(0, 0)


class StagedTable:
    """One table, written by one process. Call `publish` after each use of `delta` that commits.

    Attributes:
        path: the table.
        staging: its staging folder.
        delta: the table in its staging folder, for delta-rs to commit to.
        version: the newest version that has been published.
        last_checkpoint: the last checkpoint of the table. Version and size are 0 without one. It lists the active files
            and the files removed within the retention.
    """

    def __init__(self, table: DeltaTable, path: Path, staging: Path) -> None:
        """Make the staging folder.

        Args:
            table: the table, at its newest version.
            path: its folder.
            staging: folder to create, on the same file system. An existing one is replaced.

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
        """Make the staging folder again, after another program has written to the table.

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
                (path / name).stat()  # before staging is removed: it may still have a lost file (`ops.doctor`)
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
        """Link the commits of `delta` into the table.

        Raises:
            UnavailableError: another program has written to the table. `stage_anew` or a restart continues from the
                present version.
            DeltaError, OSError: storage failed. Another call continues.
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
        """Link or copy a file into the staging folder, for a commit.

        Args:
            file: present path, which may be the final one. On the same file system the file is linked, else copied.
            name: path relative to the table.

        Returns:
            The name.

        Raises:
            OSError: storage failed.
        """
        old, new = Path(file), self.staging / name
        if old == new:
            return name
        if old.stat().st_uid == os.geteuid():  # a link to another user's file could not be written to
            with suppress(OSError):  # another file system, or one without hard links
                self._staged.put(name, old)
                return name
        new.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old, new)
        return name

    def checkpoint(self) -> None:
        """Write a checkpoint of the table."""
        self.publish()
        self.last_checkpoint = self._make_checkpoint(DeltaTable(str(self.path)))

    def maintain(self, work: Callable[[DeltaTable], object]) -> None:
        """Call `work`, such as a vacuum, with the table itself. Link its commits into the staging folder."""
        self.publish()
        try:
            work(DeltaTable(str(self.path)))
        finally:
            # Also after an error: vacuum commits before it deletes.
            while (self.path / entry_name(self.version + 1)).exists():
                commit = Commit.read(self.path, "", self.version + 1)
                publish(self.path, self._staged, [[commit]], done=self._reached)
            self.delta.update_incremental()

    def _find_checkpoint(self, table: DeltaTable) -> LastCheckpoint:
        """Find or write a checkpoint to start the staged log from. `_NO_CHECKPOINT` if the log starts at version 0."""
        try:
            last = read_last_checkpoint(self.path)
            if last is None and (self.path / entry_name(0)).exists():
                return _NO_CHECKPOINT
            if last is not None and last.parts is None and (self.path / checkpoint_name(last.version)).exists():
                return last
        except ValueError:
            pass  # truncated or against the protocol: a new one replaces it
        return self._make_checkpoint(table)

    def _make_checkpoint(self, table: DeltaTable) -> LastCheckpoint:
        table.create_checkpoint()
        last = read_last_checkpoint(self.path)
        if last is None:
            raise OSError(f"delta-rs wrote a checkpoint of {self.path}, and {LAST_CHECKPOINT} does not name it")
        return last

    def _begin_anew(self) -> None:
        """Shorten the staged log to the newest version and open the table again."""
        self.delta.create_checkpoint()
        self._stage_checkpoint(self.staging / checkpoint_name(self.version), self.version)
        for file in (self.staging / LOG_FOLDER).iterdir():
            number = file.name.partition(".")[0]
            if number.isdigit() and int(number) < self.version:
                file.unlink()
        self.delta, self._begun_at = DeltaTable(str(self.staging)), self.version

    def _stage_checkpoint(self, checkpoint: Path, version: int) -> None:
        """Write a checkpoint into staging without the actions that only vacuum needs.

        Those are the files removed within the retention, by far the largest part of a checkpoint.
        """
        wanted = pc.is_null(pc.field("remove")) if "remove" in pq.read_schema(checkpoint).names else None
        actions = pq.read_table(checkpoint, filters=wanted, partitioning=None)
        pq.write_table(actions, self.staging / checkpoint_name(version))
        point_to_checkpoint(self.staging, version)

    def _reached(self, commit: Commit) -> None:
        """Note that table and staging have a commit. Delete staged files that staging never reads."""
        self.version = commit.version
        for file in (*commit.entry.feed, *commit.entry.removed):
            (self.staging / unquote(file.path)).unlink(missing_ok=True)


def stage(lake_dir: Path, tables: Mapping[str, DeltaTable]) -> dict[str, StagedTable]:
    """Make the staging folders for the tables of a lake. The tables are at their newest versions.

    Raises:
        SetupError: as `StagedTable`.
    """
    staging = lake_dir / STAGING_FOLDER
    return {name: StagedTable(table, lake_dir / name, staging / name) for name, table in tables.items()}


NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""No checkpoints and clean-up after a commit: maintenance does both, between batches."""

FEED_FOLDER: Final = "_change_data"


def append_files(
    staged: StagedTable, files: Iterable[tuple[dict[str, str], DataFile]], transaction: Transaction
) -> None:
    """Commit files that are only added.

    Args:
        staged: table of the files.
        files: each file with the values of its partition, which are empty in a table without partitions.
        transaction: application transaction of the commit.

    Raises:
        DeltaError, OSError: storage failed.
    """
    _commit(staged, "WRITE", [_add(staged, values, file) for values, file in files], transaction)


def change_partitions(
    staged: StagedTable, table: Table, partitions: Sequence[Partition], transaction: Transaction
) -> None:
    """Commit changes of partitions. Each partition is named once.

    Raises:
        ValueError: a partition is named twice or without a change. Nothing was committed.
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
    _commit(staged, "MERGE", actions, transaction)


def _commit(staged: StagedTable, operation: str, actions: Iterable[dict[str, Any]], transaction: Transaction) -> None:
    # The transaction comes last, as in delta-rs's entries: a truncated entry then lacks it (`lake.delta.log`).
    end = {"appId": transaction.app_id, "version": transaction.version, "lastUpdated": time.time_ns() // 1_000_000}
    entry = encode_entry([commit_info(operation, {}), *actions, {"txn": end}])
    write_whole(staged.staging / entry_name(staged.delta.version() + 1), entry.decode())
    staged.delta.update_incremental()
    staged.publish()


def _removed(staged: StagedTable, table: Table, partitions: Sequence[Partition]) -> Iterator[dict[str, Any]]:
    """Remove actions for the present files of the partitions with replaced rows."""
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
    """The change feed action of a partition. A commit with a feed has all its changes there, also rows only added."""
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
    """Percent-encode a path for the log."""
    return quote(name, safe="/=")
