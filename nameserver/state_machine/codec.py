# SPDX-License-Identifier: Apache-2.0
"""Encoding of a shard's state for Spark's state store.

All of a shard except its topics is one small value (`encode_shard`). The topics of each group are a value of their own
(`encode_topics`), which is read only if a rule needs it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import zstandard

from nameserver.state_machine.state import RouteState, TopicRows, TopicTable
from schemas.broker import QueueRow


class Shard(msgspec.Struct, array_like=True):
    """State of a shard.

    Attributes:
        state: The shard's part of the state. Encoded groups have no topics.
        run_id: Last driver run that saw all live rows of the shard.
    """

    state: RouteState = msgspec.field(default_factory=RouteState)
    run_id: str = ""


class _Topics(msgspec.Struct, frozen=True, array_like=True):
    """Topic rows by column, because there are few distinct rows and many names."""

    rows: list[QueueRow]
    topics: list[str]
    row_index: list[int]


def _without_topics(value: object) -> None:
    if not isinstance(value, TopicTable):
        raise TypeError(f"a shard cannot hold a {type(value).__name__}")


_encoder = msgspec.msgpack.Encoder(enc_hook=_without_topics)
_shard_decoder = msgspec.msgpack.Decoder(Shard, dec_hook=lambda topics, nothing: topics())
_topics_decoder = msgspec.msgpack.Decoder(_Topics)


def encode_shard(shard: Shard) -> bytes:
    """Encode a shard as MessagePack, without the topics of its groups."""
    return _encoder.encode(shard)


def decode_shard(data: bytes) -> Shard:
    """Decode the result of `encode_shard`. Groups have no topics. Raises msgspec.MsgspecError for other bytes."""
    return _shard_decoder.decode(data)


def encode_topics(rows: TopicRows) -> bytes:
    """Encode the rows of topics as MessagePack in a zstd frame: 130 KB of ten thousand topics become 6 to 40."""
    distinct = list(dict.fromkeys(rows.values()))
    places = {row: place for place, row in enumerate(distinct)}
    packed = _encoder.encode(_Topics(distinct, list(rows), list(map(places.__getitem__, rows.values()))))
    return zstandard.ZstdCompressor(level=1).compress(packed)


def decode_topics(data: bytes) -> Mapping[str, QueueRow]:
    """Decode the result of `encode_topics`. Equal rows share one QueueRow."""
    packed = _topics_decoder.decode(zstandard.ZstdDecompressor().decompress(data))
    return dict(zip(packed.topics, map(packed.rows.__getitem__, packed.row_index), strict=True))
