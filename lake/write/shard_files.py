# SPDX-License-Identifier: Apache-2.0
"""Data files that a shard writes: many rows of routeChangeTable, and rows of topicQueueTable (docs/adr/0021).

A shard does not know the column ``epoch`` of routeChangeTable, so the driver sends it with the batch.

A group's rows are one partition of topicQueueTable, and they are in memory when one of them changes. If all changed
rows are new, a file with them is added. Otherwise one file with all rows of the partition replaces its files, and a
second file has exactly the changed rows for the change data feed. The table's commit needs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from lake.delta.data_file import (
    AFTER,
    BEFORE,
    CHANGE_TYPE,
    DELETED,
    INSERTED,
    NO_TWO_ALIKE,
    DataFile,
    DataFileWriter,
    Partition,
    write_data_file,
)
from lake.delta.types import arrow_schema
from lake.write.arrow import CODED_CHANGE_SCHEMA
from nameserver.state_machine.changes import TopicChanges, topic_changes
from nameserver.state_machine.state import BrokerGroup
from schemas.broker import QueueRow
from schemas.tables import ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE

ROWS_WORTH_A_FILE: Final = 500
"""Minimum number of rows for a file. Fewer rows go to the driver, which writes one file for all shards."""

_EPOCH: Final = pa.field("epoch", pa.int64(), nullable=False)
_SCHEMA: Final = pa.schema([_EPOCH, *CODED_CHANGE_SCHEMA])
_PLAIN: Final = (NO_TWO_ALIKE[ROUTE_CHANGE_TABLE.name], "topic")


class WrittenHistory(msgspec.Struct, frozen=True, array_like=True):
    """A file with rows of one shard.

    Attributes:
        epoch: epoch of the rows.
        file: the data file.
        digests: digests of the rows for the hash chain (`lake.write.hash_chain`).
    """

    epoch: int
    file: DataFile
    digests: list[str]


class HistoryFile:
    """The file of one shard in one micro-batch. The first added part creates it.

    Args:
        folder: folder of the file.
        epoch: epoch that the batch will become.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        self._folder = folder
        self._epoch = epoch
        self._writer: DataFileWriter | None = None
        self._digests: list[str] = []

    def wants(self, count: int) -> bool:
        """Return True if a part with this number of rows belongs in the file."""
        return self._writer is not None or count >= ROWS_WORTH_A_FILE

    def add(self, rows: pa.Table, digests: Sequence[str]) -> None:
        """Append a part in `CODED_CHANGE_SCHEMA`. Raises OSError."""
        if self._writer is None:
            self._writer = DataFileWriter(self._folder, _SCHEMA, _PLAIN)
        self._writer.write(with_epoch(rows, self._epoch))
        self._digests += digests

    def close(self) -> WrittenHistory | None:
        """Finish the file. None if nothing was added. Raises OSError."""
        if self._writer is None:
            return None
        return WrittenHistory(self._epoch, self._writer.close(), self._digests)


def with_epoch(rows: pa.Table, epoch: int) -> pa.Table:
    """Add the column ``epoch`` to rows of routeChangeTable."""
    return rows.add_column(0, _EPOCH, pa.repeat(pa.scalar(epoch, pa.int64()), len(rows)))


_TOPIC_SCHEMA: Final = arrow_schema(TOPIC_QUEUE_TABLE, without=TOPIC_QUEUE_TABLE.partition_by)
_FEED_SCHEMA: Final = _TOPIC_SCHEMA.append(pa.field(CHANGE_TYPE, pa.string()))
_TOPIC_PLAIN: Final = (NO_TWO_ALIKE[TOPIC_QUEUE_TABLE.name],)
(_PARTITION,) = TOPIC_QUEUE_TABLE.partition_by


class TopicFiles:
    """The files of topicQueueTable of one shard in one micro-batch.

    Args:
        folder: folder of the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes: dict[str, TopicChanges | None] = {}
        """Groups changed since the last `write`, with their changes if all have one cause, otherwise None."""
        self._written: dict[str, Partition | None] = {}

    def changed(self, changes: TopicChanges) -> None:
        """Note the changes of one group by one cause."""
        name = changes.broker_name
        self._changes[name] = None if name in self._changes or name in self._written else changes

    def write(self, start: Mapping[str, BrokerGroup], groups: Mapping[str, BrokerGroup]) -> None:
        """Write the changed groups. Called before rows leave memory, and at the end.

        Args:
            start: groups by name, at the start of the batch.
            groups: present groups, by name.

        Raises:
            OSError: a file cannot be written.
        """
        for name, changes in self._changes.items():
            nothing = BrokerGroup(name)
            before, after = start.get(name, nothing), groups.get(name, nothing)
            net = changes or topic_changes(before, after)
            self._discard(self._written.get(name))
            self._written[name] = net and self._partition(net, after)
            before.topics.unload()
            after.topics.unload()
        self._changes.clear()

    def partitions(self) -> list[Partition]:
        """Partitions to commit."""
        return [partition for partition in self._written.values() if partition is not None]

    def _partition(self, changes: TopicChanges, after: BrokerGroup) -> Partition:
        values = {_PARTITION: changes.broker_name}
        if all(row is None for row in changes.before):
            return Partition(values, self._rows(changes.topics, changes.after), None)
        rows = after.topics.rows
        added = self._rows(list(rows), list(rows.values())) if rows else None
        return Partition(values, added, self._feed(changes))

    def _rows(self, topics: Sequence[str], rows: Sequence[QueueRow | None]) -> DataFile:
        return self._write(pa.Table.from_arrays(_columns(topics, rows), schema=_TOPIC_SCHEMA))

    def _feed(self, changes: TopicChanges) -> DataFile:
        topics: list[str] = []
        rows: list[QueueRow] = []
        kinds: list[str] = []
        for topic, before, after in zip(changes.topics, changes.before, changes.after, strict=True):
            if before is not None:
                topics.append(topic)
                rows.append(before)
                kinds.append(DELETED if after is None else BEFORE)
            if after is not None:
                topics.append(topic)
                rows.append(after)
                kinds.append(INSERTED if before is None else AFTER)
        columns = [*_columns(topics, rows), pa.array(kinds, pa.string())]
        return self._write(pa.Table.from_arrays(columns, schema=_FEED_SCHEMA))

    def _write(self, rows: pa.Table) -> DataFile:
        return write_data_file(self._folder, rows, _TOPIC_PLAIN)

    @staticmethod
    def _discard(partition: Partition | None) -> None:
        for file in partition.files if partition is not None else ():
            with suppress(OSError):
                Path(file.path).unlink()


def _columns(topics: Sequence[str], rows: Sequence[QueueRow | None]) -> Iterable[pa.Array]:
    """Columns of rows, of which few are distinct."""
    places = {row: at for at, row in enumerate(dict.fromkeys(rows))}
    at = pa.array(map(places.__getitem__, rows), pa.int32(), size=len(rows))
    values = zip(*(row for row in places if row is not None), strict=True)
    return [pa.array(topics, pa.string()), *(pa.array(column, pa.int32()).take(at) for column in values)]
