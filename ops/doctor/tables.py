# SPDX-License-Identifier: Apache-2.0
"""One table: what is wrong with its log and its files, and which versions can be read.

What the log's clean-up and vacuum have taken away is no damage: entries before a checkpoint, and files that were
removed longer ago than they are kept for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lake.delta.actions import LOG_FOLDER, checkpoint_name, entry_name
from lake.delta.inspection import StoredFile, TableOnDisk
from ops.doctor.findings import Finding, Kind
from schemas.errors import one_line
from schemas.tables import Table

_NAMED: Final = 5
"""Versions of one table that are named one by one."""


class _Rows(msgspec.Struct, rename="camel"):
    num_records: int | None = None


@dataclass
class ExaminedTable:
    """A table, and what is wrong with it.

    Attributes:
        name: of the table.
        disk: its folder; None where it cannot be listed.
        newest: the greatest version that its log leads to; -1 for none.
        findings: what is wrong.
        broken: files that are lost or cannot be read, by path as the log names them.
        orphans: files that no commit names: a crash leaves them, vacuum takes them away.
    """

    name: str
    disk: TableOnDisk | None = None
    newest: int = -1
    findings: list[Finding] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    orphans: int = 0

    def can_read(self, version: int) -> bool:
        """Whether all of a version is there."""
        if self.disk is None:
            return False
        files = self.disk.files_at(version)
        return files is not None and not self.broken.keys() & files.keys()

    def add(self, kind: Kind, where: Path, what: str, *, version: int | None = None, file: str | None = None) -> None:
        """Note a finding."""
        self.findings.append(Finding(kind, str(where), what, self.name, version, file))


def examine_table(lake_dir: Path, table: Table, retention_days: int, *, thorough: bool) -> ExaminedTable:
    """Look at a table.

    Args:
        lake_dir: of the lake.
        table: which one.
        retention_days: what was removed longer ago may be gone, where the table itself does not say how long that is.
        thorough: read all rows of all files; else of the newest version's.
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
        found.orphans = sum(name.endswith(".parquet") and name not in named for name in disk.present)
    return found


def _examine_entries(found: ExaminedTable, disk: TableOnDisk) -> None:
    """What a checkpoint after it has matters to the past alone."""
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
        found.add(Kind.POINTER, disk.path / LOG_FOLDER / "_last_checkpoint", disk.pointer_error)


def _examine_files(
    found: ExaminedTable, disk: TableOnDisk, files: dict[str, StoredFile], kind: Kind, read: bool
) -> None:
    for name, file in files.items():
        why = _why_unusable(disk, file, read=read)
        if why is not None:
            found.broken[name] = why
            found.add(kind, disk.path / unquote(name), why, file=name)


def _why_unusable(disk: TableOnDisk, file: StoredFile, *, read: bool) -> str | None:
    size = disk.present.get(unquote(file.path))
    if size is None:
        return "is missing"
    if file.size not in (None, size):
        return f"has {size} bytes, and was written with {file.size}"
    if not read:
        return None
    try:
        with pq.ParquetFile(disk.path / unquote(file.path)) as parquet:
            rows = sum(
                parquet.read_row_group(group, use_threads=False).num_rows for group in range(parquet.num_row_groups)
            )
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"cannot be read: {one_line(error)}"
    expected = msgspec.json.decode(file.stats, type=_Rows).num_records if file.stats else None
    return None if expected in (None, rows) else f"has {rows} rows, and was written with {expected}"


def _kept(disk: TableOnDisk, retention_days: int) -> Iterator[tuple[str, StoredFile]]:
    """Files that older versions and change feeds need, and that vacuum may not have taken yet."""
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
