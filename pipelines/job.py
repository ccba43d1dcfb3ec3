# SPDX-License-Identifier: Apache-2.0
"""Streaming query of the fold: from the event log through the state machine to Delta tables, with one checkpoint.

    read_stream -> blocks of records (pipelines.blocks) -> transformWithState by shard
                -> foreachBatch: collect the shards' parts, commit an epoch with delta-rs

While the fold is stopped, the checkpoint folder can be deleted at any time. The next start then reads its state from
the tables at the last epoch and continues from that offset (lake.write.seed).
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eventlog.open import open_log
from lake.checkpoint import CHECKPOINT_FORMAT, MARKER_FILE, Marker, check_compatible, read_marker, remove, write_seen
from lake.commits import last_commit
from lake.delta.ddl import open_lake, write_whole
from lake.history.intervals import BackgroundStep, IntervalKeeper
from lake.publisher import Publisher
from lake.write.batch import Batch
from lake.write.maintenance import Maintenance
from lake.write.seed import Seed, read_seed
from lake.write.shards import SHARD_KEYS, seed_rows
from lake.write.writer import LakeWriter, rewind
from nameserver.state_machine.state import RouteState
from pipelines.cluster.master import Cluster, shards_for
from pipelines.processor import EPOCH_PROPERTY, OUTPUT_SCHEMA, SEED_SCHEMA, RouteProcessor, files_of_task
from pipelines.source import PaceSettings, SourceSettings, read_stream
from schemas.errors import SetupError
from schemas.tables import FOLD_HASTEN_FILE, FOLD_STATUS_FILE, ROUTE_CHANGE_TABLE

log = structlog.get_logger("routelake.fold")

_WATERMARK_DELAY: Final = "1 millisecond"
"""Spark drops records at or before the watermark. The delay keeps records of equal time in two batches."""
_PACE_AT_MOST_S: Final = 10.0
"""Maximum seconds by which the tables are behind the event log, in addition to the duration of a batch."""
_PACE_BURST_S: Final = 2.0
"""Processor seconds without a delay after a quiet time. So a few changes then reach the tables within a second each."""
_STEP_AT_MOST_S: Final = 60.0
"""Maximum seconds to wait for a step of the interval tables. It takes some seconds if millions of topics are new."""


@dataclass(frozen=True, slots=True)
class FoldSettings:
    """Settings of the fold."""

    lake_dir: Path
    """Folder of the lake, or with ``lake_url`` of its local copy, to which the fold commits (`lake.publisher`)."""
    checkpoint_dir: Path
    log_url: str
    scratch_dir: Path
    shards: int = 2
    """Number of shards. 0 on a cluster: the number in the checkpoint, or one that fits its cores."""
    trigger_ms: int = 1_000
    """Minimum milliseconds between starts of batches. 0: a batch starts as soon as there are events."""
    cores: float = 0.1
    """Cores that batches may use on average. 0: no limit. See `pipelines.source.Pace`."""
    liveness_interval_s: float = 10.0
    """Maximum seconds until a heartbeat is in the tables. Without other events, a batch starts that often."""
    retention_days: int = 30
    log_retention_hours: float = 24.0
    driver_memory: str = "1g"
    lake_url: str = ""
    standby: bool = False
    """True to wait until another fold that holds the lake at the URL ends."""
    cluster: Cluster | None = None
    """Cluster of the executors. None: they run in the fold's own JVM."""

    @property
    def spool_dir(self) -> Path:
        """Folder for shard output that is too large for a row. Both workers and driver can access it."""
        return (self.scratch_dir if self.cluster is None else self.cluster.shared_dir) / "spool"


def spark_session(settings: FoldSettings) -> SparkSession:
    """A Spark session for one small query with low latency."""
    from pipelines.session import session

    return session(
        "routelake-fold",
        driver_memory=settings.driver_memory,
        shards=settings.shards or 2,
        scratch_dir=settings.scratch_dir,
        cluster=settings.cluster,
    )


def with_shards(spark: SparkSession, settings: FoldSettings, cores: int) -> FoldSettings:
    """Set the number of shards if it is 0: from the checkpoint, otherwise two per core."""
    if not settings.shards:
        shards = shards_for(cores, list(SHARD_KEYS))
        tables = open_lake(settings.lake_dir, retention_days=settings.retention_days)
        if _can_continue(settings, tables):
            shards = read_marker(settings.checkpoint_dir).shards
        settings = replace(settings, shards=shards)
    spark.conf.set("spark.sql.shuffle.partitions", str(settings.shards))
    return settings


class FoldQuery:
    """The running query of the fold. This process holds the lock of the lake."""

    def __init__(
        self,
        spark: SparkSession,
        settings: FoldSettings,
        publisher: Publisher | None = None,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._log = open_log(settings.log_url)
        seed = self._prepare_checkpoint()
        self.writer = LakeWriter(
            settings.lake_dir,
            retention_days=settings.retention_days,
            liveness_interval_s=settings.liveness_interval_s,
            shards=settings.shards,
        )
        keeper = IntervalKeeper(settings.lake_dir)
        self._intervals = BackgroundStep(keeper)
        self._maintenance = Maintenance(
            {**self.writer.tables, **keeper.tables},
            self._log,
            settings.retention_days,
            settings.log_retention_hours,
            publisher,
        )
        self._committing = threading.Lock()
        self._spool_dir = settings.spool_dir
        shutil.rmtree(self._spool_dir, ignore_errors=True)  # files of a batch that was never written
        self._spool_dir.mkdir(parents=True)
        self.query = self._start(spark, seed)

    def _prepare_checkpoint(self) -> Seed:
        """Continue with the checkpoint if possible, otherwise begin a new one from the tables."""
        settings = self._settings
        tables = open_lake(settings.lake_dir, retention_days=settings.retention_days)
        wanted = Marker(CHECKPOINT_FORMAT, settings.shards, settings.cluster is not None)
        if _can_continue(settings, tables):
            found = read_marker(settings.checkpoint_dir)
            if found.format > CHECKPOINT_FORMAT:
                raise SetupError(
                    f"{settings.checkpoint_dir} was written by a newer routelake. Upgrade, or delete the folder."
                )
            if found.shards != settings.shards:
                raise SetupError(
                    f"the checkpoint has {found.shards} shards, not {settings.shards}. To change the number, stop the "
                    f"fold and delete {settings.checkpoint_dir}. The fold rebuilds it from the tables."
                )
            if found == wanted:
                return Seed(RouteState(), 0, 0)
        remove(settings.checkpoint_dir)
        rewind(settings.lake_dir, tables)
        seed = read_seed(settings.lake_dir, self._log)
        settings.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        (settings.checkpoint_dir / MARKER_FILE).write_bytes(msgspec.json.encode(wanted))
        log.info("new checkpoint", epoch=seed.epoch, from_offset=seed.next_offset, groups=len(seed.state.groups))
        return seed

    def _start(self, spark: SparkSession, seed: Seed) -> StreamingQuery:
        settings = self._settings
        source = SourceSettings(
            settings.log_url,
            seed.next_offset,
            seed.state.now_ms,
            settings.shards,
            pace=PaceSettings(
                cores=settings.cores,
                burst_s=_PACE_BURST_S,
                least_s=settings.trigger_ms / 1000,
                most_s=max(_PACE_AT_MOST_S, settings.trigger_ms / 1000),
                deferred_s=settings.liveness_interval_s,
                pid=os.getpid(),
                hasten_file="" if settings.lake_url else str(settings.lake_dir / FOLD_HASTEN_FILE),
            ),
        )
        initial = spark.createDataFrame(seed_rows(seed.state, settings.shards), SEED_SCHEMA).groupBy("shard")
        parts = (
            read_stream(spark, source)
            .withWatermark("eventTime", _WATERMARK_DELAY)
            .groupBy("shard")
            .transformWithState(
                statefulProcessor=RouteProcessor(uuid.uuid4().hex, partial(files_of_task, self._spool_dir)),
                outputStructType=OUTPUT_SCHEMA,
                outputMode="append",
                timeMode="eventTime",
                initialState=initial,
            )
        )
        writer = (
            parts.writeStream.queryName("routelake-fold")
            .outputMode("append")
            .option("checkpointLocation", str(settings.checkpoint_dir))
            .foreachBatch(self._commit)
        )
        return writer.trigger(processingTime="0 seconds").start()  # the source waits (`Pace`)

    def _commit(self, parts: DataFrame, batch_id: int) -> None:
        context = parts.sparkSession.sparkContext
        query_id = context.getLocalProperty("sql.streaming.queryId")
        if query_id is None:
            raise RuntimeError("Spark does not say which query a batch is of: this release needs Spark 4.2")
        # No task of the batch has run yet. Shards write the epoch into their rows of routeChangeTable.
        context.setLocalProperty(EPOCH_PROPERTY, str(self.writer.epoch + 1))
        rows = parts.collect()
        batch = Batch.merge((row["kind"], bytes(row["payload"])) for row in rows)
        with self._committing:
            self.writer.write(query_id, batch_id, batch)
            batch.close()
            if self._publisher is not None:
                self._publisher.publish()
            write_seen(self._settings.checkpoint_dir, self.writer.epoch, batch_id)
            self._write_status(batch_id)
            if self._intervals.is_idle:  # maintenance also changes the interval tables
                self._maintenance.step(self.writer)
                self._intervals.start(self.writer.epoch, self.writer.tables[ROUTE_CHANGE_TABLE.name].version)
            if self._publisher is not None:
                self._publisher.publish_rest()

    def _write_status(self, batch_id: int) -> None:
        status = {
            "pid": os.getpid(),
            "batchId": batch_id,
            "epoch": self.writer.epoch,
            "logOffset": self.writer.log_offset,
            "timeMillis": time.time_ns() // 1_000_000,
        }
        write_whole(self._settings.lake_dir / FOLD_STATUS_FILE, json.dumps(status))

    def dropped_as_late(self) -> int:
        """Number of records in the last batches that Spark dropped, as their event time was before the watermark.

        Event times never decrease (`pipelines.source`). So a number other than 0 is a defect, and the fold must not
        process events after the missing ones.
        """
        return sum(
            int(operator["numRowsDroppedByWatermark"])
            for progress in self.query.recentProgress  # several batches may end between two checks
            for operator in progress["stateOperators"]
        )

    def hold(self, timeout_s: float = 8.0) -> bool:
        """Wait until current writes end, and prevent new ones, so that the process may end.

        Returns:
            False if a write was still running after the time-out.
        """
        until_s = time.monotonic() + timeout_s
        return self._committing.acquire(timeout=timeout_s) and self._intervals.wait(until_s - time.monotonic())

    def stop(self) -> None:
        """Stop the query in a process that continues to run."""
        self.query.stop()
        self._intervals.wait(_STEP_AT_MOST_S)
        self._log.close()


def _can_continue(settings: FoldSettings, tables: Mapping[str, DeltaTable]) -> bool:
    """Return True if the checkpoint has a finished batch and belongs to the tables of the lake."""
    if not settings.checkpoint_dir.exists():
        return False
    found = check_compatible(settings.checkpoint_dir, last_commit(settings.lake_dir), tables.values())
    if not found.goes_on:
        log.warning("checkpoint is unusable: rebuilding it from the tables", reason=found.why)
    return found.goes_on
