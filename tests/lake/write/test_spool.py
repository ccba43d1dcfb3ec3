# SPDX-License-Identifier: Apache-2.0
"""What a shard emits leaves its memory in bounded parts, and the tables are the same as without that."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from dev.benchmarks.harness.shard import OneShard
from dev.support import events as make
from dev.support import lakes
from dev.support.alone import alone
from dev.support.drive import open_writer
from dev.support.expected import Expected
from dev.support.generated_logs import written
from dev.support.microbatches import ordered
from lake.write.batch import INLINE_BYTES, SPOOLED, Batch
from pipelines.blocks import Record
from schemas.events import AnyEvent

TOPICS = 20_000
TABLE = make.topics(*(f"topic-{number:06}" for number in range(TOPICS)))


def emitted(events: Iterable[AnyEvent], shard: OneShard, epoch: int = 1) -> list[tuple[str, bytes]]:
    fold = shard.open(epoch)
    for record in written([(1, event) for event in events]):
        fold.apply(Record(*record))
    fold.finish()
    return list(fold.emit())


def alternating(count: int) -> list[AnyEvent]:
    return [make.register(table=TABLE), *(make.wipe() if number % 2 == 0 else make.add() for number in range(count))]


@pytest.mark.parametrize("count", [3, pytest.param(4, marks=pytest.mark.deep)])
def test_through_files_as_without(tmp_path: Path, count: int) -> None:
    spool_dir, lake_dir = tmp_path / "spool", tmp_path / "lake"
    spool_dir.mkdir()
    events = [*alternating(count), make.put("n", "k", "v" * 1_000_000)]
    rows = emitted(events, OneShard(spool_dir))
    assert SPOOLED in dict(rows)
    batch = Batch.merge(rows)
    assert [partition.feed for partition in batch.partitions] == [None], "its rows are new, whatever came then"
    open_writer(lake_dir, shards=1).write("q", 0, batch)
    batch.close()
    expected = Expected(written([(1, event) for event in events]))
    assert lakes.last_epoch_tables(lake_dir) == expected.tables()
    history = ordered(lakes.history(lake_dir))
    assert [row for row in history if row[3] >= 0] == expected.history()
    # The broker's other rows, the entry, commands.
    assert len(history) == TOPICS * (count + 1) + 3 + 1 + count + 1
    assert list(spool_dir.iterdir()) == []


def test_a_spool_that_cannot_be_written_fails_the_batch(tmp_path: Path) -> None:
    """It is repeated: no valid record is in quarantine because a disk was full."""
    fold = OneShard(tmp_path / "gone").open(1)
    with pytest.raises(FileNotFoundError):
        for record in written([(1, event) for event in alternating(9)]):
            fold.apply(Record(*record))


def test_rows_through_spark_stay_small(tmp_path: Path) -> None:
    rows = emitted([*alternating(3), make.put("n", "k", "v" * 1_000_000)], OneShard(tmp_path))
    assert sum(len(payload) for _, payload in rows) < INLINE_BYTES + 1000
    (file,) = (path for path in tmp_path.iterdir() if path.suffix != ".parquet")
    assert file.stat().st_size > INLINE_BYTES
    Batch.merge(rows).close()


def test_a_shard_and_the_driver_hold_a_part_at_a_time(tmp_path: Path) -> None:
    """Ten times as many changed rows make no difference."""
    few = alone(most_held, 2, tmp_path)
    assert alone(most_held, 20, tmp_path) < few + 4 * 1024 * 1024


def most_held(count: int, spool_dir: Path) -> int:
    tracemalloc.start()
    before_bytes = pa.total_allocated_bytes()
    batch = Batch.merge(emitted(alternating(count), OneShard(spool_dir)))
    assert pa.total_allocated_bytes() - before_bytes < 4 * 1024 * 1024, "Arrow's, which Python does not count"
    in_files = sum(written.file.rows for written in batch.histories)
    assert in_files + sum(len(part) for part in batch.history()) > TOPICS * count
    batch.close()
    assert list(spool_dir.iterdir()) == []
    return tracemalloc.get_traced_memory()[1]


def test_rows_that_grow_with_their_group_are_handed_on_too(tmp_path: Path) -> None:
    """Each of a group's registrations writes all its addresses, before and after: 40 MB of JSON."""
    peak, parts = alone(most_held_by_members, tmp_path)
    assert peak < 24 * 1024 * 1024
    assert parts > 3


def most_held_by_members(spool_dir: Path) -> tuple[int, int]:
    members = [make.register(f"{at}{'a' * 1000}:10911", at, table={}) for at in range(200)]
    tracemalloc.start()
    rows = emitted(members, OneShard(spool_dir))
    _, peak = tracemalloc.get_traced_memory()
    batch = Batch.merge(rows)
    parts = len([part for part in batch.history() if part.num_rows])
    batch.close()
    return peak, parts


def test_statistics_of_long_texts_are_cut(tmp_path: Path) -> None:
    """They stand uncompressed in the Delta log, and every reader that opens the table holds them."""
    shard, writer = OneShard(tmp_path), open_writer(tmp_path / "lake", shards=1)
    for number, letter in enumerate("ab"):
        rows = emitted([make.put("n", "k", letter * 3_000_000)], shard, writer.epoch + 1)
        writer.write("q", number, Batch.merge(rows))
    for log in (tmp_path / "lake").glob("*/_delta_log/*.json"):
        assert log.stat().st_size < 20_000, log
    assert lakes.last_epoch_tables(tmp_path / "lake")["kvConfigTable"] == {("n", "k"): ("b" * 3_000_000,)}
