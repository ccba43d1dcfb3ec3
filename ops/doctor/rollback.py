# SPDX-License-Identifier: Apache-2.0
"""Rollback of the lake to an intact epoch, from which the fold continues.

The effect is that of a restore with --keep-log, without a backup. The Delta log of each table is cut after the version
that the epoch names. The event log still has all later records. The order makes a kill and running gateways safe:

1. Spark's checkpoint is moved aside. With it, the fold would regard the removed epochs as written.
2. routeCommitTable is cut, newest entry first. After the first removed entry, the other tables are ahead of the last
   epoch, as after a crash (`lake.write.writer`).
3. The other tables are cut, newest entry first.

Removed entries are moved aside and never deleted. Data files stay, and vacuum deletes those that no commit names.

`go_back_to_whole` does this at the start of the fold, after a power loss. It checks only what is newer than the last
sync (`lake.write.synced`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import structlog

from eventlog.open import open_log
from eventlog.sqlite.start import Extent
from lake import checkpoint
from lake.commits import needs_from, plain_commits
from lake.delta.log import (
    LAST_CHECKPOINT,
    LOG_FOLDER,
    checkpoint_name,
    entry_name,
    point_to_checkpoint,
)
from lake.write.synced import Whole, read_synced, sync_lake, unsynced_damage, whole_tables
from ops.doctor.tables import ExaminedTable, TableOnDisk
from runtime.disk import sync_file_system, sync_folder
from runtime.version import PROGRAM
from schemas.errors import SetupError, one_line
from schemas.route_commit import NO_COMMIT, RouteCommit
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE, STATE_TABLES

log = structlog.get_logger("routelake.fold")


class RollbackPoint(NamedTuple):
    """An epoch to roll back to, and the version of each table at that epoch."""

    commit: RouteCommit
    versions: dict[str, int]


_NOTHING: Final = RollbackPoint(NO_COMMIT, {table.name: 0 for table in ALL_TABLES})
"""The new, empty tables."""


def rollback_points(disk: TableOnDisk, commits: Sequence[RouteCommit]) -> Iterator[RollbackPoint]:
    """Epochs with a known version of routeCommitTable, newest first.

    Args:
        disk: routeCommitTable.
        commits: readable commits, in order.
    """
    versions_of = {0: 0} if 0 in disk.entries else {}
    for version, entry in disk.entries.items():
        for file in entry.added:
            epoch = file.statistics.max_values.epoch
            if file.data_change and epoch is not None:
                versions_of[epoch] = version
    for commit in reversed([NO_COMMIT, *commits]):
        if commit.epoch in versions_of:
            own = {ROUTE_COMMIT_TABLE.name: versions_of[commit.epoch]}
            yield RollbackPoint(commit, _NOTHING.versions | commit.versions | own)


def find_rollback_point(
    tables: dict[str, ExaminedTable], commits: Sequence[RouteCommit], extent: Extent | None
) -> RollbackPoint | None:
    """The newest epoch with intact tables and all later records in the event log, or None.

    Args:
        tables: examination results of all tables, by name.
        commits: readable commits, in order.
        extent: range of records in the event log, or None if it is unknown.
    """
    disk = tables[ROUTE_COMMIT_TABLE.name].disk
    if extent is None or disk is None:
        return None
    for point in rollback_points(disk, commits):
        exact = last_exact(commits, point.commit.epoch)
        if extent.first > needs_from(exact) or extent.end <= point.commit.log_offset:
            continue
        seed_is_whole = exact is None or all(tables[t.name].can_read(exact.versions[t.name]) for t in STATE_TABLES)
        if seed_is_whole and all(tables[name].can_read(version) for name, version in point.versions.items()):
            return point
    return None


def last_exact(commits: Sequence[RouteCommit], epoch: int | None = None) -> RouteCommit | None:
    """The newest commit up to an epoch (None: of all) at which brokerLiveTable lacks no heartbeat."""
    return next((c for c in reversed(commits) if c.is_exact and (epoch is None or c.epoch <= epoch)), None)


def go_back(disks: Mapping[str, TableOnDisk], point: RollbackPoint, aside: Path) -> None:
    """Cut every table after its version at an epoch, routeCommitTable first.

    Args:
        disks: the tables, by name.
        point: epoch to roll back to.
        aside: folder for the removed entries.
    """
    for name in sorted(disks, key=lambda name: name != ROUTE_COMMIT_TABLE.name):
        cut(disks[name], point.versions[name], aside)
        sync_folder(disks[name].path / LOG_FOLDER)


def cut(table: TableOnDisk, version: int, aside: Path) -> None:
    """Move the log entries and checkpoints after a version aside, newest first."""
    names = [entry_name(number) for number in (*table.entries, *table.torn) if number > version]
    names += [checkpoint_name(number) for number in table.checkpoints if number > version]
    for name in sorted(names, reverse=True):
        target = aside / table.path.name / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (table.path / name).rename(target)
    if table.pointer_error or (table.pointer is not None and table.pointer.version > version):
        point_to_last_checkpoint(table, version)


def point_to_last_checkpoint(table: TableOnDisk, version: int) -> None:
    """Point to the newest readable checkpoint up to a version. Without one, delete the pointer."""
    usable = [number for number in table.checkpoints if number <= version and table.checkpoint_error(number) is None]
    if usable:
        point_to_checkpoint(table.path, usable[-1])
    else:
        (table.path / LAST_CHECKPOINT).unlink(missing_ok=True)


def go_back_to_whole(lake_dir: Path, checkpoint_dir: Path, log_url: str) -> None:
    """If the unsynced part of a lake is damaged, roll back to the newest epoch with intact tables.

    Args:
        lake_dir: Folder of the lake. This process holds its lock.
        checkpoint_dir: Folder of Spark's checkpoint.
        log_url: URL of the event log.

    Raises:
        SetupError: The event log lacks records after that epoch. Nothing was changed.
        UnavailableError: The event log cannot be reached.
        OSError: Storage failed. Another call continues.
    """
    whole = whole_tables(lake_dir)
    damage = unsynced_damage(lake_dir, whole)
    if damage is None:
        return
    commits, disk = _whole_commits(lake_dir, whole)
    points = () if disk is None else rollback_points(disk, commits)
    # The newest epoch that is intact in every table.
    place = next((p for p in points if all(p.versions[name] <= whole[name].version for name in whole)), _NOTHING)
    if not _goes_on(log_url, commits, place):
        raise SetupError(
            f"{damage}, and the event log lacks records after the last intact epoch. Run `{PROGRAM} doctor` to see "
            "what can be repaired, or restore the lake from a backup.",
            path=str(lake_dir),
        )
    aside = lake_dir / datetime.now(UTC).strftime("before-repair-%Y%m%dT%H%M%S.%fZ")
    checkpoint.remove(checkpoint_dir)
    known = read_synced(lake_dir).versions
    if known:  # the fold will write other versions of the same numbers, and these are not synced
        sync_lake(lake_dir, {name: min(version, place.versions.get(name, version)) for name, version in known.items()})
    go_back({name: TableOnDisk(lake_dir / name) for name in whole if whole[name].version >= 0}, place, aside)
    for name in whole:
        if whole[name].version < 0:  # a power loss while the table was created
            aside.mkdir(exist_ok=True)
            (lake_dir / name).rename(aside / name)
    sync_file_system(lake_dir)
    log.warning(
        "lake was damaged by a power loss: continuing from an earlier epoch and the event log",
        damage=damage,
        epoch=place.commit.epoch,
        log_offset=max(place.commit.log_offset, 0),
        moved_aside=str(aside),
    )


def _whole_commits(lake_dir: Path, whole: Mapping[str, Whole]) -> tuple[list[RouteCommit], TableOnDisk | None]:
    """The commits of the intact version, in order, and routeCommitTable; none if the table was not completely created.

    Raises:
        SetupError: A synced version cannot be read.
    """
    name = ROUTE_COMMIT_TABLE.name
    if name not in whole or whole[name].version < 0:
        return [], None
    disk = TableOnDisk(lake_dir / name)
    files = disk.files_at(whole[name].version)
    try:
        if files is not None:
            return plain_commits(lake_dir, list(files.values())), disk
        why = "its log does not reach that version"
    except (OSError, ValueError, pa.ArrowException) as error:
        why = one_line(error)
    raise SetupError(
        f"{lake_dir / name} cannot be read at version {whole[name].version}: {why}. Run `{PROGRAM} doctor` to "
        "see what can be repaired, or restore the lake from a backup.",
        path=str(lake_dir),
    )


def _goes_on(log_url: str, commits: Sequence[RouteCommit], place: RollbackPoint) -> bool:
    """Return True if the event log has all records that a start from a rollback point needs."""
    exact = last_exact(commits, place.commit.epoch)
    first = 0 if exact is None else exact.log_offset + 1
    with closing(open_log(log_url)) as event_log:
        if commits and commits[-1].log_offset >= event_log.end().next_offset:
            return False
        records = event_log.read(first, 1)
        return not records or records[0].offset <= max(first, 1)
