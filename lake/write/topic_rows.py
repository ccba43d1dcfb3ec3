# SPDX-License-Identifier: Apache-2.0
"""Rows of routeChangeTable about topics on their way from a shard to the writer, column by column.

A broker that registers for the first time brings ten thousand of them, and a storm hundreds of brokers. So no Python
object is made for a row: a shard collects three columns (topic, and the places of the row before and after in a list of
distinct rows), from which the rows are made when they are written. What is the same for all rows of one cause stands
once, in an `Entry`.

A part travels as MessagePack: `_Part` with its columns as an Arrow IPC stream. A large one goes into a data
file instead (`lake.write.history_file`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from lake.write.arrow import CHANGE_SCHEMA, Cause, from_ipc, to_ipc
from lake.write.history_file import HistoryFile
from lake.write.topic_columns import COLUMNS, NO_ROW, Entry, history_rows
from lake.write.topic_digest import Rows, ranges, topic_digests
from nameserver.state_machine.changes import TopicChanges
from schemas.broker import QueueRow

ROWS_PER_PART: Final = 50_000
"""A part is closed when it holds so many: no value that Spark or Arrow handles is large, and the writer makes its rows
part by part."""

_STRING: Final = pa.string()

_json = msgspec.json.Encoder()
_encoder = msgspec.msgpack.Encoder()


class _Part(msgspec.Struct, array_like=True):
    """``rows`` are the distinct rows that the columns point to. ``plain``: JSON writes every topic as it is."""

    entries: list[Entry]
    rows: list[QueueRow | None]
    plain: bool
    columns: bytes
    digests: list[str]
    """Of the entries, for the chain (`lake.write.topic_digest`)."""


_decoder = msgspec.msgpack.Decoder(_Part)


class TopicParts:
    """Collects the topic changes of one shard's micro-batch.

    Args:
        take: is given each part, ready to travel, as soon as it is full.
        history: where a large part goes instead.
        rows_per_part: makes a part full.
    """

    def __init__(self, take: Callable[[bytes], None], history: HistoryFile, rows_per_part: int = ROWS_PER_PART) -> None:
        self._take = take
        self._history = history
        self._rows_per_part = rows_per_part
        self._begin()

    def _begin(self) -> None:
        self._entries: list[Entry] = []
        self._places: dict[QueueRow | None, int] = {None: NO_ROW}
        self._topics: list[str] = []
        self._before = array("i")
        self._after = array("i")

    def add(self, changes: TopicChanges, cause: Cause) -> None:
        """Append what one cause did to one group."""
        self._entries.append(Entry(changes.broker_name, len(changes.topics), cause))
        self._topics += changes.topics
        self._before.extend(self._place(changes.before))
        self._after.extend(self._place(changes.after))
        if len(self._topics) >= self._rows_per_part:
            self.close()

    def close(self) -> None:
        """Hand on what is left, at the end."""
        if not self._entries:
            return
        before, after = (
            pa.Array.from_buffers(pa.int32(), len(column), [None, pa.py_buffer(column)])
            for column in (self._before, self._after)
        )
        topics = pa.array(self._topics, _STRING)
        columns = pa.Table.from_arrays([topics, before, after], schema=COLUMNS)
        plain = b"\\" not in _json.encode(self._topics)
        rows = list(self._places)
        history = (
            Rows(entry.broker_name, entry.cause, first, count)
            for entry, (first, count) in zip(
                self._entries, ranges([entry.count for entry in self._entries]), strict=True
            )
        )
        digests = topic_digests(history, topics, before, after, rows, plain=plain)
        if self._history.wants(len(columns)):
            self._history.add(history_rows(self._entries, columns, rows, plain=plain), digests)
        else:
            self._take(_encoder.encode(_Part(self._entries, rows, plain, to_ipc(columns), digests)))
        self._begin()

    def _place(self, rows: Sequence[QueueRow | None]) -> Iterable[int]:
        places = self._places
        try:
            return list(map(places.__getitem__, rows))
        except KeyError:
            for row in dict.fromkeys(rows):
                places.setdefault(row, len(places))
        return map(places.__getitem__, rows)


def read_part(data: bytes) -> tuple[pa.Table, list[str]]:
    """Read what `TopicParts` handed on: rows of routeChangeTable without ``epoch``, and their digests."""
    part = _decoder.decode(data)
    rows = history_rows(part.entries, from_ipc(part.columns), part.rows, plain=part.plain)
    return rows.cast(CHANGE_SCHEMA), part.digests
