# SPDX-License-Identifier: Apache-2.0
"""A fold without Spark over a lake in an object store: the product's own mirror, writer, seed and intervals.

One batch is one call, on the caller's thread, so that a test can let another fold do what it likes in between.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

from dev.benchmarks.harness.shard import OneShard, spool_beside
from eventlog.base import EventLog
from lake.delta.ddl import open_lake
from lake.history.intervals import IntervalKeeper
from lake.publisher import Publisher
from lake.store import Store
from lake.write.seed import read_seed
from lake.write.writer import Epoch, LakeWriter, rewind
from pipelines.shard_fold import Record
from schemas.tables import ROUTE_CHANGE_TABLE

_runs: Final = itertools.count()


class CopyFold:
    """Takes the lake at once, lease or not; then it is as `pipelines.job` has it.

    Args:
        log: The event log.
        store: Where the lake is.
        folder: For the copy.
        term: Of the fences.
        intervals: Whether the tables of intervals are kept, too.
    """

    def __init__(
        self,
        log: EventLog,
        store: Store,
        folder: Path,
        term: int = 1,
        *,
        retention_days: int = 30,
        intervals: bool = False,
    ) -> None:
        self.copy_dir = folder
        self.mirror = Publisher(store, folder)
        self.mirror.fetch()
        self.mirror.fence(folder.name, term)
        rewind(folder, open_lake(folder, retention_days=retention_days))
        seed = read_seed(folder, log)
        self._log = log
        self._run_id = f"copy-{next(_runs)}"
        self._shard = OneShard(self._run_id, seed.state, spool_beside(folder))
        self._next_offset = seed.next_offset
        self._batch_id = 0
        self.writer = LakeWriter(folder, retention_days=retention_days, liveness_interval_s=0.0, shards=1)
        self._keeper = IntervalKeeper(folder) if intervals else None

    def fold(self, most: int = 1_000) -> Epoch | None:
        """Everything that the log has more, up to so many records."""
        records = self._log.read(self._next_offset, most)
        if records:
            batch = self._shard.batch((Record(*one) for one in records), epoch=self.writer.epoch + 1)
            epoch = self.writer.write(self._run_id, self._batch_id, batch)
            batch.close()
            self._batch_id += 1
            self._next_offset = records[-1].offset + 1
        else:
            epoch = None
        self.mirror.publish()
        if self._keeper is not None:
            self._keeper._next_step_s = 0.0
            self._keeper.step(self.writer.epoch, self.writer.tables[ROUTE_CHANGE_TABLE.name].version)
        self.mirror.publish_rest()
        return epoch
