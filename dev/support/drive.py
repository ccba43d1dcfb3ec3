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

SHARDS = 2


def open_writer(lake_dir: Path, *, liveness_interval_s: float = 0.0, shards: int = SHARDS) -> LakeWriter:
    return LakeWriter(lake_dir, retention_days=30, liveness_interval_s=liveness_interval_s, shards=shards)


class DeltaLake(MemoryLake):
    """Takes the place of the query's lake in dictionaries, and keeps that one, too.

    With ``files`` shards write data files, as in the product; without they hand all of it on.
    """

    def __init__(self, writer: LakeWriter, query_id: str = "q1", first_batch: int = 0, *, files: bool = True) -> None:
        super().__init__()
        if files:
            self.spool_dir = spool_beside(writer.lake_dir)
        self.writer = writer
        self.query_id = query_id
        self.batch_id = first_batch
        self.epochs: list[Epoch | None] = []

    @property
    def next_epoch(self) -> int | None:
        return self.writer.epoch + 1 if self.spool_dir is not None else None

    def apply(self, batch: Batch) -> None:
        super().apply(batch)
        self.epochs.append(self.writer.write(self.query_id, self.batch_id, batch))
        batch.close()
        self.batch_id += 1


def drive(
    lake_dir: Path,
    batches: Iterable[Sequence[LogRecord]],
    *,
    liveness_interval_s: float = 0.0,
    files: bool = True,
) -> DeltaLake:
    """Fold batches into a lake; returns it with everything that was written."""
    query = Query(SHARDS)
    lake = query.lake = DeltaLake(open_writer(lake_dir, liveness_interval_s=liveness_interval_s), files=files)
    for batch in batches:
        query.run(batch)
    return lake
