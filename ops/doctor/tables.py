# SPDX-License-Identifier: Apache-2.0
"""Examination of one table: damage of its log and its files, and its readable versions.

Data deleted by log clean-up and vacuum is no damage. Log clean-up deletes entries before a checkpoint, and vacuum
deletes removed files after the retention.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lake.delta.log import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    Entry,
    File,
    LastCheckpoint,
    UnreadableError,
    checkpoint_name,
    damage_of,
    data_files,
    entry_name,
    read_checkpoint,
    read_entry,
    read_last_checkpoint,
    versions_of,
)
from ops.doctor.findings import Finding, Kind
from schemas.tables import Table

_NAMED: Final = 5
"""Maximum number of versions of one table that are named."""


_DAYS: Final = re.compile(r"interval (\d+) days?")
"""Retention in the format of `lake.delta.ddl`."""


class TableOnDisk:
    """The log of one table, read once. Nothing is written, and neither the pointer nor a checkpoint is trusted.

    Attributes:
        path: Folder of the table.
        entries: Readable commits, by version.
        torn: Reasons for unreadable commits, by version.
        absent: Versions with a missing commit. Clean-up leaves no gap and deletes nothing without a checkpoint.
        checkpoints: Versions with a one-file checkpoint.
        pointer: The last checkpoint named by ``_last_checkpoint``, or None without one.
        pointer_error: Reason why the pointer cannot be used. None if it can, or if it does not exist.

    Raises:
        OSError: The folder or its log cannot be listed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[int, Entry] = {}
        self.torn: dict[int, str] = {}
        numbers, self.checkpoints = versions_of(path)
        for version in numbers:
            try:
                self.entries[version] = read_entry(path / entry_name(version))
            except FileNotFoundError:
                continue  # cleaned up meanwhile
            except (UnreadableError, OSError) as error:
                self.torn[version] = str(error)
        newest = max([*numbers, *self.checkpoints], default=-1)
        # Clean-up deletes the oldest entries, and only if a checkpoint replaces them.
        first = min(numbers, default=0) if self.checkpoints else 0
        there = set(numbers)
        self.absent = [version for version in range(first, newest + 1) if version not in there]
        self.newest = newest
        self.pointer: LastCheckpoint | None = None
        self.pointer_error: str | None = None
        try:
            self.pointer = read_last_checkpoint(path)
        except (OSError, ValueError) as error:
            self.pointer_error = f"cannot be read ({error})"
        if self.pointer is not None and self.pointer.parts is None and self.pointer.version not in self.checkpoints:
            self.pointer_error = f"names the checkpoint of version {self.pointer.version}, which is missing"
        self._bases: dict[int, dict[str, File] | str] = {}

    def checkpoint_error(self, version: int) -> str | None:
        """Return the reason why a checkpoint cannot be read, or None if it can."""
        found = self._base(version)
        return found if isinstance(found, str) else None

    def files_at(self, version: int) -> dict[str, File] | None:
        """The files of a version by path, from the log, or None if the log does not lead to the version."""
        for checkpoint in reversed([number for number in self.checkpoints if number <= version]):
            base = self._base(checkpoint)
            if isinstance(base, dict):
                found = self._replay(dict(base), checkpoint + 1, version)
                if found is not None:
                    return found
        return self._replay({}, 0, version)

    def retention_days(self) -> int | None:
        """Days for which vacuum keeps removed files, from the table's properties, or None without this property."""
        set_by = (entry.properties for _, entry in sorted(self.entries.items(), reverse=True))
        properties = next((found for found in set_by if found is not None), None)
        if properties is None:
            properties = next(filter(None, map(self._properties_at, reversed(self.checkpoints))), {})
        said = _DAYS.fullmatch(properties.get("delta.deletedFileRetentionDuration", ""))
        return None if said is None else int(said[1])

    def _properties_at(self, checkpoint: int) -> dict[str, str]:
        path = self.path / checkpoint_name(checkpoint)
        try:
            rows = pq.read_table(path, columns=["metaData"], partitioning=None)["metaData"].to_pylist()
        except (OSError, ValueError, KeyError, pa.ArrowException):
            return {}
        return next((dict(row["configuration"] or {}) for row in rows if row is not None), {})

    def newest_readable(self) -> int:
        """The greatest version to which the log leads, or -1 for none."""
        for version in range(self.newest, -1, -1):
            if self.files_at(version) is not None:
                return version
        return -1

    @cached_property
    def present(self) -> list[str]:
        """Paths of all data files in the folder of the table, relative to it, of any version."""
        return [str(file.relative_to(self.path)) for file in data_files(self.path)]

    def _base(self, version: int) -> dict[str, File] | str:
        if version not in self._bases:
            try:
                self._bases[version] = read_checkpoint(self.path / checkpoint_name(version))
            except (OSError, ValueError, KeyError, pa.ArrowException) as error:
                self._bases[version] = " ".join(str(error).split()) or type(error).__name__
        return self._bases[version]

    def _replay(self, files: dict[str, File], first: int, last: int) -> dict[str, File] | None:
        for version in range(first, last + 1):
            entry = self.entries.get(version)
            if entry is None:
                return None
            entry.apply_to(files)
        return files


@dataclass
class ExaminedTable:
    """Result of the examination of a table.

    Attributes:
        name: name of the table.
        disk: its log, or None if the folder cannot be listed.
        newest: the greatest version to which the log leads, or -1 for none.
        findings: all findings.
        broken: paths of lost or unreadable files, in the form of the log.
        orphans: files that no commit names. A crash leaves such files, and vacuum deletes them.
    """

    name: str
    disk: TableOnDisk | None = None
    newest: int = -1
    findings: list[Finding] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    orphans: int = 0

    def can_read(self, version: int) -> bool:
        """Return True if a version is complete."""
        if self.disk is None:
            return False
        files = self.disk.files_at(version)
        return files is not None and not self.broken.keys() & files.keys()

    def add(self, kind: Kind, where: Path, what: str, *, version: int | None = None, file: str | None = None) -> None:
        """Add a finding."""
        self.findings.append(Finding(kind, str(where), what, self.name, version, file))


def examine_table(lake_dir: Path, table: Table, retention_days: int, *, thorough: bool) -> ExaminedTable:
    """Examine a table.

    Args:
        lake_dir: folder of the lake.
        table: table to examine.
        retention_days: retention in days for removed files, if the table does not have this property.
        thorough: read all rows of all kept files, not only those of the newest version.
    """
    path = lake_dir / table.name
    found = ExaminedTable(table.name)
    try:
        disk = found.disk = TableOnDisk(path)
    except OSError as error:
        found.add(Kind.TABLE, path, f"cannot be listed: {error.strerror}")
        return found
    _examine_entries(found, disk)
    found.newest = disk.newest_readable()
    if found.newest < 0:
        if not found.findings:
            found.add(Kind.TABLE, path, f"has no commit in {LOG_FOLDER}")
        return found
    _examine_checkpoints(found, disk)
    newest = disk.files_at(found.newest) or {}
    _examine_files(found, disk, newest, Kind.FILE, read=True)
    kept_days = disk.retention_days()
    past = dict(_kept(disk, retention_days if kept_days is None else kept_days))
    _examine_files(
        found, disk, {name: file for name, file in past.items() if name not in newest}, Kind.OLD_FILE, thorough
    )
    named = {unquote(name) for name in (*newest, *past)}
    for entry in disk.entries.values():
        named.update(unquote(file.path) for file in (*entry.added, *entry.removed, *entry.feed))
    if not disk.torn and not disk.absent:
        found.orphans = sum(name not in named for name in disk.present)
    return found


def _examine_entries(found: ExaminedTable, disk: TableOnDisk) -> None:
    """Add findings about entries. Entries before a checkpoint matter only for history."""
    checkpointed = max((n for n in disk.checkpoints if disk.checkpoint_error(n) is None), default=-1)
    wrong = [*disk.torn.items(), *((version, "is missing") for version in disk.absent)]
    for kind in (Kind.ENTRY, Kind.OLD_FILE):
        of_kind = [pair for pair in wrong if (pair[0] <= checkpointed) == (kind is Kind.OLD_FILE)]
        for version, why in of_kind[:_NAMED]:
            found.add(kind, disk.path / entry_name(version), why, version=version)


def _examine_checkpoints(found: ExaminedTable, disk: TableOnDisk) -> None:
    for version in disk.checkpoints:
        if why := disk.checkpoint_error(version):
            found.add(
                Kind.CHECKPOINT_FILE, disk.path / checkpoint_name(version), f"cannot be read: {why}", version=version
            )
    if disk.pointer_error:
        found.add(Kind.POINTER, disk.path / LAST_CHECKPOINT, disk.pointer_error)


def _examine_files(found: ExaminedTable, disk: TableOnDisk, files: dict[str, File], kind: Kind, read: bool) -> None:
    for name, file in files.items():
        path = disk.path / unquote(name)
        if why := damage_of(path, file, read=read):
            found.broken[name] = why
            found.add(kind, path, why, file=name)


def _kept(disk: TableOnDisk, retention_days: int) -> Iterator[tuple[str, File]]:
    """Files of older versions and change feeds that vacuum must not have deleted yet."""
    since_ms = time.time() * 1000 - (retention_days * 24 - 1) * 3_600_000
    gone: dict[str, int] = {}
    for entry in disk.entries.values():
        for file in entry.removed:
            gone[file.path] = file.deletion_timestamp or 0
    for entry in disk.entries.values():
        for file in entry.added:
            if gone.get(file.path, since_ms + 1) > since_ms:
                yield file.path, file
        for file in entry.feed:
            if entry.time_ms > since_ms:
                yield file.path, file
