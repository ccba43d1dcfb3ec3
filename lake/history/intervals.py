# SPDX-License-Identifier: Apache-2.0
"""Keeps the tables of intervals some seconds behind the epochs, in the process of the one writer of the lake.

Each commit carries a Delta app transaction, (`INTERVALS_APP`, the last epoch that is in it), so that whoever goes on
knows where: killed at any moment, the next step finds each table whole up to some epoch. Only epochs that
routeCommitTable has are taken, so nothing has ever to be taken back. A table that is ahead of the epochs is another
lake's, and is made anew: a commit takes all its rows out, and everything is written again.
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
"""The least time between two steps."""
_AFTER_FAILURE_S: Final = 30.0
_LAG_EPOCHS: Final = 1_000
"""A table that had no change for so long gets a commit without rows, by which a start knows where to go on."""
_ROWS_AT_ONCE: Final = 200_000


class IntervalKeeper:
    """The tables, for one thread at a time; it makes those that are missing.

    Args:
        lake_dir: the lake, whose lock this process holds.

    Attributes:
        tables: they, by name.

    Raises:
        SetupError: a table cannot be opened.
    """

    def __init__(self, lake_dir: Path) -> None:
        self._lake_dir = lake_dir
        self._log = CommitReader(str(lake_dir), ROUTE_CHANGE_TABLE, CODES)
        self._version: int | None = None
        """Of routeChangeTable, up to which its changes are in; None: by the tables' own transactions."""
        self._behind: Iterator[int] | None = None
        """The way there, a window of changes at a time: the epochs reached."""
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
        """A table as it is, or empty where it cannot be used: all of it can be made anew."""
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
        """Every table has what happened up to this epoch."""
        return min(self._epochs.values())

    @property
    def is_due(self) -> bool:
        """Return True if `step` has work to do."""
        return time.monotonic() >= self._next_step_s

    def step(self, epoch: int, version: int) -> None:
        """Do what is due, at most once in `STEP_INTERVAL_S`. A failure is logged and tried again: it loses nothing.

        Args:
            epoch: the newest one.
            version: of routeChangeTable, as that epoch has it or later.
        """
        if not self.is_due:
            return
        self._next_step_s = time.monotonic() + STEP_INTERVAL_S
        try:
            if not self._advance(epoch, version):
                self._next_step_s = 0.0  # there is more of it, after the next batch
        except Exception as error:
            self._version = self._behind = None
            self._is_overtaken |= isinstance(error, UnavailableError)
            self._next_step_s = time.monotonic() + _AFTER_FAILURE_S
            log.warning("cannot update the interval tables; retrying", error=str(error), epoch=self.epoch)

    def catch_up(self, epoch: int, version: int, say: Callable[[int], None] = lambda epoch: None) -> None:
        """Take everything up to an epoch.

        Args:
            epoch: the newest one.
            version: of routeChangeTable, as that epoch has it or later.
            say: is told the epochs that were reached.

        Raises:
            deltalake.exceptions.DeltaError, OSError, ValueError, pyarrow.ArrowException: storage failed; the tables are
                whole up to some epoch each.
            UnavailableError: somebody else has written to a table; the same.
        """
        while not self._advance(epoch, version):
            say(max(self._epochs.values()))

    def _advance(self, epoch: int, version: int) -> bool:
        """Take a part of what is missing; returns whether that was all."""
        for table in self.tables.values():
            if self._is_overtaken:
                table.stage_anew()
            table.publish()  # what a step that failed may have left
        self._is_overtaken = False
        if self._version is not None:
            self._take_versions(self._version + 1, version, epoch)
            self._reached(epoch)
            self._version = version
            return True
        if self._behind is None:
            self._behind = self._windows(epoch, version)
        if next(self._behind, None) is not None:
            return False
        self._behind = None
        return self._version == version

    def _windows(self, epoch: int, version: int) -> Iterator[int]:
        self._epochs = {name: _epoch_of(table.delta) for name, table in self.tables.items()}
        windows = ChangeWindows(
            str(self._lake_dir), first=self.epoch + 1, last=epoch, whole_epochs=True, rows=_ROWS_AT_ONCE
        )
        for rows in windows.read(COLUMNS, CODES):
            last = pc.max(rows["epoch"]).as_py()
            self._take(rows, last)
            yield last
        self._reached(epoch)
        self._version = version

    def _take_versions(self, first: int, last: int, epoch: int) -> None:
        parts: list[pa.Table] = []
        count = 0
        for version in range(first, last + 1):
            rows = self._log.appended(version)
            if rows is None:
                continue
            parts.append(rows.select(COLUMNS))
            count += rows.num_rows
            if count >= _ROWS_AT_ONCE:
                self._take_up_to(pa.concat_tables(parts), epoch)
                parts, count = [], 0
        if parts:
            self._take_up_to(pa.concat_tables(parts), epoch)

    def _take_up_to(self, rows: pa.Table, epoch: int) -> None:
        last = pc.max(rows["epoch"]).as_py()
        if last > epoch:
            raise ValueError(f"{ROUTE_CHANGE_TABLE.name} has epoch {last}, which is not there yet")
        self._take(rows, last)

    def _take(self, rows: pa.Table, epoch: int) -> None:
        """Changes of whole epochs, the last of which is this one."""
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
        """Epochs up to this one were looked at; a table without changes says so once in a while."""
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
    """Up to which epoch a table is whole."""
    return table.transaction_version(INTERVALS_APP) or 0


def _empty(path: Path, table: Table) -> None:
    """Take all rows out of a table by a commit, as it may be published already; remove what is no whole table.

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
    """Make all tables of intervals anew from the changes; the fold must not run. Killed, a fold or another run goes on.

    Args:
        lake_dir: the lake, whose lock this process holds.
        say: is told the epoch that was reached, and the last one.

    Returns:
        The epoch up to which they are.

    Raises:
        SetupError: a table cannot be opened.
        deltalake.exceptions.DeltaError, OSError, ValueError, pyarrow.ArrowException: it cannot be read or written.
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
    """Steps of a keeper on a thread of their own, one at a time, so that no epoch waits for one.

    Nearly all of a step is Arrow's and delta-rs's work, which leaves the interpreter to others. The thread that
    writes the lake calls this. Maintenance waits until it is idle, as a step writes the interval tables.

    Args:
        keeper: Nobody else calls it.
    """

    def __init__(self, keeper: IntervalKeeper) -> None:
        self._keeper = keeper
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Return True if no step is under way. Others may then write the tables until the next `start`."""
        return self._thread is None or not self._thread.is_alive()

    def start(self, epoch: int, version: int) -> None:
        """Begin a step, where one is due and none is under way. The arguments are those of `IntervalKeeper.step`."""
        if self.is_idle and self._keeper.is_due:
            # As a daemon: a process that has to end leaves a step as it leaves a batch, and another one goes on.
            self._thread = critical_thread(self._keeper.step, "intervals", (epoch, version))
            self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is idle; returns whether it is."""
        if self._thread is not None:
            self._thread.join(max(timeout_s, 0))
        return self.is_idle
