# SPDX-License-Identifier: Apache-2.0
"""Commit of one micro-batch as one epoch.

Recovery depends on the order of a commit:

1. If routeCommitTable already has this (query id, batch id), the batch is done: stop.
2. Each changed state table: append if every changed row is new, otherwise MERGE by key. For topicQueueTable, shards
   have written the files, which are only committed (`lake.write.staging`, docs/adr/0021). Each commit has the Delta app
   transaction (query id, batch id). A table that already has it is skipped.
3. brokerLiveTable: every changed live row. Rows in which only the time of the last heartbeat changed are written
   together, every ten seconds.
4. routeChangeTable and quarantineTable: append. Shards may have written files of routeChangeTable, too.
5. routeCommitTable: one row with the versions of all tables, and the digest of this row and of the rows of step 4
   (`lake.write.hash_chain`). Only now does the epoch exist for readers.

Each step is a Delta commit in the staging folder of the table, which is then published (`lake.write.staging`).

Steps 2 to 4 have no order among each other, and two tables are written at a time. Step 5 waits for all of them. After a
crash, some tables may be ahead of the last epoch. The repeated batch skips them and writes the others, so the result is
the same. Source: Delta protocol, "Transaction Identifiers".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from msgspec.structs import replace

from lake.commits import last_commit
from lake.delta.data_file import (
    COMPRESSION,
    COMPRESSION_LEVEL,
    NO_TWO_ALIKE,
    STATISTICS_LENGTH,
    Partition,
)
from lake.delta.ddl import open_lake
from lake.delta.reader import table_at
from lake.delta.types import arrow_schema
from lake.write.arrow import CODED_CHANGE_SCHEMA, DELETE, INSERT, LIVENESS, OP, UPDATE, operation_schema
from lake.write.batch import Batch
from lake.write.hash_chain import EpochDigest, in_blocks
from lake.write.shard_files import HistoryFile, with_epoch
from lake.write.shards import shard_keys
from lake.write.staging import NO_HOOKS, StagedTable, append_files, change_partitions, stage
from nameserver.state_machine.step import PRESERVED
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from runtime.disk import at_start
from schemas.errors import SetupError, one_line
from schemas.events import Resume
from schemas.intervals import INTERVAL_TABLES
from schemas.outcomes import APPLIED
from schemas.route_commit import NO_COMMIT, RouteCommit, from_ms, to_ms
from schemas.tables import (
    ALL_TABLES,
    BROKER_LIVE_TABLE,
    CHAIN,
    QUARANTINE_TABLE,
    ROUTE_CHANGE_TABLE,
    ROUTE_COMMIT_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_TABLE,
    Table,
)

_AT_ONCE = 2
"""Number of tables written in parallel. With two, an epoch of four small commits takes three quarters of the time."""
_DUE: Final = 0.9
"""Part of the liveness interval after which heartbeat times are due. Without other events a batch starts once in that
interval, some milliseconds sooner or later, and each of them should write the heartbeat times."""
_RENEW_AFTER: Final = timedelta(hours=6)
"""Age of the last epoch at which the next batch makes an epoch, also without changes. The versions of an older one may
be deleted after a retention, which is at least a day, if maintenance has compacted the tables since."""

PROPERTIES = {
    table.name: WriterProperties(
        compression=COMPRESSION,
        compression_level=COMPRESSION_LEVEL,
        statistics_truncate_length=STATISTICS_LENGTH,
        column_properties={NO_TWO_ALIKE[table.name]: ColumnProperties(dictionary_enabled=False)}
        if table.name in NO_TWO_ALIKE
        else None,
    )
    for table in (*ALL_TABLES, *INTERVAL_TABLES)
}
"""Parquet properties for delta-rs, by table name. `lake.delta.data_file` writes the same."""

_SCHEMAS = {table.name: arrow_schema(table) for table in ALL_TABLES}
_COMMIT_SCHEMA = _SCHEMAS[ROUTE_COMMIT_TABLE.name]
_LIVE_KEY = BROKER_LIVE_TABLE.key
_RESUME = str(Resume.__struct_config__.tag)
_json = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Epoch:
    """Result of a commit."""

    epoch: int
    log_offset: int
    versions: Mapping[str, int]


class LakeWriter:
    """The one writer of a lake. Not thread-safe: foreachBatch calls it batch after batch."""

    def __init__(self, lake_dir: Path, *, retention_days: int, liveness_interval_s: float, shards: int) -> None:
        self.lake_dir = lake_dir
        opened = open_lake(lake_dir, retention_days=retention_days)
        self._liveness_interval_s = liveness_interval_s
        self._shards = shards
        self._pending_live: dict[tuple[str, ...], dict[str, Any] | None] = {}
        self._changed_live: set[tuple[str, ...]] = set()
        """Keys of pending live rows that the next epoch must have."""
        self._flushed_at = -math.inf  # never. Zero would be wrong: a monotonic clock may start at boot.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="lake-writer")
        commit = last_commit(lake_dir) or NO_COMMIT
        check_versions(lake_dir, opened, commit)
        self.tables: Mapping[str, StagedTable] = stage(lake_dir, opened)
        # Shards that have reported all their live rows to this writer. Before the first epoch there are no older rows.
        self._full: set[int] = set() if commit.epoch else set(shard_keys(shards))
        self.epoch = commit.epoch
        self._progress = commit
        """The last epoch, with the progress of later batches that made no epoch."""
        self._committed_offset = commit.log_offset

    def write(self, query_id: str, batch_id: int, batch: Batch) -> Epoch | None:
        """Commit a batch. Return None if it was already committed, or was empty and no epoch is due.

        Without changes, an epoch is due if heartbeat times are, or if the last one is old (`_RENEW_AFTER`).

        Args:
            query_id: id in the checkpoint of the streaming query (a new checkpoint is a new writer).
            batch_id: Spark's batch id, increasing within a query id.
            batch: merged parts of the shards.

        Raises:
            deltalake.exceptions.DeltaError, OSError: storage failed. Spark repeats the batch.
        """
        self._take_progress(batch)
        self._take_live(batch)
        for staged in self.tables.values():
            staged.publish()  # a failed batch may have left unpublished commits
        done = {table.name for table in ALL_TABLES if self._has(table, query_id, batch_id)}
        if ROUTE_COMMIT_TABLE.name in done:
            return None
        now_s = time.monotonic()
        live_is_due = now_s - self._flushed_at >= _DUE * self._liveness_interval_s
        if batch.is_empty and not (self._pending_live and live_is_due) and not self._must_renew():
            return None

        transaction = Transaction(query_id, batch_id)
        epoch = self.epoch + 1
        steps: list[Callable[[], None]] = []
        for table in STATE_TABLES:
            operations = batch.operations.get(table.name)
            if operations and table.name not in done:
                steps.append(partial(self._apply, table, operations, transaction))
        if batch.partitions and TOPIC_QUEUE_TABLE.name not in done:
            steps.insert(0, partial(self._commit_partitions, batch.partitions, transaction))
        written_live = set(self._pending_live) if live_is_due else set(self._changed_live)
        if BROKER_LIVE_TABLE.name in done:
            written_live.clear()
        if written_live:
            live = self._live_operations(written_live)
            steps.append(partial(self._apply, BROKER_LIVE_TABLE, [live], transaction))
        digest = EpochDigest()
        if ROUTE_CHANGE_TABLE.name in done:
            digest.add_changes(in_blocks(self._written(ROUTE_CHANGE_TABLE, pc.field("epoch") == epoch)))
        elif batch.has_history:
            steps.append(partial(self._append_history, batch, epoch, digest, transaction))
        if QUARANTINE_TABLE.name in done:
            since = pc.field("offset") > self._committed_offset
            digest.add_quarantine(self._written(QUARANTINE_TABLE, since))
        elif batch.quarantine:
            quarantine = map(digest.add_quarantine, batch.quarantine)
            steps.append(partial(self._append, QUARANTINE_TABLE, quarantine, transaction))
        self._do(steps)
        for key in written_live:
            del self._pending_live[key]
        self._changed_live -= written_live
        if not self._pending_live:
            self._flushed_at = now_s

        if len(self._full) == self._shards and not self._pending_live:
            self._progress = replace(self._progress, liveness_offset=self.log_offset)
        versions = {name: table.version for name, table in self.tables.items() if name != ROUTE_COMMIT_TABLE.name}
        commit = replace(
            self._progress,
            epoch=epoch,
            commit_time=datetime.now(UTC),
            versions=versions,
            query_id=query_id,
            rules_version=STATE_MACHINE_VERSION,
        )
        outcomes = _json.encode(list(map(_short, batch.outcomes))).decode() if batch.outcomes else None
        row = {**commit.columns, "batchId": batch_id, "outcomes": outcomes}
        row[CHAIN] = chain = digest.link(commit.chain, row)
        self._append(ROUTE_COMMIT_TABLE, [pa.Table.from_pylist([row], schema=_COMMIT_SCHEMA)], transaction)
        self.epoch, self._progress, self._committed_offset = epoch, replace(commit, chain=chain), commit.log_offset
        return Epoch(epoch, commit.log_offset, versions)

    @property
    def log_offset(self) -> int:
        """Offset up to which all events are processed, including those of empty batches."""
        return self._progress.log_offset

    @property
    def event_time_ms(self) -> int:
        """Greatest event time of the processed events, ms since 1970."""
        return to_ms(self._progress.event_time)

    @property
    def liveness_offset(self) -> int:
        """Offset up to which a seed needs no event."""
        return self._progress.liveness_offset

    def _must_renew(self) -> bool:
        """Return True if the last epoch is old. A wrong clock may have dated it in the future."""
        return self.epoch > 0 and abs(datetime.now(UTC) - self._progress.commit_time) >= _RENEW_AFTER

    def _take_progress(self, batch: Batch) -> None:
        known = self._progress
        resumed_ms, preserved_ms = known.resumed_ms, known.preserved_ms
        for entry in batch.outcomes:
            if entry["command"] == _RESUME and entry["outcome"] == APPLIED:
                resumed_ms = max(resumed_ms, entry["eventTime"])
            if PRESERVED in (entry["result"] or {}):
                preserved_ms = entry["result"][PRESERVED]
        self._full.update(shard.shard for shard in batch.progress if shard.full)
        self._progress = replace(
            known,
            log_offset=max(known.log_offset, *(shard.offset for shard in batch.progress), -1),
            event_time=from_ms(max(to_ms(known.event_time), *(shard.event_time_ms for shard in batch.progress), 0)),
            watermark=from_ms(max(to_ms(known.watermark), *(shard.watermark_ms for shard in batch.progress), 0)),
            resume_time=from_ms(resumed_ms) if resumed_ms else None,
            preserve_time=from_ms(preserved_ms) if preserved_ms else None,
        )

    def _take_live(self, batch: Batch) -> None:
        for part in batch.live:
            for row in part.to_pylist():
                op = row.pop(OP)
                key = tuple(row[name] for name in _LIVE_KEY)
                self._pending_live[key] = None if op == DELETE else row
                if op != LIVENESS:
                    self._changed_live.add(key)

    def _live_operations(self, keys: Set[tuple[str, ...]]) -> pa.Table:
        rows = [
            {**dict(zip(_LIVE_KEY, key, strict=True)), OP: DELETE} if row is None else {**row, OP: UPDATE}
            for key, row in self._pending_live.items()
            if key in keys
        ]
        return pa.Table.from_pylist(rows, schema=operation_schema(BROKER_LIVE_TABLE))

    def _written(self, table: Table, wanted: pc.Expression) -> pa.Table:
        """Rows of an earlier try of this batch."""
        return table_at(str(self.lake_dir), table).to_table(filter=wanted)

    def _has(self, table: Table, query_id: str, batch_id: int) -> bool:
        """Return True if a table already has the commit of a batch."""
        version = self.tables[table.name].delta.transaction_version(query_id)
        return version is not None and version >= batch_id

    def _do(self, steps: Sequence[Callable[[], None]]) -> None:
        """Run steps of different tables, two at a time. If one fails, the others end before the error is raised."""
        started = [self._threads.submit(step) for step in steps]
        wait(started)
        for step in started:
            step.result()

    def _apply(self, table: Table, parts: Sequence[pa.Table], transaction: Transaction) -> None:
        operations = pa.concat_tables(parts)
        kinds = set(operations[OP].unique().to_pylist())
        if kinds == {INSERT}:
            self._append(table, [operations.drop_columns([OP])], transaction)
            return
        staged = self.tables[table.name]
        merge = staged.delta.merge(
            operations,
            predicate=" and ".join(f't."{name}" = s."{name}"' for name in table.key),
            source_alias="s",
            target_alias="t",
            writer_properties=PROPERTIES[table.name],
            commit_properties=CommitProperties(app_transactions=[transaction]),
            post_commithook_properties=NO_HOOKS,
        )
        assign = {f'"{name}"': f's."{name}"' for name in table.column_names}
        if DELETE in kinds:
            merge = merge.when_matched_delete(f"s.{OP} = '{DELETE}'")
        if kinds != {DELETE}:
            # A key alone (clusterAddrTable) has nothing to update.
            if table.value_columns:
                merge = merge.when_matched_update({f'"{name}"': f's."{name}"' for name in table.value_columns})
            merge = merge.when_not_matched_insert(assign, predicate=f"s.{OP} <> '{DELETE}'")
        merge.execute()
        staged.publish()

    def _commit_partitions(self, partitions: Sequence[Partition], transaction: Transaction) -> None:
        change_partitions(self.tables[TOPIC_QUEUE_TABLE.name], TOPIC_QUEUE_TABLE, partitions, transaction)

    def _append_history(self, batch: Batch, epoch: int, digest: EpochDigest, transaction: Transaction) -> None:
        rows_of_driver = batch.history(digest)
        if not batch.histories:
            self._append(ROUTE_CHANGE_TABLE, (with_epoch(rows, epoch) for rows in rows_of_driver), transaction)
            return
        for written in batch.histories:
            if written.epoch != epoch:
                raise ValueError(f"a shard wrote changes of epoch {written.epoch}, and this is epoch {epoch}")
        staged = self.tables[ROUTE_CHANGE_TABLE.name]
        rest = HistoryFile(staged.staging, epoch)
        for rows in rows_of_driver:
            rest.add(rows.cast(CODED_CHANGE_SCHEMA), ())
        files = [written.file for written in (*batch.histories, rest.close()) if written is not None]
        append_files(staged, [({}, file) for file in files], transaction)

    def _append(self, table: Table, parts: Iterable[pa.Table], transaction: Transaction) -> None:
        schema = _SCHEMAS[table.name]
        staged = self.tables[table.name]
        batches = (batch for part in parts for batch in part.cast(schema).to_batches())
        write_deltalake(
            staged.delta,
            pa.RecordBatchReader.from_batches(schema, batches),
            mode="append",
            writer_properties=PROPERTIES[table.name],
            commit_properties=CommitProperties(app_transactions=[transaction]),
            post_commithook_properties=NO_HOOKS,
        )
        staged.publish()


def _short(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a command's outcome that routeCommitTable keeps for its answer. The rest is in routeChangeTable."""
    return {name: entry[name] for name in ("offset", "outcome", "reason", "result")}


def check_versions(lake_dir: Path, tables: Mapping[str, DeltaTable], commit: RouteCommit) -> None:
    """Refuse a lake that lost a table, or has a table from an older backup.

    Raises:
        SetupError: the last epoch names a version that its table does not have.
    """
    for name, needed in commit.versions.items():
        if name in tables and (found := tables[name].version()) < needed:
            raise SetupError(
                f"{lake_dir / name} is at version {found}, but epoch {commit.epoch} needs version {needed}: it was "
                "lost, or restored without the others. Restore the whole lake from one backup."
            )


def rewind(lake_dir: Path, tables: Mapping[str, DeltaTable]) -> None:
    """Restore tables that are ahead of the last epoch to it, before a new checkpoint starts.

    Raises:
        SetupError: the versions of the last epoch cannot be read.
        UnavailableError: the disk is full or failing.
    """
    commit = last_commit(lake_dir) or NO_COMMIT
    check_versions(lake_dir, tables, commit)
    for name, table in tables.items():
        if name == ROUTE_COMMIT_TABLE.name:
            continue
        committed = commit.versions.get(name, 0)
        if table.version() > committed:
            try:
                table.restore(committed)
            except Exception as error:
                raise at_start(error)(
                    f"{lake_dir / name} cannot be put back to version {committed} of epoch {commit.epoch}: "
                    f"{one_line(error)}"
                ) from error
