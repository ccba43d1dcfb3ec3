# SPDX-License-Identifier: Apache-2.0
"""The fold's micro-batches into a real lake: the query without Spark, the writer with delta-rs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dev.benchmarks.harness.shard import spool_beside
from dev.support.microbatches import MemoryLake, Query
from eventlog.base import LogRecord
from lake.write.batch import Batch
from lake.write.writer import Epoch, LakeWriter
from pipelines.shard_fold import ShardFiles

SHARDS = 2


def open_writer(lake_dir: Path, *, liveness_interval_s: float = 0.0, shards: int = SHARDS) -> LakeWriter:
    return LakeWriter(lake_dir, retention_days=30, liveness_interval_s=liveness_interval_s, shards=shards)


class DeltaLake(MemoryLake):
    """Takes the place of the query's lake in dictionaries, and keeps that one, too."""

    def __init__(self, writer: LakeWriter, query_id: str = "q1", first_batch: int = 0) -> None:
        super().__init__()
        self._spool_dir = spool_beside(writer.lake_dir)
        self.writer = writer
        self.query_id = query_id
        self.batch_id = first_batch
        self.epochs: list[Epoch | None] = []

    def files(self) -> ShardFiles:
        """Return the files of the next epoch, as in the product."""
        return ShardFiles.in_folder(self._spool_dir, self.writer.epoch + 1)

    def apply(self, batch: Batch) -> None:
        super().apply(batch)
        self.epochs.append(self.writer.write(self.query_id, self.batch_id, batch))
        self.batch_id += 1


def drive(
    lake_dir: Path,
    batches: Iterable[Sequence[LogRecord]],
    *,
    liveness_interval_s: float = 0.0,
) -> DeltaLake:
    """Fold batches into a lake; returns it with everything that was written."""
    query = Query(SHARDS)
    lake = query.lake = DeltaLake(open_writer(lake_dir, liveness_interval_s=liveness_interval_s))
    for batch in batches:
        query.run(batch)
    return lake
