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
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.write.arrow import (
    CHANGE_SCHEMA,
    DELETE,
    INSERT,
    UPDATE,
    Cause,
    from_ipc,
    operation_schema,
    to_ipc,
)
from lake.write.history_file import HistoryFile
from lake.write.topic_columns import COLUMNS, NO_ROW, Entry, each, entry_columns, history_rows
from lake.write.topic_digest import Rows, ranges, topic_digests
from nameserver.state_machine.changes import TopicChanges
from schemas.broker import QueueRow
from schemas.tables import TOPIC_QUEUE_TABLE

ROWS_PER_PART: Final = 50_000
"""A part is closed when it holds so many: no value that Spark or Arrow handles is large, and the writer makes its rows
part by part."""

_OPERATIONS: Final = operation_schema(TOPIC_QUEUE_TABLE)
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
    """Of the entries that are history (`lake.write.topic_digest`)."""
    has_operations: bool
    """Whether what the batch did to topicQueueTable is told by its entries, not by files."""


_decoder = msgspec.msgpack.Decoder(_Part)


class TopicParts:
    """Collects the topic changes of one shard's micro-batch.

    Args:
        take: is given each part, ready to travel, as soon as it is full.
        rows_per_part: makes a part full.
        history: where the history of a large part goes instead. Then files also tell what the batch did to
            topicQueueTable (`lake.write.topic_files`).
    """

    def __init__(
        self,
        take: Callable[[bytes], None],
        rows_per_part: int = ROWS_PER_PART,
        history: HistoryFile | None = None,
    ) -> None:
        self._take = take
        self._history = history
        self._rows_per_part = rows_per_part
        self._causes: Counter[str] = Counter()
        self._begin()

    def _begin(self) -> None:
        self._entries: list[Entry] = []
        self._places: dict[QueueRow | None, int] = {None: NO_ROW}
        self._topics: list[str] = []
        self._before = array("i")
        self._after = array("i")

    def add(self, changes: TopicChanges, cause: Cause) -> None:
        """Append what one cause did to one group."""
        self._causes[changes.broker_name] += 1
        self._append(changes, cause)

    def changed_again(self) -> Sequence[str]:
        """Groups that several causes changed: what is left of it is given to `add_net`. None where files tell it."""
        if self._history is not None:
            return []
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
        columns = pa.Table.from_arrays([topics, before, after], schema=COLUMNS)
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
        if self._history is not None and self._history.wants(len(columns)):
            made = history_rows(self._entries, columns, rows, plain=plain)
            assert made is not None
            self._history.add(made, digests)
        else:
            part = _Part(self._entries, rows, plain, to_ipc(columns), digests, self._history is None)
            self._take(_encoder.encode(part))
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
        self._has_operations = part.has_operations
        self.digests = part.digests
        self._net = [self._has_operations] * len(self._entries)

    def leave_net(self, changed_again: Collection[str]) -> None:
        """Say which groups several causes changed (`TopicParts.changed_again`)."""
        self._net = [
            self._has_operations and (entry.cause is None or entry.broker_name not in changed_again)
            for entry in self._entries
        ]

    def kinds(self) -> set[str]:
        """The kinds of its operations: i, u, d."""
        return {kind for entry, net in zip(self._entries, self._net, strict=True) if net for kind in entry.kinds}

    def operations(self) -> pa.Table | None:
        """Operations on topicQueueTable; None if none is left of its changes, or another part has them."""
        if not any(self._net):
            return None
        part = _decoder.decode(self._read())
        columns = entry_columns(part.entries, from_ipc(part.columns), self._net)
        values = [pa.array([row and row[at] for row in part.rows], pa.int32()) for at in range(len(QueueRow._fields))]
        return pa.Table.from_arrays(
            [
                each(columns, _STRING, [entry.broker_name for entry in part.entries]),
                columns["topic"],
                *(column.take(columns["after"]) for column in values),
                _kinds(columns),
            ],
            schema=_OPERATIONS,
        )

    def history(self) -> pa.Table | None:
        """Rows of routeChangeTable without ``epoch``; None if it only has operations."""
        if all(entry.cause is None for entry in self._entries):
            return None
        part = _decoder.decode(self._read())
        made = history_rows(part.entries, from_ipc(part.columns), part.rows, plain=part.plain)
        return made and made.cast(CHANGE_SCHEMA)


def _kinds(columns: pa.Table) -> pa.Array:
    """Column ``op``."""
    inserted = pc.equal(columns["before"], NO_ROW)
    deleted = pc.equal(columns["after"], NO_ROW)
    return pc.if_else(inserted, INSERT, pc.if_else(deleted, DELETE, UPDATE))
