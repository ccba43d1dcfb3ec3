# SPDX-License-Identifier: Apache-2.0
"""Maintenance of the interval tables, some seconds behind the epochs, in the process of the one writer of the lake.

Each commit has a Delta app transaction (`INTERVALS_APP`, last epoch in the table), from which the next step continues.
After a kill at any point, each table is complete up to some epoch. Only epochs in routeCommitTable are processed, so
no interval is ever undone. A table that is ahead of the epochs belongs to another lake. It is rebuilt: a commit
removes all its rows, and all epochs are written again.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from lake.commits import last_commit
from lake.delta.ddl import open_table
from lake.delta.log import damage_in
from lake.delta.query import texts
from lake.delta.reader import CommitReader
from lake.delta.types import arrow_schema
from lake.history.interval_rows import CLOSES, CODES, COLUMNS, END_COLUMNS, KIND, NEW, Step, merge_schema, plain, step
from lake.write.maintenance import INTERVALS_RETENTION_H
from lake.write.staging import NO_HOOKS, StagedTable, stage
from lake.write.synced import read_synced, whole_up_to
from lake.write.windows import ChangeWindows
from lake.write.writer import PROPERTIES
from runtime.disk import at_start
from runtime.supervised_tasks import critical_thread
from runtime.version import PROGRAM
from schemas.errors import SetupError, UnavailableError, one_line
from schemas.intervals import INTERVAL_TABLES, INTERVALS, INTERVALS_APP, IS_OPEN, Intervals
from schemas.tables import ROUTE_CHANGE_TABLE, Table

log = structlog.get_logger("routelake.intervals")

STEP_INTERVAL_S: Final = 3.0
"""Minimum seconds between two steps."""
_AFTER_FAILURE_S: Final = 30.0
_LAG_EPOCHS: Final = 1_000
"""Epochs without a change after which a table gets a commit without rows, so that a start skips these epochs."""
_ROWS_AT_ONCE: Final = 200_000


class IntervalKeeper:
    """Updates the interval tables, and creates missing ones. For one thread at a time.

    Args:
        lake_dir: folder of the lake. This process holds its lock.

    Attributes:
        tables: the interval tables, by name.

    Raises:
        SetupError: a table cannot be opened.
    """

    def __init__(self, lake_dir: Path) -> None:
        self._lake_dir = lake_dir
        self._log = CommitReader(str(lake_dir), ROUTE_CHANGE_TABLE, CODES)
        self._version: int | None = None
        """Version of routeChangeTable up to which the changes are processed. None: the tables' transactions tell."""
        self._behind: Iterator[pa.Table] | None = None
        """Changes that are left up to `_goal`, part by part."""
        self._goal = (0, 0)
        """Epoch and version of routeChangeTable after `_behind`."""
        self._next_step_s = 0.0
        self._is_overtaken = False
        """True if another process has written to a table."""
        commit = last_commit(lake_dir)
        last_epoch = 0 if commit is None else commit.epoch
        self.tables: Mapping[str, StagedTable] = {
            table.name: self._open(table, last_epoch) for table in INTERVAL_TABLES
        }
        self._epochs = {name: _epoch_of(table.delta) for name, table in self.tables.items()}

    def _open(self, table: Table, last_epoch: int) -> StagedTable:
        """Open a table. An unusable table is emptied, as all its rows can be rebuilt."""
        path = self._lake_dir / table.name
        known = read_synced(self._lake_dir).versions
        for _ in range(2):
            try:
                if known and path.is_dir() and (damage := whole_up_to(path, known.get(table.name, -1)).damage):
                    raise SetupError(damage)  # as a power cut leaves it
                found = stage(self._lake_dir, {table.name: open_table(path, table, INTERVALS_RETENTION_H // 24)})[
                    table.name
                ]
                if _epoch_of(found.delta) <= last_epoch:
                    return found
                why = f"it has epoch {_epoch_of(found.delta)}, the lake has {last_epoch}"
            except SetupError as error:
                why = str(error)
            log.warning("rebuilding an interval table", table=table.name, reason=why)
            try:
                _empty(path, table)
            except (DeltaError, OSError) as error:
                raise at_start(error)(f"the table {path} cannot be rebuilt: {one_line(error)}") from error
        raise SetupError(f"the table {path} cannot be rebuilt: {why}")

    @property
    def epoch(self) -> int:
        """The epoch up to which every table is complete."""
        return min(self._epochs.values())

    @property
    def is_due(self) -> bool:
        """Return True if `step` has work to do."""
        return time.monotonic() >= self._next_step_s

    def step(self, epoch: int, version: int) -> None:
        """Process new epochs, at most once in `STEP_INTERVAL_S`. A failure is logged, and a later step tries again.

        Args:
            epoch: the newest epoch.
            version: version of routeChangeTable at that epoch, or a later one.
        """
        if not self.is_due:
            return
        self._next_step_s = time.monotonic() + STEP_INTERVAL_S
        try:
            if not self._advance(epoch, version):
                self._next_step_s = 0.0  # epochs are left for the step after the next batch
        except Exception as error:
            self._version = self._behind = None
            self._is_overtaken |= isinstance(error, UnavailableError)
            self._next_step_s = time.monotonic() + _AFTER_FAILURE_S
            log.warning("cannot update the interval tables; retrying", error=str(error), epoch=self.epoch)

    def catch_up(self, epoch: int, version: int, say: Callable[[int], None] = lambda epoch: None) -> None:
        """Process all epochs up to one. After an error, each table is complete up to some epoch.

        Args:
            epoch: the newest epoch.
            version: version of routeChangeTable at that epoch, or a later one.
            say: progress callback with the epoch reached.

        Raises:
            deltalake.exceptions.DeltaError, OSError, ValueError, pyarrow.ArrowException: storage failed.
            UnavailableError: another program has written to a table.
        """
        while not self._advance(epoch, version):
            say(max(self._epochs.values()))

    def _advance(self, epoch: int, version: int) -> bool:
        """Process a part of the missing epochs. Return True if none is left."""
        for table in self.tables.values():
            if self._is_overtaken:
                table.stage_anew()
            table.publish()  # a failed step may have left unpublished commits
        self._is_overtaken = False
        behind, done = self._behind, self._version
        self._behind = self._version = None  # if an error ends this
        if behind is None:
            self._goal = epoch, version
            behind = self._windows(epoch) if done is None else self._appended(done + 1, version)
        for rows in behind:
            last = pc.max(rows["epoch"]).as_py()
            if last > self._goal[0]:
                raise ValueError(f"{ROUTE_CHANGE_TABLE.name} has epoch {last}, which is not there yet")
            self._take(rows, last)
            if done is None:
                self._behind = behind
                return False
        self._reached(self._goal[0])
        self._version = self._goal[1]
        return self._version == version

    def _windows(self, epoch: int) -> Iterator[pa.Table]:
        """Changes of the missing epochs up to one."""
        self._epochs = {name: _epoch_of(table.delta) for name, table in self.tables.items()}
        windows = ChangeWindows(
            str(self._lake_dir), first=self.epoch + 1, last=epoch, whole_epochs=True, rows=_ROWS_AT_ONCE
        )
        return windows.read(COLUMNS, CODES)

    def _appended(self, first: int, last: int) -> Iterator[pa.Table]:
        """Changes of some versions of routeChangeTable."""
        parts: list[pa.Table] = []
        for version in range(first, last + 1):
            if (rows := self._log.appended(version)) is not None:
                parts.append(rows.select(COLUMNS))
            if parts and (version == last or sum(part.num_rows for part in parts) >= _ROWS_AT_ONCE):
                yield pa.concat_tables(parts)
                parts.clear()

    def _take(self, rows: pa.Table, epoch: int) -> None:
        """Write the changes of whole epochs. The argument `epoch` is the last of them."""
        first = pc.min(rows["epoch"]).as_py()
        for intervals in INTERVALS:
            name = intervals.table.name
            had = self._epochs[name]
            if had >= epoch:
                continue
            done = step(intervals, rows if had < first else rows.filter(pc.greater(rows["epoch"], had)))
            if done.closes.num_rows or done.new.num_rows:
                self._write(intervals, done, epoch)

    def _reached(self, epoch: int) -> None:
        """Note that all epochs up to this one are processed. A long unchanged table gets a commit without rows."""
        for intervals in INTERVALS:
            name = intervals.table.name
            if epoch - _epoch_of(self.tables[name].delta) >= _LAG_EPOCHS:
                nothing = arrow_schema(intervals.table).empty_table()
                self._write(intervals, Step(nothing, nothing), epoch)
            self._epochs[name] = epoch

    def _write(self, intervals: Intervals, done: Step, epoch: int) -> None:
        transaction = CommitProperties(app_transactions=[Transaction(INTERVALS_APP, epoch)])
        staged = self.tables[intervals.table.name]
        if done.closes.num_rows:
            _merge(intervals, staged.delta, done, transaction)
        else:
            schema = arrow_schema(intervals.table)
            write_deltalake(
                staged.delta,
                pa.RecordBatchReader.from_batches(schema, plain(done.new, schema)),
                mode="append",
                writer_properties=PROPERTIES[intervals.table.name],
                commit_properties=transaction,
                post_commithook_properties=NO_HOOKS,
            )
        staged.publish()
        self._epochs[intervals.table.name] = epoch


def _merge(intervals: Intervals, table: DeltaTable, done: Step, transaction: CommitProperties) -> None:
    schema = merge_schema(intervals)
    closes, new = (
        rows.cast(schema).append_column(KIND, pa.repeat(pa.scalar(kind), rows.num_rows))
        for rows, kind in ((done.closes, CLOSES), (done.new, NEW))
    )
    terms = [f"s.{KIND} = '{CLOSES}'", f't."{IS_OPEN}" = true']
    terms += [f't."{name}" = s."{name}"' for name in intervals.source.key]
    for name in intervals.table.partition_by:
        if name != IS_OPEN:
            terms.append(f't."{name}" in {texts(sorted(pc.unique(closes[name]).to_pylist()))}')
    done_by = (
        table.merge(
            pa.concat_tables([closes, new]),
            predicate=" and ".join(terms),
            source_alias="s",
            target_alias="t",
            writer_properties=PROPERTIES[intervals.table.name],
            commit_properties=transaction,
            post_commithook_properties=NO_HOOKS,
        )
        .when_matched_update({f'"{name}"': f's."{name}"' for name in END_COLUMNS})
        .when_not_matched_insert(
            {f'"{name}"': f's."{name}"' for name in intervals.table.column_names}, predicate=f"s.{KIND} = '{NEW}'"
        )
        .execute()
    )
    if done_by["num_target_rows_updated"] != closes.num_rows:
        log.warning(
            "interval table lacks open rows",
            advice=f"run {PROGRAM} history rebuild",
            table=intervals.table.name,
            ended=done_by["num_target_rows_updated"],
            should_end=closes.num_rows,
        )


def _epoch_of(table: DeltaTable) -> int:
    """Return the epoch up to which a table is complete."""
    return table.transaction_version(INTERVALS_APP) or 0


def _empty(path: Path, table: Table) -> None:
    """Remove all rows of a table by a commit, as readers may have the table open. Delete a damaged table.

    Raises:
        DeltaError, OSError: Storage failed.
    """
    if damage_in(path) is not None or not DeltaTable.is_deltatable(str(path)):
        shutil.rmtree(path, ignore_errors=True)
        return
    write_deltalake(
        DeltaTable(str(path)),
        arrow_schema(table).empty_table(),
        mode="overwrite",
        schema_mode="overwrite",
        commit_properties=CommitProperties(app_transactions=[Transaction(INTERVALS_APP, 0)]),
        post_commithook_properties=NO_HOOKS,
    )


def rebuild(lake_dir: Path, say: Callable[[int, int], None]) -> int:
    """Rebuild all interval tables from the changes. The fold must not run.

    After a kill, the fold or another call continues.

    Args:
        lake_dir: folder of the lake. This process holds its lock.
        say: progress callback with the epoch reached and the last epoch.

    Returns:
        The epoch up to which the tables are complete.

    Raises:
        SetupError: a table cannot be opened.
        deltalake.exceptions.DeltaError, OSError, ValueError, pyarrow.ArrowException: a table cannot be read or written.
    """
    commit = last_commit(lake_dir)
    for table in INTERVAL_TABLES:
        _empty(lake_dir / table.name, table)
    keeper = IntervalKeeper(lake_dir)
    if commit is None:
        return 0
    keeper.catch_up(commit.epoch, commit.versions[ROUTE_CHANGE_TABLE.name], lambda epoch: say(epoch, commit.epoch))
    return commit.epoch


class BackgroundStep:
    """Runs the steps of a keeper on a background thread, one at a time, so that no epoch waits for a step.

    Nearly all work of a step is done by Arrow and delta-rs, which release the interpreter lock. The thread that writes
    the lake calls this object. Maintenance waits until no step runs, as a step writes the interval tables.

    Args:
        keeper: Keeper that only this object calls.
    """

    def __init__(self, keeper: IntervalKeeper) -> None:
        self._keeper = keeper
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Return True if no step is under way. Others may then write the tables until the next `start`."""
        return self._thread is None or not self._thread.is_alive()

    def start(self, epoch: int, version: int) -> None:
        """Start a step, if one is due and none runs. The arguments are those of `IntervalKeeper.step`."""
        if self.is_idle and self._keeper.is_due:
            # A daemon thread: a process that must end abandons a step like a batch, and the next process continues.
            self._thread = critical_thread(self._keeper.step, "intervals", (epoch, version))
            self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until no step runs. Return False if one still runs after the time-out."""
        if self._thread is not None:
            self._thread.join(max(timeout_s, 0))
        return self.is_idle
