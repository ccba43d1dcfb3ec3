# SPDX-License-Identifier: Apache-2.0
"""Blocks: the event log's records as they travel through Spark, many in one row.

Spark costs time for each row, in its JVM and in its Python workers: several times what the state machine needs for a
heartbeat. So a row of the stream holds the records of one shard, packed, in the order of their offsets. The source
packs them (`pipelines.source`), the processor unpacks them (`pipelines.processor`). Between the two, Spark knows a
block's shard and event time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from eventlog.base import LogRecord, in_time
from lake.write.shards import shard_keys, shard_of
from schemas.events import KEY_EVERYTHING

BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of the payloads in a block, in bytes. A larger record has a block of its own."""


class Record(NamedTuple):
    """One record of the event log, as a shard sees it.

    Attributes:
        offset: Log offset.
        event_time_ms: Event time, never less than that of the record before.
        key: Routing key.
        payload: Encoded event.
        before_ms: The log's time before this record, to which records of other shards have moved it, too.
    """

    offset: int
    event_time_ms: int
    key: str | None
    payload: bytes | None
    before_ms: int = 0


class Block(NamedTuple):
    """Records of one shard.

    Attributes:
        shard: Grouping key of the shard.
        time_ms: Event time of the last record, which is the greatest.
        data: The records, packed.
    """

    shard: int
    time_ms: int
    data: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def pack(records: Iterable[LogRecord], time_ms: int, shards: int) -> Iterator[Block]:
    """Give each shard its records. A command for every group goes to all shards.

    Args:
        records: Records in the order of their offsets.
        time_ms: The log's time before the first of them.
        shards: Number of shards.
    """
    keys = shard_keys(shards)
    gathered: dict[int, list[Record]] = {key: [] for key in keys}
    sizes = dict.fromkeys(keys, 0)
    for before_ms, record in in_time(records, time_ms):
        own = Record(*record, before_ms)
        for shard in keys if record.key == KEY_EVERYTHING else (shard_of(record.key, shards),):
            if sizes[shard] and sizes[shard] + len(record.payload) > BLOCK_BYTES:
                yield _block(shard, gathered[shard])
                gathered[shard], sizes[shard] = [], 0
            gathered[shard].append(own)
            sizes[shard] += len(record.payload)
    for shard, rest in gathered.items():
        if rest:
            yield _block(shard, rest)


def unpack(blocks: Iterable[bytes]) -> list[Record]:
    """The records of some blocks of one shard, in the order of their offsets. The blocks may come in any order."""
    parts = sorted((_decoder.decode(block) for block in blocks), key=lambda records: records[0].offset)
    return [record for part in parts for record in part]


def _block(shard: int, records: list[Record]) -> Block:
    return Block(shard, records[-1].event_time_ms, _encoder.encode(records))
