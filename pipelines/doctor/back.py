# SPDX-License-Identifier: Apache-2.0
"""Going back to an epoch that is whole, from which the fold goes on.

It is what a restore with --keep-log does, without a backup: each table's log is cut after the version that the epoch
names, and the log of events has what came after it. The order matters, for a kill and for gateways that run:

1. Spark's checkpoint is moved aside: it knows what is taken back, and would never write it again.
2. routeCommitTable is cut, newest entry first. From the first one on the lake is one whose tables ran ahead of its last
   epoch, as a crash leaves it (`pipelines.tables.writer`).
3. The other tables are cut, newest entry first.

What is cut is moved aside, never deleted. Data files stay: those that no commit names any more go with vacuum.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow.parquet as pq

from lake.actions import LOG_FOLDER, LastCheckpoint, checkpoint_name, entry_name, write_last_checkpoint
from lake.commits import NO_COMMIT, RouteCommit
from lake.inspection import StoredFile, TableOnDisk
from pipelines.doctor.tables import ExaminedTable
from pipelines.log.sqlite_start import Extent
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE, STATE_TABLES


class _Epochs(msgspec.Struct, frozen=True):
    epoch: int | None = None


class _Stats(msgspec.Struct, rename="camel"):
    max_values: _Epochs = _Epochs()


class Place(NamedTuple):
    """An epoch to go back to, and each table's version there."""

    commit: RouteCommit
    versions: dict[str, int]


def epoch_versions(table: TableOnDisk) -> dict[int, int]:
    """By epoch, the version of routeCommitTable that brought it; epoch 0 is the table when it was made."""
    found = {0: 0} if 0 in table.entries else {}
    for version, entry in table.entries.items():
        for file in entry.added:
            epoch = _newest_epoch(file)
            if file.data_change and epoch is not None:
                found[epoch] = version
    return found


def place_to_go_back_to(
    tables: dict[str, ExaminedTable], commits: Sequence[RouteCommit], extent: Extent | None
) -> Place | None:
    """The newest epoch at which every table is whole, and from which the log of events goes on; None if there is none.

    Args:
        tables: all tables, examined.
        commits: those that can be read, in order.
        extent: what the log of events has; None where that is not known.
    """
    disk = tables[ROUTE_COMMIT_TABLE.name].disk
    if extent is None or disk is None:
        return None
    versions_of = epoch_versions(disk)
    for commit in reversed([NO_COMMIT, *commits]):
        if commit.epoch not in versions_of:
            continue
        versions = {table.name: 0 for table in ALL_TABLES} | commit.versions
        versions[ROUTE_COMMIT_TABLE.name] = versions_of[commit.epoch]
        exact = next((c for c in reversed(commits) if c.epoch <= commit.epoch and _is_exact(c)), None)
        if extent.first > needs_from(exact) or extent.end <= commit.log_offset:
            continue
        seed_is_whole = exact is None or all(tables[t.name].can_read(exact.versions[t.name]) for t in STATE_TABLES)
        if seed_is_whole and all(tables[name].can_read(version) for name, version in versions.items()):
            return Place(commit, versions)
    return None


def needs_from(exact: RouteCommit | None) -> int:
    """The first offset that a start asks for whose last exact epoch this is (`pipelines.tables.seed`)."""
    return 1 if exact is None else exact.log_offset + 1


def last_exact(commits: Sequence[RouteCommit]) -> RouteCommit | None:
    """The newest commit at which brokerLiveTable lacks no heartbeat."""
    return next(filter(_is_exact, reversed(commits)), None)


def cut(table: TableOnDisk, version: int, aside: Path) -> list[tuple[Path, Path]]:
    """Move aside what a table's log has after a version, newest first.

    Returns:
        What was moved, from and to.
    """
    names = [entry_name(number) for number in (*table.entries, *table.torn) if number > version]
    names += [checkpoint_name(number) for number in table.checkpoints if number > version]
    moved = []
    for name in sorted(names, reverse=True):
        target = aside / table.path.name / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (table.path / name).rename(target)
        moved.append((table.path / name, target))
    if table.pointer_error or (table.pointer is not None and table.pointer.version > version):
        point_to_last_checkpoint(table, version)
    return moved


def point_to_last_checkpoint(table: TableOnDisk, version: int) -> None:
    """Write the pointer anew, to the newest checkpoint up to a version that can be read; without one it goes."""
    usable = [number for number in table.checkpoints if number <= version and table.checkpoint_error(number) is None]
    if usable:
        rows = pq.read_metadata(table.path / checkpoint_name(usable[-1])).num_rows
        write_last_checkpoint(table.path, LastCheckpoint(usable[-1], rows))
    else:
        (table.path / LOG_FOLDER / "_last_checkpoint").unlink(missing_ok=True)


def _is_exact(commit: RouteCommit) -> bool:
    return commit.liveness_offset == commit.log_offset


def _newest_epoch(file: StoredFile) -> int | None:
    return msgspec.json.decode(file.stats, type=_Stats).max_values.epoch if file.stats else None
