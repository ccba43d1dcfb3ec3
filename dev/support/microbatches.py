# SPDX-License-Identifier: Apache-2.0
"""The streaming query without Spark: the real processor on state in dictionaries, batch after batch.

Spark's part is written here as simply as possible: state per grouping key, and a batch that is run again from the
old state when it fails before its commit.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from dev.support.memory_files import changed_topics, in_memory
from eventlog.base import LogRecord
from lake.delta.reader import GONE
from lake.write.arrow import DELETE, OP
from lake.write.batch import Batch
from lake.write.shards import seed_rows, shard_keys
from nameserver.state_machine.state import RouteState
from pipelines.blocks import Block, pack
from pipelines.processor import RouteProcessor
from pipelines.shard_fold import ShardFiles
from schemas.tables import BROKER_LIVE_TABLE, STATE_TABLES, TOPIC_QUEUE_TABLE, Table

BLOCK_RECORDS = 5
"""Maximum number of records in a block."""

Tables = dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]
"""State tables: name -> {key: values}, in the column order of schemas.tables."""


@dataclass
class MemoryLake:
    """Output of the writer in plain values. Epochs are left out."""

    tables: Tables = field(default_factory=lambda: {table.name: {} for table in STATE_TABLES})
    changes: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    quarantine: list[tuple[int, str | None]] = field(default_factory=list)
    watermark_ms: int = 0

    def files(self) -> ShardFiles:
        """Return the files of a shard's part of the next batch."""
        return in_memory()

    def apply(self, batch: Batch) -> None:
        """Commit a batch."""
        for table in STATE_TABLES:
            parts = batch.live if table is BROKER_LIVE_TABLE else batch.operations.get(table.name, [])
            for part in parts:
                for row in part.to_pylist():
                    self._put(table, row, gone=row[OP] == DELETE)
        topics = changed_topics(batch)
        for row in () if topics is None else topics.to_pylist():
            self._put(TOPIC_QUEUE_TABLE, row, gone=row[GONE])
        for part in (*(pq.read_table(written.file.path) for written in batch.histories), *batch.history()):
            self.changes += part.to_pylist()
        self.outcomes += batch.outcomes
        self.watermark_ms = max([self.watermark_ms, *(progress.watermark_ms for progress in batch.progress)])
        for part in batch.quarantine:
            self.quarantine += [(row["offset"], row["key"]) for row in part.to_pylist()]

    def _put(self, table: Table, row: dict[str, Any], *, gone: bool) -> None:
        key = tuple(row[name] for name in table.key)
        if gone:
            self.tables[table.name].pop(key, None)
        else:
            self.tables[table.name][key] = tuple(plain(row[name]) for name in table.value_columns)

    def history(self) -> list[tuple[Any, ...]]:
        """routeChangeTable in an order of its own, ready to compare."""
        return ordered(self.changes)


def ordered(changes: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows of routeChangeTable as tuples, sorted by place in history, then by what they are about."""
    rows = [
        (row["offset"], row["command"], row["brokerName"] or "", row["seq"], *(str(row[name]) for name in sorted(row)))
        for row in ({name: value for name, value in row.items() if name != "epoch"} for row in changes)
    ]
    return sorted(rows)


def plain(value: Any) -> Any:
    """A cell as the fold has it: lists as tuples (maps come as lists of pairs)."""
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    return value


class Key:
    """State of one grouping key."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, ...] | None] = {}
        self.maps: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {}

    def getValueState(self, name: str, schema: str) -> Any:
        def update(value: tuple[Any, ...]) -> None:
            self.values[name] = value

        return SimpleNamespace(get=lambda: self.values.get(name), update=update)

    def getMapState(self, name: str, key_schema: str, value_schema: str) -> Any:
        entries = self.maps.setdefault(name, {})
        return SimpleNamespace(
            getValue=entries.get,
            updateValue=entries.__setitem__,
            containsKey=entries.__contains__,
            removeKey=entries.__delitem__,
        )


class Query:
    """A query over so many shards; `run` feeds it one micro-batch."""

    def __init__(self, shards: int, *, seed: RouteState | None = None) -> None:
        self.shards = shards
        self.lake = MemoryLake()
        self.max_ms = 0
        self.keys = {key: Key() for key in shard_keys(shards)}
        self._seed = {row[0]: row for row in seed_rows(seed, shards)} if seed is not None else {}
        self._run = 0

    def run(self, records: Sequence[LogRecord], *, failures: int = 0) -> None:
        """Run one micro-batch; ``failures`` times it dies before its commit, each time with the driver."""
        before = copy.deepcopy(self.keys)
        seed = self._seed
        for _ in range(failures):
            self._process(records)
            self._run += 1
            self.keys = copy.deepcopy(before)
            self._seed = seed
        batch = Batch.merge(self._process(records))
        self.lake.apply(batch)
        batch.close()
        self.max_ms = max([self.max_ms, *(record.event_time_ms for record in records)])

    def _process(self, records: Sequence[LogRecord]) -> list[tuple[str, bytes]]:
        parts: list[Row] = []
        seeds, self._seed = self._seed, {}
        blocks = self._blocks(records)
        processors = {}
        for shard, key in self.keys.items():
            processor = processors[shard] = RouteProcessor(f"run-{self._run}", self.lake.files)
            processor.init(cast("StatefulProcessorHandle", key))
            if shard in seeds:
                _, state, names, topics = seeds[shard]
                row = Row(state=state, brokerNames=names, topics=topics)
                processor.handleInitialState((shard,), row, None)
        for shard, processor in processors.items():
            rows = [Row(records=block.data) for block in reversed(blocks) if block.shard == shard]
            if rows:
                parts += processor.handleInputRows((shard,), iter(rows), None)
        return [(part["kind"], bytes(part["payload"])) for part in parts]

    def _blocks(self, records: Sequence[LogRecord]) -> list[Block]:
        """Several for each shard, as Spark has them of a long batch."""
        blocks, time_ms = list[Block](), self.max_ms
        for start in range(0, len(records), BLOCK_RECORDS):
            some = records[start : start + BLOCK_RECORDS]
            blocks += pack(some, time_ms, self.shards)
            time_ms = max(time_ms, *(record.event_time_ms for record in some))
        return blocks

    def state_topics(self) -> dict[str, set[str]]:
        """brokerName -> nothing but that it has topics in the state store."""
        return {name: set() for key in self.keys.values() for (name,) in key.maps.get("topics", {})}


def outcome_tuples(outcomes: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Outcomes reduced to what must agree."""
    return [
        (entry["offset"], entry["command"], entry["outcome"], entry["reason"], json.dumps(entry["result"]))
        for entry in outcomes
    ]
