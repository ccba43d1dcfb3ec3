# SPDX-License-Identifier: Apache-2.0
"""StatefulProcessor adapter between Spark's state and rows and the state machine. It has no rules of its own.

The grouping key is a shard number. The state of a shard is one ValueState for all small data, and a MapState
brokerName -> topics, which is only read if the state machine needs topics. There are no timers, as brokers expire by
records of the event log (ADR 24). Source: pyspark.sql.streaming.StatefulProcessor (Spark 4.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from nameserver.state_machine.codec import Shard, decode_shard, encode_shard
from pipelines.blocks import unpack
from pipelines.gc_pause import gc_paused, spare_imports
from pipelines.shard_fold import ShardFiles, ShardFold, TopicStore

OUTPUT_SCHEMA = "kind STRING, payload BINARY"
SEED_SCHEMA = "shard INT, state BINARY, brokerNames ARRAY<STRING>, topics ARRAY<BINARY>"

EPOCH_PROPERTY = "routelake.epoch"
"""Local property of the Spark job of a batch: the epoch that the batch will become, if it has changes."""


def files_of_task(spool_dir: Path) -> ShardFiles:
    """Files for the batch of this task. The job has the epoch as a local property.

    Raises:
        RuntimeError: The property is missing.
    """
    context = TaskContext.get()
    epoch = context and context.getLocalProperty(EPOCH_PROPERTY)
    if not epoch:
        raise RuntimeError(f"the job of a batch does not set {EPOCH_PROPERTY}: its rows would have no epoch")
    return ShardFiles.in_folder(spool_dir, int(epoch))


class RouteProcessor(StatefulProcessor):
    """Applies the records of a shard, and emits the writer's input as (kind, payload) rows.

    Args:
        run_id: identifier of this driver run. After a new one, a shard reports all its live rows once.
        files: function that opens the files of a shard for a batch.
    """

    def __init__(self, run_id: str, files: Callable[[], ShardFiles]) -> None:
        self._run_id = run_id
        self._files = files

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the two state variables."""
        self._shard_state = handle.getValueState("shard", "state BINARY")
        self._topics = handle.getMapState("topics", "brokerName STRING", "topics BINARY")

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        """Store a seed as state (see lake.write.seed). Spark calls this only in the first batch of a new checkpoint."""
        for name, topics in zip(initialState["brokerNames"], initialState["topics"], strict=True):
            self._topics.updateValue((name,), (bytes(topics),))
        self._shard_state.update((bytes(initialState["state"]),))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Apply the records of the shard in this batch. Spark guarantees no order of the rows."""
        with gc_paused():
            records = unpack(row["records"] for row in rows)
            fold = self._open(key)
            for record in records:
                fold.apply(record)
            self._shard_state.update((encode_shard(fold.finish()),))
            for kind, payload in fold.emit():
                yield Row(kind=kind, payload=payload)

    def close(self) -> None:
        """Called by Spark at the end of the task."""
        spare_imports()

    def _open(self, key: Any) -> ShardFold:
        stored = self._shard_state.get()
        shard = decode_shard(bytes(stored[0])) if stored is not None else Shard()
        store = TopicStore(self._get_topics, self._put_topics, self._remove_topics)
        return ShardFold(int(key[0]), shard, store, self._run_id, self._files())

    def _get_topics(self, name: str) -> bytes | None:
        value = self._topics.getValue((name,))
        return bytes(value[0]) if value is not None else None

    def _put_topics(self, name: str, topics: bytes) -> None:
        self._topics.updateValue((name,), (topics,))

    def _remove_topics(self, name: str) -> None:
        if self._topics.containsKey((name,)):
            self._topics.removeKey((name,))
