# SPDX-License-Identifier: Apache-2.0
"""Repairs, in this order. After each step with changes, the data directory is examined again.

1. A missing entry or file is linked back from the fold's staging folder, which has the same file under another
   name (`lake.write.staging`) until the fold's next start. It is the lost file, byte for byte.
2. A checkpoint of a table that cannot be read is moved aside if the entries lead to the newest version without it.
3. A damaged event log is rebuilt from its own records if all lost records are in the tables.
4. If a table still cannot be read, the lake is rolled back to its newest intact epoch, provided that the event log has
   all later records (`ops.doctor.back`). Otherwise restore a backup: a lost data file cannot be reconstructed.

The fold itself replaces a truncated checkpoint of Spark at its next start.

The fold's lock is held throughout. Gateways may run, except during step 3. Removed files are kept in
``before-repair-<time>``, and those of an event log at another path in such a folder next to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from eventlog.sqlite.start import LockedLog
from lake.delta.ddl import lock_lake
from lake.delta.log import LOG_FOLDER, UnreadableError, checkpoint_name, entry_name, read_entry
from lake.write.staging import STAGING_FOLDER
from lake.write.synced import SYNCED_FILE
from ops.backup.marker import refuse_unfinished_restore
from ops.doctor.examine import Examination, examine
from ops.doctor.findings import Finding, Kind
from ops.doctor.log import salvage, salvageable
from ops.doctor.rollback import go_back, point_to_last_checkpoint
from ops.doctor.tables import TableOnDisk
from runtime.disk import sync_folder
from runtime.version import PROGRAM
from schemas.errors import SetupError

_LOG_FILES: Final = ("", "-wal", "-shm", "-journal")
_TABLE_KINDS: Final = frozenset({Kind.TABLE, Kind.ENTRY, Kind.FILE, Kind.BEHIND, Kind.CHECKPOINT_FILE})


class Repair:
    """One run of repairs.

    Attributes:
        done: completed repairs, as sentences.
        refused: reasons for repairs that were not done.
        aside: folder for removed files, in the data directory.
    """

    def __init__(self, data_dir: Path, log_path: Path | None, *, thorough: bool = False) -> None:
        self._data_dir = data_dir
        self._log_path = log_path
        self._thorough = thorough
        self.done: list[str] = []
        self.refused: list[str] = []
        self.aside = data_dir / datetime.now(UTC).strftime("before-repair-%Y%m%dT%H%M%S.%fZ")

    def run(self) -> Examination:
        """Do all possible repairs, and examine the result.

        Raises:
            SetupError: a fold runs, or a restore was interrupted. Nothing was changed.
        """
        refuse_unfinished_restore(self._data_dir)
        found = self._examine()
        if not found.findings:
            return found
        if not found.lake_dir.is_dir():
            self.refused.append("there is no lake to repair")
            return found
        with closing(lock_lake(found.lake_dir)):
            for step in (self._link_back, self._drop_checkpoints, self._rescue_log, self._go_back):
                before = -1
                while before < len(self.done):
                    before = len(self.done)
                    step(found)
                    if len(self.done) > before:
                        found = self._examine()  # shows findings that were hidden by the repaired ones
            found.fold_runs = False  # the examination saw the lock of this process
        return found

    def _examine(self) -> Examination:
        return examine(self._data_dir, self._log_path, thorough=self._thorough)

    def places_aside(self) -> list[Path]:
        """Existing folders with removed files: in the data directory, and next to an event log at another path."""
        places = [self._data_dir, *([] if self._log_path is None else [self._log_path.parent])]
        folders = {place.resolve() / self.aside.name: place / self.aside.name for place in reversed(places)}
        return [folder for folder in reversed(folders.values()) if folder.exists()]

    # --- the steps ---

    def _link_back(self, found: Examination) -> None:
        for finding in found.findings:
            if finding.table is None:
                continue
            table = found.lake_dir / finding.table
            staged = found.lake_dir / STAGING_FOLDER / finding.table
            if finding.kind in (Kind.FILE, Kind.OLD_FILE) and finding.file is not None:
                is_whole = partial(_has_size, size=_expected_size(found, finding))
                self._link(staged, table, Path(finding.where).relative_to(table), is_whole)
            elif finding.kind in (Kind.ENTRY, Kind.OLD_FILE) and finding.version is not None:
                self._link(staged, table, Path(entry_name(finding.version)), _is_entry)
            elif finding.kind is Kind.BEHIND and finding.version is not None:
                for version in range(found.tables[finding.table].newest + 1, finding.version + 1):
                    self._link(staged, table, Path(entry_name(version)), _is_entry)

    def _link(self, staged: Path, table: Path, name: Path, is_whole: Callable[[Path], bool]) -> None:
        source, target = staged / name, table / name
        if not source.exists() or (target.exists() and source.samefile(target)) or not is_whole(source):
            return
        if target.exists():
            self._move_aside(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
        sync_folder(target.parent)
        self.done.append(f"{target}: linked back from {staged}")

    def _drop_checkpoints(self, found: Examination) -> None:
        for finding in found.findings:
            table = found.tables.get(finding.table or "")
            if table is None or table.disk is None or table.newest < 0:
                continue
            if finding.kind is Kind.CHECKPOINT_FILE and finding.version is not None:
                self._move_aside(table.disk.path / checkpoint_name(finding.version))
                self._point(TableOnDisk(table.disk.path), table.newest)
                self.done.append(f"{finding.where}: moved aside; the entries of the log lead to the newest version")
            elif finding.kind is Kind.POINTER:
                self._point(table.disk, table.newest)
                self.done.append(f"{finding.where}: written anew")

    def _point(self, disk: TableOnDisk, version: int) -> None:
        point_to_last_checkpoint(disk, version)
        sync_folder(disk.path / LOG_FOLDER)

    def _rescue_log(self, found: Examination) -> None:
        path = self._log_path
        if path is None or not any(finding.kind is Kind.LOG_UNREADABLE for finding in found.findings):
            return
        if any(finding.kind in _TABLE_KINDS for finding in found.findings):
            self.refused.append(f"{path} and tables are damaged, so neither can repair the other")
            return
        with closing(LockedLog(path, wait_s=2.0)) as held:
            if not held.alone:
                self.refused.append(f"{path} is in use: stop all gateways first (`fuser -v {path}-lock`)")
                return
            if why := salvageable(path, found.needs_from):
                self.refused.append(f"{path} cannot be repaired: {why}")
                return
            fresh = path.with_name(path.name + ".repair.unfinished")
            fresh.unlink(missing_ok=True)
            extent = salvage(path, found.needs_from, fresh)
            self._spark_aside(found)
            for suffix in _LOG_FILES:
                if (old := path.with_name(path.name + suffix)).exists():
                    self._move_aside(old)
            fresh.rename(path)
            sync_folder(path.parent)
        self.done.append(
            f"{path}: rebuilt with the records from offset {extent.first} to {extent.end - 1}; the tables have the "
            "earlier ones, and no acknowledged record is lost"
        )

    def _go_back(self, found: Examination) -> None:
        if not any(finding.kind in _TABLE_KINDS for finding in found.findings):
            return
        if found.place is None:
            self.refused.append(_why_not_back(found, self._log_path))
            return
        commit, versions = found.place
        last = found.last
        disks = {name: disk for name in versions if (disk := found.tables[name].disk) is not None}
        if unread := [name for name in versions if name not in disks]:
            self.refused.append(f"the tables cannot be repaired: {', '.join(unread)} cannot be read. Restore a backup")
            return
        self._spark_aside(found)
        (found.lake_dir / SYNCED_FILE).unlink(missing_ok=True)
        go_back(disks, found.place, self.aside / "lake")
        was = f"epoch {last.epoch}, the last that could be read" if last is not None else "an unreadable epoch"
        self.done.append(
            f"{found.lake_dir}: set back from {was} to epoch {commit.epoch} (log offset "
            f"{max(commit.log_offset, 0)}), which is intact. The event log has everything since, so no acknowledged "
            "record is lost. The next start of the fold makes the later epochs again, perhaps with other offsets"
        )

    # --- helpers ---

    def _spark_aside(self, found: Examination) -> None:
        if found.checkpoint_dir.exists():
            self._move_aside(found.checkpoint_dir)

    def _move_aside(self, path: Path) -> None:
        if path.is_relative_to(self._data_dir):
            target = self.aside / path.relative_to(self._data_dir)
        else:  # an event log at another path, which may be on another file system
            target = path.parent / self.aside.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        sync_folder(path.parent)


def _why_not_back(found: Examination, log_path: Path | None) -> str:
    if log_path is None:
        return "this command cannot repair the tables from an event log in Kafka: restore the lake with --keep-log"
    if found.log is None or found.log.extent is None:
        return "the tables cannot be repaired without an intact event log"
    extent = found.log.extent
    return (
        f"the tables cannot be repaired from the event log: it has the offsets from {extent.first} to {extent.end - 1}"
        ", and no readable epoch continues from there. Restore a backup: "
        f"{PROGRAM} restore --keep-log"
    )


def _expected_size(found: Examination, finding: Finding) -> int | None:
    table = found.tables[finding.table or ""]
    if table.disk is None:
        raise ValueError(f"{finding.where}: its size is not known, because the table's log cannot be read")
    for entry in table.disk.entries.values():
        for file in (*entry.added, *entry.feed):
            if file.path == finding.file:
                return file.size
    newest = table.disk.files_at(table.newest) or {}
    named = newest.get(finding.file or "")
    return None if named is None else named.size


def _has_size(path: Path, *, size: int | None) -> bool:
    return size is None or path.stat().st_size == size


def _is_entry(path: Path) -> bool:
    try:
        read_entry(path)
    except (UnreadableError, OSError):
        return False
    return True


def check_can_repair(data_dir: Path) -> None:
    """Refuse a data directory that this user cannot write. Raises SetupError."""
    if not os.access(data_dir, os.W_OK):
        raise SetupError(f"{data_dir} cannot be written by this user. Run this command as the user of routelake.")
