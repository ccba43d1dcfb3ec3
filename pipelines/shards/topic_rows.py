# SPDX-License-Identifier: Apache-2.0
"""Changed rows of topicQueueTable on their way from a shard to the writer, column by column.

A broker that registers for the first time brings ten thousand of them, and a storm hundreds of brokers. So no Python
object is made for a row: a shard collects three columns (topic, and the places of the row before and after in a list of
distinct rows), and the writer makes from them, when it needs them, operations on topicQueueTable and rows of
routeChangeTable. What is the same for all rows of one cause stands once, in an `Entry`.

A part travels as MessagePack: `_Part` with its columns as an Arrow IPC stream.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.fold.changes import TopicChanges
from pipelines.shards.arrow import (
    CHANGE_SCHEMA,
    DELETE,
    INSERT,
    UPDATE,
    Cause,
    from_ipc,
    operation_schema,
    to_ipc,
    values_json,
)
from pipelines.shards.topic_digest import Rows, ranges, topic_digests
from schemas.broker import QueueRow
from schemas.outcomes import APPLIED
from schemas.tables import TOPIC_QUEUE_TABLE

ROWS_PER_PART: Final = 50_000
"""A part is closed when it holds so many: no value that Spark or Arrow handles is large, and the writer makes its rows
part by part."""

_NO_ROW: Final = 0
"""Place of "there is no row" among the distinct rows."""

_OPERATIONS: Final = operation_schema(TOPIC_QUEUE_TABLE)
_COLUMNS: Final = pa.schema([("topic", pa.string()), ("before", pa.int32()), ("after", pa.int32())])
_STRING: Final = pa.string()
_TIME: Final = CHANGE_SCHEMA.field("eventTime").type

_json = msgspec.json.Encoder()
_encoder = msgspec.msgpack.Encoder()


class Entry(msgspec.Struct, array_like=True):
    """Consecutive rows of a part: one group's changes by one cause.

    With a ``cause`` they are history, and unless the group was changed by several, also what the whole batch did to
    these rows, so that the table is to be changed by them. Rows without a cause are only that. ``kinds``: i, u, d.
    """

    broker_name: str
    count: int
    cause: Cause | None
    kinds: str


class _Part(msgspec.Struct, array_like=True):
    """``rows`` are the distinct rows that the columns point to. ``plain``: JSON writes every topic as it is."""

    entries: list[Entry]
    rows: list[QueueRow | None]
    plain: bool
    columns: bytes
    digests: list[str]
    """Of the entries that are history (`pipelines.shards.topic_digest`)."""


_decoder = msgspec.msgpack.Decoder(_Part)


class TopicParts:
    """Collects the topic changes of one shard's micro-batch.

    Args:
        take: is given each part, ready to travel, as soon as it is full.
        rows_per_part: makes a part full.
    """

    def __init__(self, take: Callable[[bytes], None], rows_per_part: int = ROWS_PER_PART) -> None:
        self._take = take
        self._rows_per_part = rows_per_part
        self._causes: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._entries: list[Entry] = []
        self._places: dict[QueueRow | None, int] = {None: _NO_ROW}
        self._topics: list[str] = []
        self._before = array("i")
        self._after = array("i")

    def add(self, changes: TopicChanges, cause: Cause) -> None:
        """Append what one cause did to one group."""
        self._causes[changes.broker_name] += 1
        self._append(changes, cause)

    def changed_again(self) -> Sequence[str]:
        """Groups that several causes changed: what is left of it is given to `add_net`."""
        return [name for name, causes in self._causes.items() if causes > 1]

    def add_net(self, changes: TopicChanges) -> None:
        """Append what all causes together did to a group of `changed_again`."""
        self._append(changes, None)

    def close(self) -> None:
        """Hand on what is left, at the end."""
        if not self._entries:
            return
        before, after = (
            pa.Array.from_buffers(pa.int32(), len(column), [None, pa.py_buffer(column)])
            for column in (self._before, self._after)
        )
        topics = pa.array(self._topics, _STRING)
        columns = pa.Table.from_arrays([topics, before, after], schema=_COLUMNS)
        plain = b"\\" not in _json.encode(self._topics)
        rows = list(self._places)
        history = (
            Rows(entry.broker_name, entry.cause, first, count)
            for entry, (first, count) in zip(
                self._entries, ranges([entry.count for entry in self._entries]), strict=True
            )
            if entry.cause is not None
        )
        digests = topic_digests(history, topics, before, after, rows, plain=plain)
        self._take(_encoder.encode(_Part(self._entries, rows, plain, to_ipc(columns), digests)))
        self._begin()

    def _append(self, changes: TopicChanges, cause: Cause | None) -> None:
        count = len(changes.topics)
        inserted, deleted = changes.before.count(None), changes.after.count(None)
        kinds = INSERT * bool(inserted) + DELETE * bool(deleted) + UPDATE * (inserted + deleted < count)
        self._entries.append(Entry(changes.broker_name, count, cause, kinds))
        self._topics += changes.topics
        self._before.extend(self._place(changes.before))
        self._after.extend(self._place(changes.after))
        if len(self._topics) >= self._rows_per_part:
            self.close()

    def _place(self, rows: Sequence[QueueRow | None]) -> Iterable[int]:
        places = self._places
        try:
            return list(map(places.__getitem__, rows))
        except KeyError:
            for row in dict.fromkeys(rows):
                places.setdefault(row, len(places))
        return map(places.__getitem__, rows)


class TopicPart:
    """A part as the writer gets it. Its rows are read each time they are asked for, and not kept.

    Args:
        read: gives what `TopicParts` handed on.

    Attributes:
        digests: for the chain, of the rows that `history` gives.
    """

    def __init__(self, read: Callable[[], bytes]) -> None:
        self._read = read
        part = _decoder.decode(read())
        self._entries = part.entries
        self.digests = part.digests
        self._net = [True] * len(self._entries)

    def leave_net(self, changed_again: Collection[str]) -> None:
        """Say which groups several causes changed (`TopicParts.changed_again`)."""
        self._net = [entry.cause is None or entry.broker_name not in changed_again for entry in self._entries]

    def kinds(self) -> set[str]:
        """The kinds of its operations: i, u, d."""
        return {kind for entry, net in zip(self._entries, self._net, strict=True) if net for kind in entry.kinds}

    def operations(self) -> pa.Table | None:
        """Operations on topicQueueTable; None if none is left of its changes, or another part has them."""
        if not any(self._net):
            return None
        part = _decoder.decode(self._read())
        columns = _columns(part, self._net)
        values = [pa.array([row and row[at] for row in part.rows], pa.int32()) for at in range(len(QueueRow._fields))]
        return pa.Table.from_arrays(
            [
                _each(columns, _STRING, [entry.broker_name for entry in part.entries]),
                columns["topic"],
                *(column.take(columns["after"]) for column in values),
                _kinds(columns),
            ],
            schema=_OPERATIONS,
        )

    def history(self) -> pa.Table | None:
        """Rows of routeChangeTable without ``epoch``; None if it only has operations."""
        causes = [entry.cause for entry in self._entries]
        has_history = [cause is not None for cause in causes]
        if not any(has_history):
            return None
        part = _decoder.decode(self._read())
        columns = _columns(part, has_history)
        count = len(columns)
        texts = pa.array([row and values_json(TOPIC_QUEUE_TABLE, row) for row in part.rows], _STRING)
        made = {
            "offset": _each(columns, pa.int64(), [cause and cause.offset for cause in causes]),
            "seq": columns["seq"],
            "eventTime": _each(columns, _TIME, [cause and cause.event_time_ms * 1000 for cause in causes]),
            "command": _each(columns, _STRING, [cause and cause.command for cause in causes]),
            "outcome": pa.repeat(pa.scalar(APPLIED, _STRING), count),
            "reason": pa.nulls(count, _STRING),
            "actor": _each(columns, _STRING, [cause and cause.actor for cause in causes]),
            "tableName": pa.repeat(pa.scalar(TOPIC_QUEUE_TABLE.name, _STRING), count),
            "brokerName": _each(columns, _STRING, [entry.broker_name for entry in part.entries]),
            "topic": columns["topic"],
            "key": _keys(part, columns),
            "before": texts.take(columns["before"]),
            "after": texts.take(columns["after"]),
        }
        return pa.Table.from_arrays([made[name] for name in CHANGE_SCHEMA.names], schema=CHANGE_SCHEMA)


def _columns(part: _Part, wanted: Sequence[bool]) -> pa.Table:
    """The rows of some entries; with columns ``entry``, which one a row belongs to, and ``seq``, its place in that."""
    counts = [entry.count for entry in part.entries]
    ends = list(accumulate(counts))
    places = pa.array(range(len(counts)), pa.int32())
    entry = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), places))
    starts = pa.array([end - count for end, count in zip(ends, counts, strict=True)], pa.int32())
    seq = pc.subtract(pa.arange(0, len(entry)).cast(pa.int32()), starts.take(entry))
    columns = from_ipc(part.columns).combine_chunks().append_column("entry", entry).append_column("seq", seq)
    return columns if all(wanted) else columns.filter(pa.array(wanted, pa.bool_()).take(entry))


def _each(columns: pa.Table, type_: pa.DataType, values: Sequence[object]) -> pa.ChunkedArray:
    """A column of what is the same for all rows of an entry."""
    return pa.array(values, type_).take(columns["entry"])


def _keys(part: _Part, columns: pa.Table) -> pa.ChunkedArray:
    """Column ``key``: the same JSON as of any other table's key."""
    quote, topics = '"', columns["topic"]
    if not part.plain:
        quote, topics = "", pa.array([_json.encode(topic).decode() for topic in topics.to_pylist()], _STRING)
    names = [_json.encode(entry.broker_name).decode() for entry in part.entries]
    before = _each(columns, _STRING, [f'{{"brokerName":{name},"topic":{quote}' for name in names])
    return pc.binary_join_element_wise(before, topics, quote + "}", "")


def _kinds(columns: pa.Table) -> pa.Array:
    """Column ``op``."""
    inserted = pc.equal(columns["before"], _NO_ROW)
    deleted = pc.equal(columns["after"], _NO_ROW)
    return pc.if_else(inserted, INSERT, pc.if_else(deleted, DELETE, UPDATE))
