# SPDX-License-Identifier: Apache-2.0
"""What one shard says of a batch."""

from __future__ import annotations

from dev.support import events as make
from dev.support.generated_logs import written
from dev.support.memory_files import MemoryShard
from pipelines.blocks import Record


def test_the_watermark_is_the_time_of_the_last_clock() -> None:
    shard = MemoryShard()
    events = [
        (0, make.register("a:1", name="silent", heartbeat_timeout_millis=1_000)),
        (5_000, make.clock()),
        (10, make.register("a:2", name="late", heartbeat_timeout_millis=1_000)),
    ]
    records = [Record(*record) for record in written(events)]
    (progress,) = shard.batch(records).progress
    assert (progress.watermark_ms, progress.event_time_ms) == (records[1].event_time_ms, records[2].event_time_ms)
    batch = shard.batch([Record(*record) for record in written([(20_000, make.put("n", "k"))])])
    assert [each.watermark_ms for each in batch.progress] == [records[1].event_time_ms], "kept between batches"
    groups = set(shard.open(1).finish().state.groups)
    assert groups == {"late"}, "overdue, and no CLOCK yet"
