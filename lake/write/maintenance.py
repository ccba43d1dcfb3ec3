# SPDX-License-Identifier: Apache-2.0
"""Maintenance of the tables by the one writer, in small steps between batches.

After a batch, one urgent piece of work is done if it is due: a checkpoint of one table, or a part of a trim of the
event log. Then pieces of a sweep are done for `STEP_S`, but at least one: compaction of one partition, vacuum or log
clean-up of one table. A piece usually takes well under a second. It takes longer if a table has very many files.
Counters and the clock decide what is due. Maintenance changes no result at an epoch that is still kept.

A sweep is due every hour, and may take longer. The next one begins after its end, so that no table is left out.

The lake is synced to disk before events or entries of a Delta log are deleted. Otherwise a power loss could destroy the
tables that have the deleted events, or the checkpoint that replaces the deleted entries (`lake.write.synced`).

A separate clock decides what is old enough to delete. It is never ahead of the machine's clock and runs at most twice
as fast as time passes. So if the machine's clock is set ahead by a month, no data becomes a month older. After a stop
of the fold, data is kept longer by the duration of the stop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import structlog
from deltalake import DeltaTable

from eventlog.base import EventLog
from lake.commits import last_commit
from lake.publisher import Publisher
from lake.write.staging import StagedTable
from lake.write.synced import read_synced, sync_lake
from lake.write.writer import PROPERTIES, LakeWriter
from schemas.intervals import INTERVAL_TABLES
from schemas.route_commit import to_ms
from schemas.tables import ALL_TABLES, Table

log = structlog.get_logger("routelake.maintenance")

CHECKPOINT_EVERY_COMMITS = 50
"""Minimum number of commits between checkpoints. A checkpoint also has every file removed within the retention. If it
has many actions, the interval is a hundredth of their number, up to `CHECKPOINT_AT_MOST_COMMITS`."""
CHECKPOINT_AT_MOST_COMMITS = 2_500
CHECKPOINT_AGAIN_S = 300.0
"""Seconds until the next try after a failed checkpoint. Meanwhile other work is done."""
COMPACT_EVERY_COMMITS = 250
COMPACT_WHEN_FILES = 32
"""A partition with more files than this is compacted."""
COMPACTED_BYTES = 16 * 1024 * 1024
"""Files of at least this size are not compacted. Otherwise each compaction would rewrite the whole history."""
SWEEP_INTERVAL_S = 3600.0
FIRST_SWEEP_S = 300.0
"""Seconds from the start to the first sweep, short so that a fold with frequent restarts sweeps, too."""
STEP_S = 0.25
"""Seconds after which a step begins no further piece of a sweep."""
TRIM_INTERVAL_S = 60.0

HOUR_MS = 3_600_000

INTERVALS_RETENTION_H = 24
"""Retention of earlier versions of the interval tables. No reader needs them: the newest one has the whole history."""

Work = Callable[[], object]


class Maintenance:
    """Call `step` after each batch, from the writer's thread."""

    def __init__(
        self,
        tables: Mapping[str, StagedTable],
        event_log: EventLog,
        retention_days: int,
        log_retention_hours: float,
        publisher: Publisher | None = None,
    ) -> None:
        self._publisher = publisher
        self._tables = tables
        self._declared = [table for table in (*ALL_TABLES, *INTERVAL_TABLES) if table.name in tables]
        self._event_log = event_log
        self._retention_hours = retention_days * 24
        self._log_retention_ms = round(log_retention_hours * HOUR_MS)
        self._lake_dir = next(iter(tables.values())).path.parent
        self._clock = CleanUpClock(self._lake_dir)
        self._synced: dict[str, int] = {}
        """Versions of the tables at the last sync to disk."""
        self._compacted = {name: table.version for name, table in tables.items()}
        self._checkpoint_from_s: dict[str, float] = {}
        """Table -> time of the next checkpoint, if the last one failed."""
        self._sweep: Iterator[tuple[str, Work]] = iter(())
        self._swept_at = time.monotonic() - SWEEP_INTERVAL_S + FIRST_SWEEP_S
        self._trimmed_at = time.monotonic()
        self._next_trim: Work | None = None
        """A trim of the event log that is due, or the rest of the last one."""
        self._folded_before = -1

    def step(self, writer: LakeWriter) -> None:
        """Do the urgent piece of work and pieces of the sweep, if any. A failure is logged and tried again later."""
        if (urgent := self._urgent(writer)) is not None:
            _do(*urgent)
        self._folded_before = writer.log_offset
        until_s = time.monotonic() + STEP_S
        while (piece := self._next_of_sweep()) is not None:
            _do(*piece)
            if time.monotonic() >= until_s:
                break

    def _urgent(self, writer: LakeWriter) -> tuple[str, Work] | None:
        """Return a late checkpoint or a part of a trim. A table with many new commits joins the sweep here."""
        now = time.monotonic()
        for declared in self._declared:
            name, table = declared.name, self._tables[declared.name]
            is_late = table.version - table.last_checkpoint.version >= _checkpoint_interval(table)
            if is_late and now >= self._checkpoint_from_s.get(name, now):
                return f"checkpoint {name}", partial(self._checkpoint, name)
            # At multiples of a version, so that a process with frequent restarts compacts, too.
            if table.version // COMPACT_EVERY_COMMITS > self._compacted[name] // COMPACT_EVERY_COMMITS:
                self._sweep = chain(self._sweep, self._compaction(declared))
                self._compacted[name] = table.version
        if now - self._trimmed_at >= TRIM_INTERVAL_S:
            self._trimmed_at = now
            before_offset = min(writer.liveness_offset, self._folded_before) + 1
            self._next_trim = partial(self._trim, before_offset, writer.event_time_ms)
        trim, self._next_trim = self._next_trim, None
        return None if trim is None else ("trim event log", trim)

    def _next_of_sweep(self) -> tuple[str, Work] | None:
        """Return the next piece of the sweep, or the first one of a new sweep if one is due."""
        piece = next(self._sweep, None)
        if piece is None and time.monotonic() - self._swept_at >= SWEEP_INTERVAL_S:
            self._swept_at = time.monotonic()
            self._sweep = self._sweep_work()
            piece = next(self._sweep, None)
        return piece

    def _checkpoint(self, name: str) -> None:
        self._checkpoint_from_s[name] = time.monotonic() + CHECKPOINT_AGAIN_S
        self._tables[name].checkpoint()
        del self._checkpoint_from_s[name]

    def _trim(self, before_offset: int, event_time_ms: int) -> None:
        """Delete old events that are in committed epochs.

        Events that a seed may need are kept, and those of the current batch: Spark reads them again if the process dies
        before the batch is in the checkpoint. Age is by event time, so that no clock of the fold decides.
        """
        if self._versions() != self._synced:
            self._sync()
        self._trim_part(before_offset, event_time_ms - self._log_retention_ms)

    def _trim_part(self, before_offset: int, older_than_ms: int) -> None:
        """Delete a part of these events. The next step goes on with the same events, which need no other sync."""
        if self._event_log.trim(before_offset, older_than_ms):
            self._next_trim = partial(self._trim_part, before_offset, older_than_ms)

    def _sync(self) -> None:
        """Sync the lake to disk. A lake in an object store needs no sync. Raises OSError."""
        if self._publisher is None:
            versions = self._versions()
            sync_lake(self._lake_dir, versions, self._clock.now_ms())
            self._synced = versions

    def _versions(self) -> dict[str, int]:
        return {name: table.version for name, table in self._tables.items()}

    def _vacuum(self, table: StagedTable, hours: int) -> None:
        table.maintain(partial(_vacuum, hours=self._clock.hours_to_keep(hours)))

    def _clean_log(self, table: StagedTable) -> None:
        """Clean up the log, unless the machine's clock is ahead, as delta-rs uses only that clock."""
        if self._clock.ahead_ms() < HOUR_MS:
            self._sync()
            table.maintain(DeltaTable.cleanup_metadata)

    def _vacuum_store(self, publisher: Publisher, name: str, hours: int) -> None:
        publisher.vacuum(name, self._clock.hours_to_keep(hours))

    def _clean_store_log(self, publisher: Publisher, name: str) -> None:
        if self._clock.ahead_ms() < HOUR_MS:
            publisher.clean_log(name)

    def _sweep_work(self) -> Iterator[tuple[str, Work]]:
        for declared in self._declared:
            name, table = declared.name, self._tables[declared.name]
            yield from self._compaction(declared)
            hours = INTERVALS_RETENTION_H if declared in INTERVAL_TABLES else self._retention_hours
            if self._publisher is None:
                yield f"vacuum {name}", partial(self._vacuum, table, hours)
            else:
                yield f"remove old files of {name} from the copy", partial(_remove_old_files, self._publisher, name)
            yield f"clean up log of {name}", partial(self._clean_log, table)
            if self._publisher is not None:
                yield f"vacuum {name} in the store", partial(self._vacuum_store, self._publisher, name, hours)
                yield f"clean up log of {name} in the store", partial(self._clean_store_log, self._publisher, name)

    def _compaction(self, declared: Table) -> Iterator[tuple[str, Work]]:
        for partition in self._crowded(self._tables[declared.name].delta, declared.partition_by):
            yield f"compact {declared.name} {partition}", partial(self._compact, declared.name, partition)

    def _compact(self, name: str, partition: list[tuple[str, str, str]]) -> None:
        table = self._tables[name]
        table.delta.optimize.compact(
            partition_filters=partition or None, target_size=COMPACTED_BYTES, writer_properties=PROPERTIES[name]
        )
        table.publish()

    @staticmethod
    def _crowded(table: DeltaTable, partition_by: tuple[str, ...]) -> Iterator[list[tuple[str, str, str]]]:
        """Yield partitions with too many files, as filters of delta-rs. A table without partitions is one partition."""
        columns = [f"partition.{name}" for name in partition_by]
        files = pa.table(table.get_add_actions(flatten=True)).select(columns or ["path"])
        files = files.cast(pa.schema([(name, pa.string()) for name in files.column_names]))
        for row in files.group_by(columns).aggregate([([], "count_all")]).to_pylist():
            if row["count_all"] > COMPACT_WHEN_FILES:
                yield [(name, "=", row[f"partition.{name}"]) for name in partition_by]


class CleanUpClock:
    """Clock for the deletion of old data.

    Args:
        lake_dir: Folder of the lake. The clock starts at its own time of the last sync of the lake, or else at the time
            of the last epoch.
    """

    def __init__(self, lake_dir: Path) -> None:
        known_ms = read_synced(lake_dir).clean_up_ms
        if not known_ms and (last := last_commit(lake_dir)) is not None:
            known_ms = to_ms(last.commit_time)
        self._now_ms = min(known_ms or _wall_ms(), _wall_ms())
        self._seen_s = time.monotonic()
        self._said = False

    def now_ms(self) -> int:
        """Time of this clock, ms since 1970."""
        now_s = time.monotonic()
        passed_ms = round((now_s - self._seen_s) * 1000)
        self._seen_s = now_s
        self._now_ms = min(_wall_ms(), self._now_ms + 2 * passed_ms)
        return self._now_ms

    def ahead_ms(self) -> int:
        """Milliseconds by which the machine's clock is ahead of this clock."""
        ahead_ms = _wall_ms() - self.now_ms()
        if ahead_ms >= HOUR_MS and not self._said:
            self._said = True
            log.warning(
                "system clock jumped forward: old versions and events are kept longer",
                ahead_hours=ahead_ms // HOUR_MS,
            )
        return ahead_ms

    def hours_to_keep(self, hours: int) -> int:
        """Retention in hours of the machine's clock that keeps data for at least `hours` of this clock."""
        return hours + math.ceil(self.ahead_ms() / HOUR_MS)


def _do(what: str, work: Work) -> None:
    started = time.monotonic()
    try:
        work()
    except Exception as error:
        log.warning("table maintenance failed; retrying later", work=what, error=str(error))
    else:
        log.debug("maintenance", work=what, seconds=round(time.monotonic() - started, 3))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _vacuum(table: DeltaTable, *, hours: int) -> None:
    # A full vacuum: the light one leaves change feed files, and files removed before the last checkpoint.
    table.vacuum(hours, dry_run=False, full=True)


def _remove_old_files(publisher: Publisher, name: str) -> None:
    publisher.publish_all()  # a table with unpublished commits, as of this sweep's compaction, keeps all its files
    publisher.copy.remove_old_files(name)


def _checkpoint_interval(table: StagedTable) -> int:
    return max(CHECKPOINT_EVERY_COMMITS, min(table.last_checkpoint.size // 100, CHECKPOINT_AT_MOST_COMMITS))
