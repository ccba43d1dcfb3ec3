# SPDX-License-Identifier: Apache-2.0
"""Blocks: records of the event log on their way through Spark, many in one row.

Spark needs several times as long for a row, in its JVM and its Python workers, as the state machine for a heartbeat. So
a row of the stream has many records of one shard, packed, in the order of their offsets. The source packs them
(`pipelines.source`) and the processor unpacks them (`pipelines.processor`). In between, Spark only knows the shard and
event time of a block.
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
    """One record of the event log, for a shard.

    Attributes:
        offset: Offset in the event log.
        event_time_ms: Event time, never less than that of the previous record.
        key: Routing key.
        payload: Encoded event.
        before_ms: Event time of the event log before this record, including records of other shards.
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
        data: Packed records.
    """

    shard: int
    time_ms: int
    data: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def pack(records: Iterable[LogRecord], time_ms: int, shards: int) -> Iterator[Block]:
    """Pack records into a block per shard. A command for every group goes to all shards.

    Args:
        records: Records in the order of their offsets.
        time_ms: Event time of the event log before the first record.
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
    """Unpack the records of some blocks of one shard, in the order of their offsets. Blocks may be in any order."""
    parts = sorted((_decoder.decode(block) for block in blocks), key=lambda records: records[0].offset)
    return [record for part in parts for record in part]


def _block(shard: int, records: list[Record]) -> Block:
    return Block(shard, records[-1].event_time_ms, _encoder.encode(records))
