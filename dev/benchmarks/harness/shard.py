# SPDX-License-Identifier: Apache-2.0
"""One shard that holds everything, without Spark: state and topics in memory, one micro-batch after the other."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from lake.write.batch import Batch
from lake.write.shards import seed_rows
from nameserver.state_machine.codec import decode_shard
from nameserver.state_machine.state import RouteState
from pipelines.blocks import Record
from pipelines.shard_fold import ShardFiles, ShardFold, TopicStore


def spool_beside(lake_dir: Path) -> Path:
    """A new folder for what shards write."""
    folder = lake_dir.with_name(f"{lake_dir.name}.spool")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


class OneShard:
    """The state of the only shard between its batches.

    Args:
        spool_dir: for what the shard writes.
        run_id: names the driver run.
        seed: state to go on from.

    Attributes:
        topics: broker name -> its encoded topics.
    """

    def __init__(self, spool_dir: Path, run_id: str = "run", seed: RouteState | None = None) -> None:
        ((self._key, state, names, topics),) = seed_rows(seed or RouteState(), 1)
        self._shard = decode_shard(state)
        self.topics: dict[str, bytes] = dict(zip(names, topics, strict=True))
        self._run_id = run_id
        self._spool_dir = spool_dir

    def open(self, epoch: int) -> ShardFold:
        """Begin a batch that will be an epoch. Its `finish` leaves the shard ready for the next one."""
        store = TopicStore(self.topics.get, self.topics.__setitem__, self._forget)
        return ShardFold(self._key, self._shard, store, self._run_id, self._files(epoch))

    def batch(self, records: Iterable[Record], *, epoch: int = 1) -> Batch:
        """Fold a whole batch."""
        fold = self.open(epoch)
        for record in records:
            fold.apply(record)
        fold.finish()
        return Batch.merge(fold.emit())

    def _files(self, epoch: int) -> ShardFiles:
        return ShardFiles.in_folder(self._spool_dir, epoch)

    def _forget(self, name: str) -> None:
        self.topics.pop(name, None)
