# SPDX-License-Identifier: Apache-2.0
"""State to bytes, as the state store and a seed hold it.

Everything of a shard but its topics is one small value (`encode_shard`); each group's topics are a value of their own
(`encode_topics`), read only when a rule asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import zstandard

from nameserver.state_machine.state import BrokerGroup, LiveInfo, RegisteredMapping, TopicRows, TopicTable
from schemas.broker import QueueRow


class _Group(msgspec.Struct, frozen=True, array_like=True):
    broker_name: str
    known: bool
    cluster: str | None
    clusters: list[str]
    broker_addrs: dict[int, str]
    zone_name: str | None
    enable_acting_master: bool
    live: list[tuple[str, str, LiveInfo]]
    filter_servers: list[tuple[str, str, tuple[str, ...]]]
    mappings: list[tuple[str, str, RegisteredMapping]]


class Shard(msgspec.Struct, array_like=True):
    """State of a shard without topics. ``run_id`` is the driver run that last saw all its live rows."""

    groups: list[_Group] = []
    kv: dict[str, dict[str, str | None]] = {}
    now_ms: int = 0
    run_id: str = ""
    preserved_ms: int = 0
    watermark_ms: int = 0


class _Topics(msgspec.Struct, frozen=True, array_like=True):
    """Column-wise: few distinct rows, many names."""

    rows: list[QueueRow]
    topics: list[str]
    row_index: list[int]


_shard_decoder = msgspec.msgpack.Decoder(Shard)
_topics_decoder = msgspec.msgpack.Decoder(_Topics)
_encoder = msgspec.msgpack.Encoder()


def pack_group(group: BrokerGroup) -> _Group:
    """A group without its topics, ready to encode."""
    return _Group(
        group.broker_name,
        group.known,
        group.cluster,
        sorted(group.clusters),
        dict(group.broker_addrs),
        group.zone_name,
        group.enable_acting_master,
        [(*key, live) for key, live in group.live.items()],
        [(*key, servers) for key, servers in group.filter_servers.items()],
        [(*key, entry) for key, entry in group.mappings.items()],
    )


def unpack_group(packed: _Group, topics: TopicTable) -> BrokerGroup:
    """Inverse of `pack_group`; ``topics`` says where its topics come from."""
    return BrokerGroup(
        packed.broker_name,
        known=packed.known,
        cluster=packed.cluster,
        clusters=frozenset(packed.clusters),
        broker_addrs=packed.broker_addrs,
        zone_name=packed.zone_name,
        enable_acting_master=packed.enable_acting_master,
        live={(cluster, addr): live for cluster, addr, live in packed.live},
        filter_servers={(cluster, addr): servers for cluster, addr, servers in packed.filter_servers},
        mappings={(topic, bname): entry for topic, bname, entry in packed.mappings},
        topics=topics,
    )


def encode_shard(shard: Shard) -> bytes:
    """Shard to MessagePack."""
    return _encoder.encode(shard)


def decode_shard(data: bytes) -> Shard:
    """Inverse of `encode_shard`. Raises msgspec.MsgspecError on bytes of another shape."""
    return _shard_decoder.decode(data)


def encode_topics(rows: TopicRows) -> bytes:
    """topic -> QueueRow to MessagePack, in a zstd frame: 130 KB of ten thousand topics become 6 to 40."""
    distinct = list(dict.fromkeys(rows.values()))
    places = {row: place for place, row in enumerate(distinct)}
    packed = _encoder.encode(_Topics(distinct, list(rows), list(map(places.__getitem__, rows.values()))))
    return zstandard.ZstdCompressor(level=1).compress(packed)


def decode_topics(data: bytes) -> Mapping[str, QueueRow]:
    """Inverse of `encode_topics`; equal rows share one QueueRow."""
    packed = _topics_decoder.decode(zstandard.ZstdDecompressor().decompress(data))
    return dict(zip(packed.topics, map(packed.rows.__getitem__, packed.row_index), strict=True))
