# SPDX-License-Identifier: Apache-2.0
"""Rows of routeChangeTable about topics on their way from a shard to the writer, column by column.

A broker that registers for the first time brings ten thousand of them, and a storm hundreds of brokers. So no Python
object is made for a row: a shard collects three columns (topic, and the places of the row before and after in a list of
distinct rows), from which the rows are made when they are written. What is the same for all rows of one cause stands
once, in an `Entry`.

A part travels as MessagePack: `_Part` with its columns as an Arrow IPC stream. A large one goes into a data
file instead (`lake.write.shard_files`).

The shard also makes the digests of the changes for the chain of epochs. They are those that
`lake.write.hash_chain.blocks` gives for the rows of routeChangeTable. A storm has millions of rows, which differ in
little but the topic, and one driver for all shards; so a shard makes the digests, from what the rows are made of.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.write.arrow import CHANGE_SCHEMA, Cause, from_ipc, to_ipc, values_json
from lake.write.hash_chain import field
from lake.write.shard_files import HistoryFile
from lake.write.topic_columns import COLUMNS, NO_ROW, Entry, history_rows
from nameserver.state_machine.changes import TopicChanges
from schemas.broker import QueueRow
from schemas.outcomes import APPLIED
from schemas.tables import TOPIC_QUEUE_TABLE

_KEY_END: Final = '"}'
_FEW: Final = 64


class Rows(NamedTuple):
    """Consecutive rows of one group by one cause."""

    broker_name: str
    cause: Cause
    first: int
    size: int


def topic_digests(
    blocks: Iterable[Rows],
    topics: pa.StringArray,
    before: pa.Int32Array,
    after: pa.Int32Array,
    rows: Sequence[QueueRow | None],
    *,
    plain: bool,
) -> list[str]:
    """The digests, in hex, of blocks of a part's rows: for each run of them with one group and cause.

    Args:
        blocks: which rows, in their order.
        topics: of each row, as ``before`` and ``after`` are.
        before: the row's place in ``rows`` before the change.
        after: the same after it.
        rows: distinct rows.
        plain: JSON writes every topic as it is.
    """
    texts = [field(None if row is None else values_json(TOPIC_QUEUE_TABLE, row)) for row in rows]
    keys = topics if plain else pa.array([_json.encode(topic).decode()[1:-1] for topic in topics.to_pylist()])
    lines = _Lines(topics, keys, before, after, texts)
    found: list[str] = []
    known: tuple[str, Cause] | None = None
    digest = hashlib.sha256()
    for block in blocks:
        if known != (block.broker_name, block.cause):
            if known is not None:
                found.append(digest.hexdigest())
            known = block.broker_name, block.cause
            digest = hashlib.sha256(_head(block).encode())
        digest.update(lines.few(block) if block.size <= _FEW else lines.many(block))
    return [*found, digest.hexdigest()] if known is not None else found


class _Lines:
    """The fields of rows that are not alike in a block: seq, topic, key, before, after."""

    def __init__(
        self,
        topics: pa.StringArray,
        keys: pa.StringArray,
        before: pa.Int32Array,
        after: pa.Int32Array,
        texts: list[str],
    ) -> None:
        self._topics, self._keys, self._before, self._after, self._texts = topics, keys, before, after, texts

    def few(self, block: Rows) -> bytes:
        """Digest input of a block with few rows, for which Arrow's calls cost more than Python."""
        columns = (self._topics, self._keys, self._before, self._after)
        rows = zip(*(column.slice(block.first, block.size).to_pylist() for column in columns), strict=True)
        prefix = _key_prefix(block)
        return "".join(
            f"{field(seq)}{field(topic)}{field(prefix + key + _KEY_END)}{self._texts[before]}{self._texts[after]}"
            for seq, (topic, key, before, after) in enumerate(rows)
        ).encode()

    def many(self, block: Rows) -> memoryview:
        """Digest input of a block with many rows."""
        topics, keys, before, after = (
            column.slice(block.first, block.size) for column in (self._topics, self._keys, self._before, self._after)
        )
        prefix = _key_prefix(block)
        around = len(prefix.encode()) + len(_KEY_END)
        lines = pc.binary_join_element_wise(
            _numbers(block.size),
            self._lengths.take(pc.binary_length(topics)),
            topics,
            pc.add(pc.binary_length(keys), around).cast(pa.string()),
            ":" + prefix,
            keys,
            _pick(self._befores, before),
            _pick(self._afters, after),
            "",
        )
        _, places, text = lines.buffers()
        ends = memoryview(places).cast("i")
        return memoryview(text)[ends[lines.offset] : ends[lines.offset + len(lines)]]

    @cached_property
    def _befores(self) -> pa.StringArray:
        return pa.array([_KEY_END + text for text in self._texts], pa.string())

    @cached_property
    def _afters(self) -> pa.StringArray:
        return pa.array(self._texts, pa.string())

    @cached_property
    def _lengths(self) -> pa.StringArray:
        """Length prefixes of topic fields, by size in bytes."""
        longest = pc.max(pc.binary_length(self._topics)).as_py()
        return pa.array([f"{size}:" for size in range(longest + 1)])


def _key_prefix(block: Rows) -> str:
    return f'{{"brokerName":{_json.encode(block.broker_name).decode()},"topic":"'


def ranges(counts: Sequence[int]) -> Iterable[tuple[int, int]]:
    """First place and number of consecutive runs of so many."""
    return zip(accumulate(counts, initial=0), counts, strict=False)


def _head(block: Rows) -> str:
    cause = block.cause
    values = (
        cause.offset,
        cause.event_time_ms * 1000,
        cause.command,
        APPLIED,
        None,
        cause.actor,
        TOPIC_QUEUE_TABLE.name,
        block.broker_name,
    )
    return "".join(map(field, values))


def _pick(values: pa.StringArray, places: pa.Int32Array) -> Any:
    """The values at those places; a scalar where it is one and the same, as in a registration it mostly is."""
    least_and_most = pc.min_max(places).as_py()
    if least_and_most["min"] == least_and_most["max"]:
        return values[least_and_most["min"]]
    return values.take(places)


_known_numbers: pa.StringArray = pa.array([], pa.string())


def _numbers(count: int) -> pa.StringArray:
    """The fields of seq 0, 1, 2, ..."""
    global _known_numbers
    if count > len(_known_numbers):
        _known_numbers = pa.array([field(number) for number in range(max(count, 1000))], pa.string())
    return _known_numbers[:count]


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
    """Of the entries, for the chain (`lake.write.topic_rows`)."""


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
