# SPDX-License-Identifier: Apache-2.0
"""Start of a replay: an empty state if the log is complete, or the oldest epoch from which it is possible."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pds
from deltalake.exceptions import DeltaError

from lake.delta.log import DamagedTableError
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from ops.verify.rows import open_table
from schemas.route_commit import NO_COMMIT, RouteCommit
from schemas.tables import STATE_TABLES

_UNREADABLE: Final = (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException)

Tables = dict[str, pds.Dataset]
"""The state tables of an epoch, by name."""


class Base(NamedTuple):
    """An epoch and its tables; for nothing, `NO_COMMIT` and None."""

    commit: RouteCommit
    tables: Tables | None


def find_base(lake_dir: Path, commits: Sequence[RouteCommit], last: RouteCommit, oldest: int) -> Base | None:
    """The oldest beginning; None if there is none.

    Args:
        lake_dir: directory of the lake.
        commits: of all epochs, in order.
        last: where the replay ends.
        oldest: the log's first offset.
    """
    other = [commit.epoch for commit in commits if commit.rules_version != STATE_MACHINE_VERSION]
    if not other and oldest <= 1:
        return Base(NO_COMMIT, None)
    folded_by_others = max(other, default=0)
    if folded_by_others == last.epoch:
        return None
    candidates = [
        commit
        for commit in commits
        if commit.liveness_offset == commit.log_offset
        and commit.log_offset + 1 >= oldest
        and folded_by_others <= commit.epoch < last.epoch
    ]
    # Retention takes the oldest first: readable are those from some on.
    place = bisect_left(candidates, True, key=lambda commit: _tables(lake_dir, commit) is not None)
    for commit in candidates[place:]:
        tables = _tables(lake_dir, commit)
        if tables is not None:
            return Base(commit, tables)
    return None


def _tables(lake_dir: Path, commit: RouteCommit) -> Tables | None:
    """The state tables of an epoch, if their files are all there."""
    try:
        tables = {table.name: open_table(str(lake_dir), table, commit.versions[table.name]) for table in STATE_TABLES}
        return tables if all(_are_there(lake_dir, name, table) for name, table in tables.items()) else None
    except _UNREADABLE:
        return None


def _are_there(lake_dir: Path, name: str, table: pds.Dataset) -> bool:
    return all((lake_dir / name / file).exists() for file in table.files)
