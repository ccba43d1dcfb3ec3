# SPDX-License-Identifier: Apache-2.0
"""Assignment of records to shards.

Group state is spread over a fixed number of shards by hash(routing key), with one Spark task per shard. Spark assigns a
grouping key to a partition by its own hash. So the shard keys are chosen such that each falls into its own partition.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from nameserver.state_machine.codec import Shard, encode_shard, encode_topics
from nameserver.state_machine.state import BrokerGroup, RouteState
from schemas.errors import SetupError
from schemas.events import KEY_KV, broker_key

SHARD_KEYS: Final[Mapping[int, tuple[int, ...]]] = {
    1: (0,),
    2: (2, 0),
    4: (12, 6, 2, 0),
    8: (12, 6, 5, 1, 25, 15, 2, 0),
    16: (12, 16, 5, 1, 37, 20, 2, 35, 13, 6, 49, 7, 25, 15, 4, 0),
}
"""Number of shards -> one grouping key per Spark partition: ``pmod(hash(key), n)`` is 0, 1, 2, ..."""


def shard_keys(shards: int) -> tuple[int, ...]:
    """Grouping keys for a number of shards. Raises SetupError for an unsupported number."""
    try:
        return SHARD_KEYS[shards]
    except KeyError:
        raise SetupError(f"{shards} shards: choose one of {', '.join(map(str, SHARD_KEYS))}.") from None


def shard_of(routing_key: str, shards: int) -> int:
    """Grouping key for a routing key. Spark SQL computes the same with ``crc32``."""
    return shard_keys(shards)[zlib.crc32(routing_key.encode()) % shards]


SeedRow = tuple[int, bytes, list[str], list[bytes]]
"""Columns of processor.SEED_SCHEMA: shard, encoded `Shard`, broker names, encoded topics of each broker."""


def seed_rows(state: RouteState, shards: int) -> list[SeedRow]:
    """Split a whole state into the initial state of each shard."""
    groups: dict[int, dict[str, BrokerGroup]] = defaultdict(dict)
    for name, group in state.groups.items():
        groups[shard_of(broker_key(name), shards)][name] = group
    rows = []
    for key in shard_keys(shards):
        mine = groups[key]
        kv = state.kv if shard_of(KEY_KV, shards) == key else {}
        with_topics = [group for group in mine.values() if group.topics.rows]
        rows.append(
            (
                key,
                encode_shard(Shard(replace(state, groups=mine, kv=kv))),
                [group.broker_name for group in with_topics],
                [encode_topics(group.topics.rows) for group in with_topics],
            )
        )
    return rows
