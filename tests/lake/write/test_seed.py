# SPDX-License-Identifier: Apache-2.0
"""The state read back from the tables is the state that was lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dev.support import events as make
from dev.support import lakes
from dev.support.drive import SHARDS, DeltaLake, drive, open_writer
from dev.support.expected import Expected
from dev.support.fixed_log import FixedLog
from dev.support.generated_logs import Gap, batches, cuts, logs, written
from dev.support.microbatches import Query
from eventlog.base import LogRecord
from lake.write.seed import read_seed
from lake.write.shards import shard_of
from schemas.errors import SetupError, UnavailableError
from tests.lake.write.test_crash import Killed, killed_after


def seed_is_the_lost_state(lake_dir: Path, records: list[LogRecord]) -> None:
    seed = read_seed(lake_dir, FixedLog(records))
    commits = lakes.commits(lake_dir)
    if not commits:
        assert (seed.state.groups, seed.next_offset, seed.epoch) == ({}, 0, 0)
        return
    last = commits[-1]
    assert (seed.next_offset, seed.epoch) == (last["logOffset"] + 1, last["epoch"])
    folded = [record for record in records if record.offset <= last["logOffset"]]
    lost = Expected(folded).state
    assert seed.state.groups == lost.groups
    assert seed.state.kv == lost.kv
    assert seed.state.preserved_ms == lost.preserved_ms
    assert seed.state.now_ms == folded[-1].event_time_ms


@settings(max_examples=min(100, settings().max_examples * 3 // 10))
@given(
    records=logs,
    sizes=cuts,
    interval_s=st.sampled_from((0.0, 3600.0)),
    runs=st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_after_any_prefix(
    tmp_path_factory: pytest.TempPathFactory,
    records: list[LogRecord],
    sizes: list[int],
    interval_s: float,
    runs: list[bool],
) -> None:
    """Heartbeats are committed lazily, and new driver runs begin now and then."""
    lake_dir = tmp_path_factory.mktemp("lake")
    query = Query(SHARDS)
    query.lake = lake = DeltaLake(open_writer(lake_dir, liveness_interval_s=interval_s))
    pieces = list(batches(records, sizes))
    for turn, batch in enumerate(pieces):
        if runs[turn % len(runs)] and turn:
            query._run += 1
            lake.writer = open_writer(lake_dir, liveness_interval_s=interval_s)
        query.run(batch)
        if turn == len(pieces) // 2:
            seed_is_the_lost_state(lake_dir, records)
    seed_is_the_lost_state(lake_dir, records)


def test_a_preservation_that_has_begun_is_in_the_seed(tmp_path: Path) -> None:
    """Too rare in a generated log to be met at its end."""
    records = written([(0, make.register()), (5, make.preserve()), (5, make.put("n", "k"))])
    drive(tmp_path, [records])
    seed_is_the_lost_state(tmp_path, records)
    assert read_seed(tmp_path, FixedLog(records)).state.preserved_ms == records[1].event_time_ms


def test_an_empty_lake_seeds_nothing(tmp_path: Path) -> None:
    open_writer(tmp_path)
    log = FixedLog([])
    assert read_seed(tmp_path, log).next_offset == 0
    assert log.read_from == []


def test_only_the_log_since_liveness_was_whole_is_read(tmp_path: Path) -> None:
    records = written([(1, make.register()), *[(1, make.heartbeat())] * 5, (1, make.put("n", "k"))])
    drive(tmp_path, [[record] for record in records], liveness_interval_s=3600)
    log = FixedLog(records)
    seed_is_the_lost_state(tmp_path, records)
    read_seed(tmp_path, log)
    assert all(offset > 1 for offset in log.read_from)


def test_a_gap_counted_before_the_checkpoint_was_lost_is_not_counted_again(tmp_path: Path) -> None:
    """Two gateways started together; the second one's RESUME is read by the new query."""
    records = written([(0, make.register(heartbeat_timeout_millis=3_000)), (0, Gap(70_000, gateways=2))])
    drive(tmp_path, [[record] for record in records[:2]])
    seed = read_seed(tmp_path, FixedLog(records))
    query = Query(SHARDS, seed=seed.state)
    query.lake = DeltaLake(open_writer(tmp_path), query_id="q2")
    query.run(records[2:])
    assert lakes.last_epoch_tables(tmp_path) == Expected(records).tables()


def test_killed_in_the_first_epoch(tmp_path: Path) -> None:
    """No epoch is known to hold every heartbeat then: the log is read from its beginning."""
    records = written([(1, make.register()), (1, make.heartbeat()), (1, make.put("n", "k"))])
    query = Query(SHARDS)
    query.lake = DeltaLake(killed_after(open_writer(tmp_path, liveness_interval_s=3600), 5))
    with pytest.raises(Killed):
        query.run(records[:1])
    assert lakes.rows(tmp_path, "brokerLiveTable"), "written, but not in any epoch"
    query = Query(SHARDS)
    query.lake = DeltaLake(open_writer(tmp_path, liveness_interval_s=3600))
    for record in records:
        query.run([record])
    assert lakes.commits(tmp_path)[0]["livenessOffset"] == -1
    seed_is_the_lost_state(tmp_path, records)


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, UnavailableError), (errno.EACCES, SetupError)])
def test_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]) -> None:
    def fail(lake_dir: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("lake.write.seed.last_commit", fail)
    with pytest.raises(kind, match="cannot be read back"):
        read_seed(tmp_path, FixedLog([]))


def test_records_that_a_seed_needs_but_the_log_lacks_are_an_error(tmp_path: Path) -> None:
    """Rather than brokers that expire because their heartbeats are gone."""
    records = written([(1, make.register()), (1, make.heartbeat()), (1, make.put("n", "k"))])
    query = Query(SHARDS)
    query.lake = DeltaLake(open_writer(tmp_path, liveness_interval_s=3600))
    query.run(records[:1])
    query.run(records[1:2])
    # A new run, in which only the shard of KV configuration has been heard of: liveness is not whole.
    query._run += 1
    query.lake = DeltaLake(open_writer(tmp_path, liveness_interval_s=3600), first_batch=2)
    query.run(records[2:])
    assert shard_of("kv", SHARDS) != shard_of("b:b", SHARDS)
    assert lakes.commits(tmp_path)[-1]["livenessOffset"] == 1
    with pytest.raises(SetupError, match="offset 2"):
        read_seed(tmp_path, FixedLog(records[2:]))
