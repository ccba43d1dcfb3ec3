# SPDX-License-Identifier: Apache-2.0
"""Digests of topic changes for the chain of epochs (`lake.write.hash_chain`), made by the shard that has them.

They are those that `lake.write.hash_chain.blocks` gives for the rows of routeChangeTable. A storm has millions of
rows, which differ in little but the topic, and one driver for all shards; so a shard makes the digests, from what the
rows are made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lake.write.arrow import Cause, values_json
from lake.write.hash_chain import field
from schemas.broker import QueueRow
from schemas.outcomes import APPLIED
from schemas.tables import TOPIC_QUEUE_TABLE

_KEY_END: Final = '"}'
_FEW: Final = 64
_json = msgspec.json.Encoder()


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
