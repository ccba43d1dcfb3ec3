# SPDX-License-Identifier: Apache-2.0
"""Blocks: every shard gets its records, whole and in order, however they are packed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.base import LogRecord
from lake.write.shards import SHARD_KEYS, shard_keys, shard_of
from pipelines.blocks import BLOCK_BYTES, Block, Record, pack, unpack
from schemas.events import KEY_EVERYTHING, KEY_KV, broker_key

NAMES = ("broker-a", "it's", "per%cent", "ünï-☃", "𝔘𝔘", "x" * 500, *(f"broker-{number}" for number in range(200)))
KEYS = [KEY_KV, "", "b:", *map(broker_key, NAMES)]


def of_keys(*keys: str) -> list[LogRecord]:
    return [LogRecord(offset, 1_000 + offset, key, b"p") for offset, key in enumerate(keys, 1)]


@pytest.mark.parametrize("shards", sorted(SHARD_KEYS))
def test_a_record_is_where_the_seed_puts_its_group(shards: int) -> None:
    found = {record.key: block.shard for block in pack(of_keys(*KEYS), 0, shards) for record in unpack([block.data])}
    assert found == {key: shard_of(key, shards) for key in KEYS}


def test_events_for_all_groups_go_to_every_shard() -> None:
    blocks = list(pack(of_keys(KEY_EVERYTHING), 7, 4))
    assert sorted(block.shard for block in blocks) == sorted(shard_keys(4))
    assert {block.data for block in blocks} == {blocks[0].data}
    assert unpack([blocks[0].data]) == [Record(1, 1_001, KEY_EVERYTHING, b"p", 7)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["b:a", "b:b", KEY_KV, "", KEY_EVERYTHING]), st.binary(max_size=9), st.integers(0, 99)
        )
    ),
    st.sampled_from(sorted(SHARD_KEYS)),
    st.integers(1, 9),
    st.randoms(),
)
def test_each_shard_reads_its_part_of_the_log(
    made: list[tuple[str, bytes, int]], shards: int, piece: int, random: Random
) -> None:
    log = [LogRecord(offset, time_ms, key, payload) for offset, (key, payload, time_ms) in enumerate(made, 1)]
    whole = list[Record]()
    before_ms = 50
    for record in log:
        time_ms = max(before_ms, record.event_time_ms)
        whole.append(Record(record.offset, time_ms, record.key, record.payload, before_ms))
        before_ms = time_ms
    blocks = list[Block]()
    for start in range(0, len(log), piece):
        blocks += pack(log[start : start + piece], whole[start].before_ms, shards)
    random.shuffle(blocks)
    for shard in shard_keys(shards):
        expected = [
            record for record in whole if record.key == KEY_EVERYTHING or shard_of(record.key or "", shards) == shard
        ]
        assert unpack(block.data for block in blocks if block.shard == shard) == expected
    for block in blocks:
        assert block.time_ms == max(record.event_time_ms for record in unpack([block.data]))


def test_a_block_is_bounded_and_a_larger_record_has_its_own() -> None:
    sizes = [BLOCK_BYTES // 2, BLOCK_BYTES // 2, 1, BLOCK_BYTES + 1, 1]
    log = [LogRecord(offset, 0, "kv", bytes(size)) for offset, size in enumerate(sizes, 1)]
    blocks = [[len(record.payload or b"") for record in unpack([block.data])] for block in pack(log, 0, 1)]
    assert blocks == [sizes[:2], [1], [BLOCK_BYTES + 1], [1]]
