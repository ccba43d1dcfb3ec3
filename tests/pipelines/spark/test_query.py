# SPDX-License-Identifier: Apache-2.0
"""The streaming query: events from the log become tables, exactly as the pure fold says, through stops and losses."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from dev.support import events as make
from dev.support import lakes
from dev.support.expected import Expected
from dev.support.generated_logs import ASSORTMENT, STEPS_MS, written
from dev.support.intervals import assert_kept, assert_now
from dev.support.loops import until
from dev.support.microbatches import ordered
from eventlog.base import LogRecord
from lake.history.intervals import IntervalKeeper
from lake.write.maintenance import Maintenance
from lake.write.shard_files import ROWS_WORTH_A_FILE
from pipelines import job, main
from runtime.process import EXIT_FAILED, StopSignal
from runtime.procfs import threads_below
from schemas.errors import SetupError
from schemas.events import AnyEvent, encode, routing_key
from schemas.tables import FOLD_HASTEN_FILE, ROUTE_CHANGE_TABLE
from tests.pipelines.spark.harness import WAIT_S, Stage

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


def random_log(seed: int, length: int) -> list[LogRecord]:
    rng = random.Random(seed)
    return written([(rng.choice(STEPS_MS), rng.choice(ASSORTMENT)) for _ in range(length)])[:length]


def tables_are_right(lake_dir: Path, records: list[LogRecord]) -> None:
    """Every table at the last epoch is what the pure fold makes of the log; nothing is there twice, nothing missing."""
    last = lakes.commits(lake_dir)[-1]
    folded = [record for record in records if record.offset <= last["logOffset"]]
    expected = Expected(folded)
    assert lakes.last_epoch_tables(lake_dir) == expected.tables()
    history = lakes.history(lake_dir)
    assert ordered(row for row in history if row["seq"] >= 0) == expected.history()
    commands = sorted((row["offset"], row["command"], row["outcome"]) for row in history if row["seq"] < 0)
    assert commands == sorted((offset, command, outcome) for offset, command, outcome, *_ in expected.outcomes)
    assert [row["offset"] for row in lakes.quarantine(lake_dir)] == [offset for offset, _ in expected.unreadable]
    lakes.check_epochs(lake_dir)


def test_events_become_tables(stage: Stage) -> None:
    records = random_log(1, 298)  # the last one is folded at once: a heartbeat may wait for the next record
    stage.write(records[:100])
    stage.start()
    stage.wait(100)
    for record in records[100:110]:
        stage.write([record])
    stage.wait(stage.write(records[110:]))
    stage.wait_idle()
    tables_are_right(stage.lake_dir, stage.records())
    assert stage.records() == records
    assert lakes.commits(stage.lake_dir)[-1]["logOffset"] == 298
    assert lakes.quarantine(stage.lake_dir), "records that are no events are among them"


def test_after_a_dear_batch_the_next_one_waits_until_somebody_asks_for_it(
    stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_PACE_AT_MOST_S", 3_600.0)
    monkeypatch.setattr(job, "_PACE_BURST_S", 0.0)
    stage = stages("paced", cores=1e-6)
    stage.start()
    for broker in ("a0:1", "b0:1"):  # the first is free
        stage.wait(stage.append(make.register(broker)))
    last = stage.append(make.put("n", "k", "v"))
    assert stage.query is not None
    time.sleep(1.5)  # a batch that does not wait takes half a second
    assert stage.query.writer.log_offset < last
    (stage.lake_dir / FOLD_HASTEN_FILE).touch()
    stage.wait(last)


def test_no_epoch_waits_for_intervals_but_maintenance_and_the_end_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, maintained = threading.Event(), threading.Event(), threading.Event()

    def long_step(keeper: IntervalKeeper, epoch: int, version: int) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)

    stage.start()
    stage.wait(stage.append(make.register("a0:1")))
    assert stage.query is not None
    monkeypatch.setattr(IntervalKeeper, "is_due", True)
    monkeypatch.setattr(IntervalKeeper, "step", long_step)
    stage.wait(stage.append(make.register("b0:1")))
    assert begun.wait(WAIT_S)
    monkeypatch.setattr(Maintenance, "step", lambda maintenance, writer: maintained.set())
    for value in "xyz":
        stage.wait(stage.append(make.put("n", "k", value)))
    assert not maintained.is_set()
    assert not stage.query.hold(0.01)
    stage.query._committing.release()
    go_on.set()
    assert stage.query.hold(WAIT_S)
    stage.query._committing.release()
    stage.wait(stage.append(make.put("n", "k", "last")))
    assert maintained.is_set()


def test_what_changes_many_topics_comes_as_files_of_the_workers(stage: Stage) -> None:
    """They know the epoch, and nothing of them is left in the spool."""
    topics = make.topics(*(f"topic-{number:04}" for number in range(2 * ROWS_WORTH_A_FILE)))
    stage.start()
    for event in (make.register(table=topics), make.wipe()):
        stage.append(event)
        stage.wait_idle()
    tables_are_right(stage.lake_dir, stage.records())
    large = large_files(stage.lake_dir / ROUTE_CHANGE_TABLE.name, len(topics))
    assert len(large) == 2
    for metadata in large:
        assert metadata.created_by.startswith("parquet-cpp"), "not by delta-rs"
    assert list(stage.settings.spool_dir.iterdir()) == []


def large_files(table: Path, rows: int) -> list[pq.FileMetaData]:
    files = map(pq.read_metadata, table.glob("*.parquet"))
    return [metadata for metadata in files if metadata.num_rows >= rows]


def test_it_goes_on_from_its_checkpoint(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so do the interval tables, which the fold's process keeps. A checkpoint of a newer routelake is refused."""
    monkeypatch.setattr("lake.history.intervals.STEP_INTERVAL_S", 0.0)
    records = random_log(2, 120)
    for start in range(0, 120, 40):
        stage.start()
        for record in records[start : start + 20]:
            stage.write([record])
        stage.write(records[start + 20 : start + 40])
        stage.wait_idle()
        assert stage.query is not None
        # The interval tables take a part of what is missing at each batch. A slow machine may have made only one so far.
        for number in range(3):
            assert stage.query._intervals.wait(60)
            stage.wait(stage.append(make.put("n", "k", f"{start} {number}")))
        stage.stop()
        tables_are_right(stage.lake_dir, stage.records())
        assert_kept(stage.lake_dir)
        assert_now(stage.lake_dir)
    assert {commit["queryId"] for commit in lakes.commits(stage.lake_dir)} == {
        lakes.commits(stage.lake_dir)[0]["queryId"]
    }
    marker = stage.checkpoint_dir / "routelake.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "format": 99}))
    with pytest.raises(SetupError, match="newer routelake"):
        stage.start()


def test_a_lost_checkpoint_loses_nothing(stages: Callable[..., Stage]) -> None:
    """State comes back from the tables, with heartbeats that were not committed yet from the log."""
    stage = stages("lazy", liveness_interval_s=3600.0)
    records = random_log(3, 80)
    for start in range(0, 80, 40):
        stage.start()
        stage.wait(
            stage.append(make.register(name="lazy", heartbeat_timeout_millis=10**9))
        )  # the first batch writes when brokers were heard
        stage.wait(stage.write(records[start : start + 40]))
        stage.wait(stage.append(make.heartbeat(name="lazy"), make.put("n", str(start))))  # and later ones do not
        stage.stop()
        last = lakes.commits(stage.lake_dir)[-1]
        assert last["livenessOffset"] < last["logOffset"]
        lose_checkpoint(stage, by_format=start == 40)
    stage.settings = replace(stage.settings, liveness_interval_s=0.0)
    stage.start()
    stage.wait(stage.append(make.clock(), make.put("n", "end")))  # CLOCK is for all shards, and each tells what it has
    stage.stop()
    tables_are_right(stage.lake_dir, stage.records())
    assert len({commit["queryId"] for commit in lakes.commits(stage.lake_dir)}) == 3


@pytest.mark.parametrize(
    "files",
    [("offsets",), pytest.param(("commits", "metadata", "epoch", "routelake.json"), marks=pytest.mark.deep)],
    ids=" ".join,
)
def test_a_torn_file_of_the_checkpoint_heals_at_the_start(stage: Stage, files: tuple[str, ...]) -> None:
    """As a power cut leaves it. `ops/doctor/test_checkpoint.py` has every file, torn in each way, without Spark."""
    records = random_log(4, 10 * (len(files) + 1))
    stage.start()
    for number, file in enumerate(files, 1):
        stage.wait(stage.write(records[10 * (number - 1) : 10 * number]))
        stage.wait_idle()
        stage.stop()
        torn = stage.checkpoint_dir / file
        if torn.is_dir():
            torn = max((entry for entry in torn.iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name))
        torn.write_bytes(b"")
        with capture_logs() as said:
            stage.start()
        assert [line["event"] for line in said if "unusable" in line["event"]] == [
            "checkpoint is unusable: rebuilding it from the tables"
        ], file
    stage.wait(stage.write(records[10 * len(files) :]))
    stage.stop()
    tables_are_right(stage.lake_dir, stage.records())


@pytest.mark.parametrize(
    "patterns",
    [
        ("state/**/*.changelog",),
        pytest.param(("state/0/_metadata/v2/0", "state/0/_stateSchema/default/*"), marks=pytest.mark.deep),
    ],
    ids=" ".join,
)
def test_torn_state_heals_after_some_tries(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, patterns: tuple[str, ...]
) -> None:
    """What Spark says of it names the checkpoint, or nothing that anybody could know it by."""
    monkeypatch.setattr(main, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(main, "_MAX_PAUSE_S", 0.01)
    monkeypatch.setattr(main, "give_way", lambda: None)

    def end(self: job.FoldQuery, timeout_s: float = 0.0) -> bool:
        self.query.stop()  # the process does not end here
        return True

    monkeypatch.setattr(job.FoldQuery, "hold", end)
    records = random_log(5, 60)
    stage.start()
    stage.wait(stage.write(records[:20]))
    stage.wait_idle()
    stage.stop()
    for number, pattern in enumerate(patterns, 1):
        found = list(stage.checkpoint_dir.glob(pattern))
        assert found, pattern
        for torn in found:
            torn.write_bytes(bytes(torn.stat().st_size // 2))
        last = stage.write(records[20 * number : 20 * (number + 1)])
        assert last
        codes = _folded_until(stage, last)
        assert codes[-1] == 0 and len(codes) <= 2, pattern
        tables_are_right(stage.lake_dir, stage.records())


def _folded_until(stage: Stage, last: int) -> list[int]:
    """Run the fold's process in this one, again where it fails, until an offset is folded; its exit codes."""
    stop = StopSignal()
    codes: list[int] = []

    def fold() -> None:
        while EXIT_FAILED in (codes or [EXIT_FAILED])[-1:]:  # as a supervisor has it
            codes.append(main._fold(stage.spark, stage.settings, stop, None))

    folding = threading.Thread(target=fold)
    folding.start()
    try:
        until(lambda: lakes.commits(stage.lake_dir)[-1]["logOffset"] >= last, WAIT_S)
    finally:
        stop.set()
        folding.join(60)
    return codes


def test_a_lake_restored_beside_a_newer_checkpoint_gets_back_what_it_lacks(stage: Stage, tmp_path: Path) -> None:
    """The checkpoint knows what the tables have lost, and would never write it again."""
    records = random_log(6, 120)
    for start in (0, 40):
        stage.start()
        stage.wait(stage.write(records[start : start + 40]))
        stage.stop()
        if start == 0:
            shutil.copytree(stage.lake_dir, tmp_path / "backup")
    shutil.rmtree(stage.lake_dir)
    (tmp_path / "backup").rename(stage.lake_dir)
    stage.start()
    stage.wait(stage.write(records[80:]))
    stage.stop()
    tables_are_right(stage.lake_dir, stage.records())


def lose_checkpoint(stage: Stage, *, by_format: bool) -> None:
    """Delete it, or replace it by the checkpoint of an older routelake, with a state that cannot be read."""
    if not by_format:
        shutil.rmtree(stage.checkpoint_dir)
        return
    marker = stage.checkpoint_dir / "routelake.json"
    written = json.loads(marker.read_text())
    marker.write_text(json.dumps({**written, "format": written["format"] - 1}))


def test_the_number_of_shards_can_be_changed_with_the_checkpoint(stages: Callable[..., Stage]) -> None:
    records = random_log(4, 80)
    stage = stages("shards", shards=2)
    stage.start()
    stage.wait(stage.write(records[:40]))
    stage.stop()
    shutil.rmtree(stage.checkpoint_dir)
    other = Stage(stage.spark, stage.lake_dir.parent, shards=1)
    stage.spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        other.start()
        other.wait(other.write(records[40:]))
        tables_are_right(stage.lake_dir, stage.records())
    finally:
        other.close()
        stage.spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_brokers_expire_when_nothing_but_the_clock_moves(stage: Stage) -> None:
    """CLOCK is for all shards: one of a broker that is silent hears nothing else, while others talk."""
    ends = (0, -1, -(2**63), 2**63 - 1, 2**53)
    """Deadlines just after the registration, and in the year 9999."""
    stage.start()
    offset = stage.append(
        make.register("x:1", name="x", heartbeat_timeout_millis=60_000),
        make.register(heartbeat_timeout_millis=3_000),
        *(
            make.register(f"{number}:1", name=f"b{number}", heartbeat_timeout_millis=timeout)
            for number, timeout in enumerate(ends)
        ),
    )
    stage.wait(offset)
    stage.wait(stage.append(make.clock(), after_ms=2_990))
    assert {key[0] for key in lakes.state_tables(stage.lake_dir)["brokerAddrTable"]} == {"b", "x", "b3", "b4"}
    stage.wait(stage.append(make.put("n", "k"), after_ms=1_000))
    assert {key[0] for key in lakes.last_epoch_tables(stage.lake_dir)["brokerAddrTable"]} == {"b", "x", "b3", "b4"}
    stage.wait(stage.append(make.clock()))
    assert {key[0] for key in lakes.last_epoch_tables(stage.lake_dir)["brokerAddrTable"]} == {"x", "b3", "b4"}
    stage.wait(stage.append(make.clock(), after_ms=60_000))
    assert {key[0] for key in lakes.last_epoch_tables(stage.lake_dir)["brokerAddrTable"]} == {"b3", "b4"}
    tables_are_right(stage.lake_dir, stage.records())
    expired = {row["brokerName"]: row for row in lakes.history(stage.lake_dir) if row["command"] == "BROKER_EXPIRED"}
    assert round(expired["b"]["eventTime"].timestamp() * 1000) == stage.records()[1].event_time_ms + 3_001


def test_the_clock_of_a_log_may_go_back_however_far(stage: Stage) -> None:
    """A Kafka partition moves to a machine that lags by a day, and back: nothing is dropped, and time stands meanwhile."""
    stage.start()
    stage.wait(stage.append(make.register(), make.put("n", "k1")))
    stage.wait(stage.append(make.put("n", "k2"), after_ms=60_000))
    stage.wait(_append_late(stage, make.put("n", "k3"), 86_400_000))
    stage.wait(_append_late(stage, make.clock(), 86_399_000))
    stage.wait(stage.append(make.put("n", "k4")))
    for name in ("k5", "k6"):  # and then the log stamps the same time for a long while
        stage.wait(stage.append(make.put("n", name), after_ms=0))
    stage.wait_idle()
    assert {key[1] for key in lakes.state_tables(stage.lake_dir)["kvConfigTable"]} == {f"k{n}" for n in range(1, 7)}
    assert {key[0] for key in lakes.last_epoch_tables(stage.lake_dir)["brokerAddrTable"]} == {"b"}
    assert stage.query is not None
    assert stage.query.dropped_as_late() == 0
    times = [row["eventTime"] for row in sorted(lakes.history(stage.lake_dir), key=lambda row: row["offset"])]
    assert times == sorted(times)


def _append_late(stage: Stage, event: AnyEvent, by_ms: int) -> int:
    """An event with a time before that of the previous one; returns its offset."""
    with closing(sqlite3.connect(stage.log_path)) as connection, connection:
        added = connection.execute(
            "INSERT INTO event (event_time_ms, key, payload) VALUES (?, ?, ?)",
            (stage.now_ms - by_ms, routing_key(event), encode(event)),
        )
        assert added.lastrowid is not None
        return added.lastrowid


def workers() -> list[int]:
    """Spark's Python workers that fold or read, each a fork of a daemon."""
    found = []
    for pid in threads_below(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text()
            if "pyspark.worker" in command and "worker_daemon" in command:
                found.append(pid)
    return found


def test_a_worker_that_is_killed_in_mid_batch_costs_no_event(stage: Stage) -> None:
    """By the kernel, say, which was out of memory (its task is tried again, in this JVM, and so is a query)."""
    records = random_log(7, 140)
    stage.start()
    stage.wait(stage.write(records[:20]))
    killed = 0
    for start in range(20, 140, 20):
        last = stage.write(records[start : start + 20])
        if killed < 3 and (found := workers()):
            with suppress(ProcessLookupError):  # it has just ended by itself
                os.kill(max(found), signal.SIGKILL)
                killed += 1
        stage.wait(last)
    stage.wait_idle()
    assert killed == 3
    tables_are_right(stage.lake_dir, stage.records())
    assert len({commit["queryId"] for commit in lakes.commits(stage.lake_dir)}) == 1
