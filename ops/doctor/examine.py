# SPDX-License-Identifier: Apache-2.0
"""Examination of a data directory: lake, event log, checkpoint, and whether they belong together. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lake.checkpoint import check_compatible
from lake.commits import commits_between, needs_from
from lake.delta.ddl import LAKE_FILE, check_format, is_locked
from ops.backup.marker import MARKER, read_marker
from ops.doctor.findings import HARMLESS, REMAINS, Finding, Kind
from ops.doctor.log import ExaminedLog, examine_log, record_at
from ops.doctor.rollback import RollbackPoint, find_rollback_point, last_exact
from ops.doctor.tables import ExaminedTable, examine_table
from schemas.errors import SetupError, one_line
from schemas.route_commit import RouteCommit, to_ms
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE

RETENTION_DAYS: Final = 30
"""Retention of history in days, for tables without this property."""
_AHEAD_S: Final = 60.0
"""Tolerated difference of the clocks of two machines."""


@dataclass
class Examination:
    """Result of an examination.

    Attributes:
        data_dir: the data directory.
        findings: all findings.
        log: the event log in SQLite, or None for another event log.
        tables: examination results of the tables, by name.
        commits: epochs with a readable row in routeCommitTable, in order.
        fold_runs: True if a fold holds the lake.
        place: epoch to which the lake can be rolled back, if necessary.
    """

    data_dir: Path
    findings: list[Finding] = field(default_factory=list)
    log: ExaminedLog | None = None
    tables: dict[str, ExaminedTable] = field(default_factory=dict)
    commits: Sequence[RouteCommit] = ()
    fold_runs: bool = False
    place: RollbackPoint | None = None

    @property
    def last(self) -> RouteCommit | None:
        """The last readable epoch, or None without any."""
        return self.commits[-1] if self.commits else None

    @property
    def lake_dir(self) -> Path:
        """Folder of the lake."""
        return self.data_dir / "lake"

    @property
    def checkpoint_dir(self) -> Path:
        """Folder of Spark's checkpoint."""
        return self.data_dir / "checkpoints" / "fold"

    @property
    def needs_from(self) -> int:
        """The first offset of the event log that the fold may read again."""
        return needs_from(last_exact(self.commits))

    @property
    def is_well(self) -> bool:
        """Return True if nothing needs the operator's attention."""
        return all(finding.kind in HARMLESS for finding in self.findings)

    @property
    def blocks(self) -> bool:
        """Return True if a finding prevents a start of the gateway or the fold, or causes repeated errors."""
        return any(finding.kind not in HARMLESS | REMAINS for finding in self.findings)


def has_data(data_dir: Path, log_path: Path | None) -> bool:
    """Return whether there is a lake or an event log to examine.

    Args:
        data_dir: Data directory.
        log_path: Path of the SQLite log, or None for a log in Kafka.
    """
    return (data_dir / "lake").is_dir() or (log_path is not None and log_path.exists())


def examine(data_dir: Path, log_path: Path | None, *, thorough: bool = False) -> Examination:
    """Examine a data directory.

    Args:
        data_dir: the data directory.
        log_path: file of the SQLite event log, or None for Kafka, which is not examined.
        thorough: read every row of all kept files, not only those of the newest version.

    Raises:
        SetupError: the directory is missing or has no data.
    """
    found = Examination(data_dir)
    lake_dir = found.lake_dir
    if not has_data(data_dir, log_path):
        raise SetupError(
            f"{data_dir} contains neither a lake nor an event log. Name the data directory of a routelake. If the "
            "tables are at a URL, add --lake URL."
        )
    if read_marker(data_dir) is not None:
        found.findings.append(Finding(Kind.RESTORE, str(data_dir / MARKER), "shows that a restore was interrupted"))
    if lake_dir.is_dir():
        found.fold_runs = is_locked(lake_dir)
        _examine_lake(found, thorough=thorough)
    if log_path is not None:
        found.log = examine_log(log_path, found.needs_from)
        if found.last is None and not log_path.exists():
            found.log.findings.clear()  # an unused data directory
        found.findings += found.log.findings
        _compare_with_log(found, found.log)
    _compare_with_clock(found)
    if found.checkpoint_dir.exists():
        _examine_checkpoint(found)
    found.place = (
        find_rollback_point(found.tables, found.commits, found.log.extent if found.log else None)
        if found.tables
        else None
    )
    return found


def _compare_with_clock(found: Examination) -> None:
    """Add a finding if the event time of log or tables is ahead of this machine's clock."""
    times = [found.log.last_time_ms] if found.log is not None and found.log.last_time_ms is not None else []
    times += [to_ms(found.last.event_time)] if found.last is not None else []
    ahead_s = max(times, default=0) / 1000 - time.time()
    if ahead_s > _AHEAD_S:
        where = str(found.log.path) if found.log is not None else str(found.lake_dir)
        what = f"has events {ahead_s:,.0f} s ahead of this machine's clock"
        found.findings.append(Finding(Kind.AHEAD, where, what))


def _examine_lake(found: Examination, *, thorough: bool) -> None:
    try:
        check_format(found.lake_dir)
    except SetupError as error:
        found.findings.append(Finding(Kind.FORMAT, str(found.lake_dir / LAKE_FILE), one_line(error)))
    # routeCommitTable comes first. So the other tables have every version that it names, even if a fold continues.
    for table in (ROUTE_COMMIT_TABLE, *(table for table in ALL_TABLES if table is not ROUTE_COMMIT_TABLE)):
        found.tables[table.name] = examined = examine_table(found.lake_dir, table, RETENTION_DAYS, thorough=thorough)
        found.findings += examined.findings
    found.commits = _readable_commits(found.lake_dir, found.tables[ROUTE_COMMIT_TABLE.name])
    if found.last is None:
        return
    for name, version in found.last.versions.items():
        table_on_disk = found.tables[name]
        if not table_on_disk.findings and table_on_disk.newest < version:
            what = f"is at version {table_on_disk.newest}, but epoch {found.last.epoch} needs version {version}"
            found.findings.append(Finding(Kind.BEHIND, str(found.lake_dir / name), what, name, version))


def _readable_commits(lake_dir: Path, table: ExaminedTable) -> list[RouteCommit]:
    """Read the commits of all existing files. Those of a missing file are left out."""
    files = (table.disk.files_at(table.newest) if table.disk is not None else None) or {}
    there = [file for name, file in files.items() if name not in table.broken]
    try:
        return [commit.without_outcomes() for commit in commits_between(lake_dir, there)]
    except (OSError, ValueError, pa.ArrowException):
        return []


def _compare_with_log(found: Examination, log: ExaminedLog) -> None:
    last, extent = found.last, log.extent
    if last is None or extent is None:
        return
    where = str(log.path)
    if extent.end <= last.log_offset:
        what = f"ends at offset {extent.end - 1}, but the tables already include offset {last.log_offset}"
        found.findings.append(Finding(Kind.LOG_SHORT, where, what))
        return
    if extent.first > found.needs_from:
        what = f"begins at offset {extent.first}, but the fold needs the records from offset {found.needs_from} on"
        found.findings.append(Finding(Kind.LOG_LACKS, where, what))
    for commit in reversed(found.commits):
        record = record_at(log.path, commit.log_offset)
        if record is None:
            break
        if record.event_time_ms != to_ms(commit.event_time):
            what = (
                f"has another record at offset {commit.log_offset} than the one that epoch {commit.epoch} ends with: "
                f"its time is {record.event_time_ms}, in the tables it is {to_ms(commit.event_time)}"
            )
            found.findings.append(Finding(Kind.LOG_OTHER, where, what))
            break


def _examine_checkpoint(found: Examination) -> None:
    """Check Spark's checkpoint as the fold does at its start, and add a finding if it cannot be used."""
    tables: list[DeltaTable] = []
    with suppress(DeltaError, OSError):  # a table that cannot be read has a finding of its own
        tables.extend(DeltaTable(found.lake_dir / name) for name in found.tables)
    verdict = check_compatible(found.checkpoint_dir, found.last, tables)
    if not verdict.goes_on:
        found.findings.append(Finding(Kind.FOLD_CHECKPOINT, str(found.checkpoint_dir), verdict.why))
