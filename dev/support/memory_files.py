# SPDX-License-Identifier: Apache-2.0
"""A shard's data files of topicQueueTable in memory: Parquet takes longer than all the rest of a small batch.

Which rows are in which file is decided by the product. What is in `Batch.partitions` is read by `changed_topics`.
"""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dev.benchmarks.harness.shard import OneShard
from lake.delta.data_file import BEFORE, CHANGE_TYPE, DELETED, DataFile
from lake.delta.reader import GONE
from lake.write.batch import Batch
from lake.write.shard_files import TopicFiles
from pipelines.shard_fold import ShardFiles
from schemas.tables import TOPIC_QUEUE_TABLE

_PREFIX: Final = "in-memory-"
_numbers: Final = itertools.count()
_written: Final[dict[str, pa.Table]] = {}


@cache
def _folder() -> Path:
    """For what is too large to travel otherwise (`lake.write.batch`, `lake.write.shard_files`)."""
    folder = Path(tempfile.mkdtemp(prefix="routelake-shards-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class _TopicRows(TopicFiles):
    def _write(self, rows: pa.Table) -> DataFile:
        path = f"{_PREFIX}{next(_numbers)}"
        _written[path] = rows
        return DataFile(path, len(rows), 0, "{}", 0)


def in_memory() -> ShardFiles:
    """Return the files of a shard's part of a batch, for a batch that `changed_topics` reads."""
    return ShardFiles.in_folder(_folder(), 1)._replace(topics=_TopicRows(_folder()))


class MemoryShard(OneShard):
    """The only shard, its data files in memory."""

    def __init__(self) -> None:
        super().__init__(_folder())

    def _files(self, epoch: int) -> ShardFiles:
        return in_memory()


def changed_topics(batch: Batch) -> pa.Table | None:
    """Changed rows of topicQueueTable with `GONE`, from the change data feed as `CommitReader.changes` gives them; once."""
    parts = []
    for partition in batch.partitions:
        rows = [_rows(file) for file in (partition.added, partition.feed) if file is not None][-1]
        if CHANGE_TYPE in rows.column_names:
            rows = rows.filter(pc.not_equal(rows[CHANGE_TYPE], BEFORE))
            gone = pc.equal(rows[CHANGE_TYPE], DELETED)
            rows = rows.drop_columns([CHANGE_TYPE])
        else:
            gone = pa.repeat(pa.scalar(False), len(rows))
        name = pa.repeat(pa.scalar(partition.values["brokerName"]), len(rows))
        columns = {"brokerName": name, **{column: rows[column] for column in rows.column_names}, GONE: gone}
        parts.append(pa.table(columns).select([*TOPIC_QUEUE_TABLE.column_names, GONE]))
    return pa.concat_tables(parts) if parts else None


def _rows(file: DataFile) -> pa.Table:
    if file.path.startswith(_PREFIX):
        return _written.pop(file.path)
    return pq.read_table(file.path, partitioning=None)
