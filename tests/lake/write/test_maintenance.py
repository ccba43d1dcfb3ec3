# SPDX-License-Identifier: Apache-2.0
"""Housekeeping changes nothing that can be read, takes little time at once, and leaves no garbage behind."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace

from dev.support import events as make
from dev.support import lakes
from dev.support.drive import SHARDS, DeltaLake
from dev.support.expected import Expected
from dev.support.fixed_log import FixedLog
from dev.support.generated_logs import written
from dev.support.microbatches import Query
from eventlog.base import LogRecord
from lake.delta.log import LastCheckpoint
from lake.delta.types import arrow_schema
from lake.history.changelog import ChangesAsked, list_changes
from lake.history.history import History
from lake.history.intervals import IntervalKeeper
from lake.write import maintenance as module
from lake.write import synced as synced_module
from lake.write.maintenance import HOUR_MS, CleanUpClock, Maintenance
from lake.write.synced import read_synced, sync_lake
from lake.write.writer import LakeWriter
from runtime import disk
from schemas.tables import ALL_TABLES, ROUTE_COMMIT_TABLE, STATE_TABLES, TOPIC_QUEUE_TABLE

ODD = "o'dd %2F/=ü"
RECORDS = written(
    [
        (10, make.register(name=ODD)),
        (10, make.register("x:1", name="x")),
        *[
            (10, event)
            for _ in range(6)
            for event in (make.wipe(ODD), make.add(ODD), make.put("n", "k"), make.delete("n", "k"))
        ],
        (10, make.unregister("x:1", name="x")),
    ]
)


def lake(lake_dir: Path, *, retention_days: int = 30, records: list[LogRecord] = RECORDS) -> DeltaLake:
    """Of an epoch for each record."""
    query = Query(SHARDS)
    query.lake = delta = DeltaLake(open_writer(lake_dir, retention_days))
    for record in records:
        query.run([record])
    return delta


def open_writer(lake_dir: Path, retention_days: int = 30) -> LakeWriter:
    return LakeWriter(lake_dir, retention_days=retention_days, liveness_interval_s=0, shards=SHARDS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of all records, which tests copy."""
    folder = tmp_path_factory.mktemp("made") / "lake"
    lake(folder)
    return folder


@pytest.fixture
def writer(made: Path, tmp_path: Path) -> LakeWriter:
    """Goes on with that, in the test's own folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return open_writer(tmp_path)


def keeper(writer: LakeWriter, log: FixedLog | None = None, *, retention_days: int = 30) -> Maintenance:
    return Maintenance(writer.tables, log or FixedLog(RECORDS), retention_days, log_retention_hours=0)


def next_due(maintenance: Maintenance, writer: LakeWriter) -> tuple[str, module.Work] | None:
    return maintenance._urgent(writer) or maintenance._next_of_sweep()


def sweep(maintenance: Maintenance, writer: LakeWriter) -> Iterator[tuple[str, float]]:
    """A whole round; yields each piece of work with the CPU seconds it took."""
    maintenance._swept_at = time.monotonic() - module.SWEEP_INTERVAL_S - 1
    while (due := next_due(maintenance, writer)) is not None:
        what, work = due
        started = time.process_time()
        work()
        yield what, time.process_time() - started


@lakes.read_once()
def all_epochs(lake_dir: Path) -> dict[int, lakes.Tables]:
    return {commit["epoch"]: lakes.state_tables(lake_dir, commit) for commit in lakes.commits(lake_dir)}


def files(lake_dir: Path, name: str) -> dict[str, int]:
    """How many data, change and log files a table has on disk."""
    counts = {"data": 0, "change": 0, "log": 0}
    for path in (lake_dir / name).rglob("*"):
        if path.is_file():
            kind = "change" if "_change_data" in path.parts else "log" if "_delta_log" in path.parts else "data"
            counts[kind] += 1
    return counts


def feed(lake_dir: Path, name: str, first: int, last: int) -> list[dict[str, Any]]:
    reader = DeltaTable(str(lake_dir / name)).load_cdf(starting_version=first, ending_version=last)
    return pa.table(reader.read_all()).to_pylist()


@pytest.fixture(autouse=True)
def _small_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_WHEN_FILES", 3)
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_COMMITS", 5)


def test_every_epoch_reads_as_before(writer: LakeWriter, tmp_path: Path) -> None:
    before, history = all_epochs(tmp_path), lakes.history(tmp_path)
    done = [what for what, _ in sweep(keeper(writer), writer)]
    assert all_epochs(tmp_path) == before
    assert sorted(map(str, lakes.history(tmp_path))) == sorted(map(str, history))
    assert any(what.startswith("compact") for what in done)
    for table in ALL_TABLES:
        assert f"vacuum {table.name}" in done
    lakes.check_epochs(tmp_path)


def test_crowded_tables_and_partitions_are_compacted(writer: LakeWriter) -> None:
    """Also the partition of a name that looks different on disk."""
    queues = writer.tables[TOPIC_QUEUE_TABLE.name]
    for _ in range(5):  # small appends, as registrations of single topics make them
        row = {
            "brokerName": ODD,
            "topic": f"t{_}",
            "readQueueNums": 1,
            "writeQueueNums": 1,
            "perm": 6,
            "topicSysFlag": 0,
        }
        write_deltalake(
            queues.delta,
            pa.Table.from_pylist([row], schema=arrow_schema(TOPIC_QUEUE_TABLE)),
            mode="append",
        )
        queues.publish()
    before = len(queues.delta.file_uris())
    done = [what for what, _ in sweep(keeper(writer), writer)]
    assert before > 5
    assert any(what.startswith("compact topicQueueTable") for what in done)
    for name in (TOPIC_QUEUE_TABLE.name, ROUTE_COMMIT_TABLE.name, "routeChangeTable"):
        assert len(writer.tables[name].delta.file_uris()) == 1, name


def test_the_change_feed_skips_compaction(writer: LakeWriter, tmp_path: Path) -> None:
    """A follower that reads from before to after it sees what the epochs changed and nothing else."""
    list(sweep(keeper(writer), writer))
    version = writer.tables["kvConfigTable"].version
    query = Query(SHARDS, seed=Expected(RECORDS).state)
    query.lake = DeltaLake(writer, first_batch=len(RECORDS))
    (record,) = written([(0, make.put("n", "after"))])
    query.run([record._replace(offset=RECORDS[-1].offset + 1)])
    rows = feed(tmp_path, "kvConfigTable", 1, writer.tables["kvConfigTable"].version)
    last = [row for row in rows if row["_commit_version"] > version]
    assert [(row["key"], row["_change_type"]) for row in last if row["key"] == "after"] == [("after", "insert")]
    inserted = [row for row in rows if row["_change_type"] == "insert"]
    changes = lakes.history(tmp_path)
    puts = sum(row["command"] == "PUT_KV_CONFIG" and row["before"] is None for row in changes if row["seq"] >= 0)
    assert len(inserted) == puts


def test_what_was_written_stays_written_after_checkpoint_and_clean_up(writer: LakeWriter, tmp_path: Path) -> None:
    """App transactions are in the checkpoints."""
    list(sweep(keeper(writer), writer))
    for name in ("kvConfigTable", "routeCommitTable", "routeChangeTable"):
        DeltaTable(str(tmp_path / name)).create_checkpoint()
        DeltaTable(str(tmp_path / name)).cleanup_metadata()
        assert DeltaTable(str(tmp_path / name)).transaction_version("q1") is not None
    again = Query(SHARDS, seed=Expected(RECORDS[:-1]).state)
    again.lake = DeltaLake(open_writer(tmp_path), first_batch=len(RECORDS) - 1)
    again.run(RECORDS[-1:])
    assert again.lake.epochs == [None]


def test_a_checkpoint_is_written_after_so_many_commits_over_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is often restarted must not let the logs grow without end."""
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_COMMITS", 4)
    records = written([(10, make.put("n", "k", str(number))) for number in range(8)])
    query = Query(SHARDS)
    done: list[str] = []
    for number, record in enumerate(records):
        writer = open_writer(tmp_path)
        maintenance = keeper(writer)
        query.lake = DeltaLake(writer, first_batch=number)
        query.run([record])
        while (due := next_due(maintenance, writer)) is not None:
            done.append(due[0])
            due[1]()
    assert done.count("checkpoint kvConfigTable") == 2
    assert len(list((tmp_path / "kvConfigTable" / "_delta_log").glob("*.checkpoint.parquet"))) == 2


@pytest.mark.parametrize(("actions", "commits"), [(0, 5), (499, 5), (20_000, 200), (10**7, 2_500)])
def test_large_checkpoints_are_written_less_often(actions: int, commits: int) -> None:
    table = SimpleNamespace(last_checkpoint=LastCheckpoint(1, actions))
    assert module._checkpoint_interval(table) == commits  # type: ignore[arg-type]


def test_small_files_are_put_together_every_so_many_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over restarts, and without waiting for the hour."""
    monkeypatch.setattr(module, "COMPACT_EVERY_COMMITS", 6)
    monkeypatch.setattr(module, "FIRST_SWEEP_S", 3600.0)
    query = Query(SHARDS)
    done: list[tuple[int, str]] = []
    for number, record in enumerate(written([(10, make.put("n", "k", str(number))) for number in range(14)])):
        writer = open_writer(tmp_path)
        maintenance = keeper(writer)
        query.lake = DeltaLake(writer, first_batch=number)
        query.run([record])
        while (due := next_due(maintenance, writer)) is not None:
            done.append((number + 1, due[0]))
            due[1]()
    compacted = [number for number, what in done if what.startswith("compact routeChangeTable")]
    assert len(compacted) == 2
    assert not [what for _, what in done if what.startswith("vacuum")]


def test_a_fold_that_often_starts_anew_sweeps_as_well(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 10_000.0
    # The module's own clock only: event loops of other tests' servers live in this process.
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s, time_ns=time.time_ns))
    maintenance = keeper(writer)

    def all_due() -> list[str]:
        done = []
        while (due := next_due(maintenance, writer)) is not None:
            done.append(due[0])
            due[1]()
        return done

    assert not [what for what in all_due() if what.startswith("vacuum")]
    now_s += module.FIRST_SWEEP_S
    assert "vacuum kvConfigTable" in all_due()


# --- what is no longer needed goes ---


def test_vacuum_leaves_only_what_is_readable(tmp_path: Path) -> None:
    """With no retention at all: one version of each table, and none of the files that change feeds need."""
    delta = lake(tmp_path, retention_days=0)
    maintenance = keeper(delta.writer, retention_days=0)
    for staged in delta.writer.tables.values():
        staged.checkpoint()
    time.sleep(1.1)  # file times have a resolution of a second for vacuum
    before = lakes.last_epoch_tables(tmp_path)
    list(sweep(maintenance, delta.writer))
    for table in ALL_TABLES:
        active = len(delta.writer.tables[table.name].delta.file_uris())
        assert files(tmp_path, table.name) | {"log": 0} == {"data": active, "change": 0, "log": 0}, table.name
    assert lakes.state_tables(tmp_path) == before


def test_vacuum_keeps_what_retention_covers_however_old_it_is(writer: LakeWriter, tmp_path: Path) -> None:
    """A file of long ago that was replaced a minute ago belongs to epochs of the last weeks."""
    old = time.time() - 90 * 86_400
    for table in STATE_TABLES:
        for path in (tmp_path / table.name).rglob("*.parquet"):
            if "_change_data" not in path.parts and "_delta_log" not in path.parts:
                os.utime(path, (old, old))
    before = all_epochs(tmp_path)
    list(sweep(keeper(writer), writer))
    assert all_epochs(tmp_path) == before


def test_the_last_epoch_stays_readable_if_nothing_changes_for_longer_than_the_retention(tmp_path: Path) -> None:
    """No heartbeat makes an epoch, while compaction, vacuum and clean-up of logs go on."""
    clocks = written([(10, make.clock())] * 4)
    query = Query(SHARDS)
    query.lake = delta = DeltaLake(open_writer(tmp_path, retention_days=1))
    for record in RECORDS:
        query.run([record])
    last = RECORDS[-1]
    for day, record in enumerate(clocks, 1):
        list(sweep(keeper(delta.writer, retention_days=1), delta.writer))
        set_back(tmp_path, 2)
        now = delta.writer._progress
        delta.writer._progress = replace(now, commit_time=now.commit_time - timedelta(hours=7))
        query.run([record._replace(offset=last.offset + day, event_time_ms=last.event_time_ms + day)])
    list(sweep(keeper(delta.writer, retention_days=1), delta.writer))
    assert lakes.last_epoch_tables(tmp_path) == Expected(RECORDS).tables()
    assert list_changes(History(tmp_path), ChangesAsked()).changes


def test_clean_up_drops_log_entries_that_are_old_and_in_a_checkpoint(writer: LakeWriter, tmp_path: Path) -> None:
    log_dir = tmp_path / "kvConfigTable" / "_delta_log"
    table = writer.tables["kvConfigTable"]
    DeltaTable(str(tmp_path / "kvConfigTable"), version=8).create_checkpoint()
    table.checkpoint()
    old = time.time() - 90 * 86_400
    for path in log_dir.glob("*0*"):
        if int(path.name.split(".")[0]) <= 8:
            os.utime(path, (old, old))
    commits = lakes.commits(tmp_path)
    before = {
        epoch: tables["kvConfigTable"]
        for epoch, tables in all_epochs(tmp_path).items()
        if dict(commits[epoch - 1]["versions"])["kvConfigTable"] >= table.version
    }
    assert before
    list(sweep(keeper(writer), writer))
    assert sorted(int(path.stem) for path in log_dir.glob("*.json"))[0] >= 8
    for epoch, rows in before.items():
        assert lakes.state_tables(tmp_path, lakes.commits(tmp_path)[epoch - 1])["kvConfigTable"] == rows
    assert DeltaTable(str(tmp_path / "kvConfigTable")).transaction_version("q1") is not None


# --- the event log ---


def test_only_what_an_earlier_batch_folded_is_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch under way is read again when the process dies before Spark has written down that it is done."""
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_COMMITS", 1_000)
    log = FixedLog(RECORDS)
    query = Query(SHARDS)
    writer = open_writer(tmp_path)
    maintenance = keeper(writer, log)
    query.lake = DeltaLake(writer)
    for record in RECORDS[:6]:
        query.run([record])
        maintenance._trimmed_at = time.monotonic() - module.TRIM_INTERVAL_S - 1
        maintenance.step(writer)
        assert all(before <= record.offset for before, _ in log.trims), "the record of this batch must stay"
    assert max(before for before, _ in log.trims) == 6, "and those of the batches before may go"


def test_nothing_a_seed_needs_is_trimmed(tmp_path: Path) -> None:
    records = written([(1, make.register()), *[(1, make.heartbeat())] * 5])
    log = FixedLog(records)
    query = Query(SHARDS)
    writer = LakeWriter(tmp_path, retention_days=30, liveness_interval_s=3600, shards=SHARDS)
    maintenance = keeper(writer, log)
    query.lake = DeltaLake(writer)
    for record in records:
        query.run([record])
        maintenance._trimmed_at = time.monotonic() - module.TRIM_INTERVAL_S - 1
        maintenance.step(writer)
    assert max(before for before, _ in log.trims) <= 2


def test_the_lake_is_synced_before_the_log_forgets(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version that is trimmed for is on the disk by then, and said to be; what cannot be synced is not trimmed."""
    done: list[str] = []
    sync = disk.sync_file_system

    class Watched(FixedLog):
        def trim(self, before_offset: int, older_than_ms: int) -> int:
            done.append("trim")
            return super().trim(before_offset, older_than_ms)

    def synced(folder: Path) -> None:
        done.append("sync")
        sync(folder)

    monkeypatch.setattr(synced_module, "sync_file_system", synced)
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_COMMITS", 1_000)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    writer = open_writer(tmp_path)
    maintenance = keeper(writer, Watched(RECORDS))
    maintenance._trim(writer.log_offset, writer.event_time_ms)
    assert done == ["sync", "trim"]
    assert read_synced(tmp_path).versions == {name: table.version for name, table in writer.tables.items()}
    maintenance._trim(writer.log_offset, writer.event_time_ms)
    assert done == ["sync", "trim", "trim"], "nothing is new"

    def full(folder: Path) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(synced_module, "sync_file_system", full)
    writer.tables[ROUTE_COMMIT_TABLE.name].version += 1
    with pytest.raises(OSError, match="full"):
        maintenance._trim(writer.log_offset, writer.event_time_ms)
    assert done == ["sync", "trim", "trim"]


def test_the_log_of_a_table_is_synced_before_it_is_cleaned(writer: LakeWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint that stands for the entries that go may be a moment old."""
    done: list[str] = []
    monkeypatch.setattr(module, "sync_lake", lambda *_: done.append("sync"))
    table = writer.tables[ROUTE_COMMIT_TABLE.name]
    monkeypatch.setattr(table, "maintain", lambda work: done.append(work.__name__))
    keeper(writer)._clean_log(table)
    assert done == ["sync", "cleanup_metadata"]


# --- the clock ---


class Clocks:
    """Of the machine, which may be set, and of time that passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms, self.passed_s = 1_800_000_000_000, 1_000.0
        monkeypatch.setattr(
            module,
            "time",
            SimpleNamespace(time_ns=lambda: self.wall_ms * 1_000_000, monotonic=lambda: self.passed_s),
        )

    def go_on(self, seconds: float) -> None:
        self.passed_s += seconds
        self.wall_ms += round(seconds * 1000)


@pytest.mark.parametrize("days", [31, 365, 10_000])
def test_a_clock_that_is_set_ahead_makes_nothing_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    clocks = Clocks(monkeypatch)
    sync_lake(tmp_path, {}, clocks.wall_ms)
    clock = CleanUpClock(tmp_path)
    clocks.go_on(60)
    assert clock.now_ms() == clocks.wall_ms and clock.hours_to_keep(720) == 720
    right_ms = clocks.wall_ms
    clocks.wall_ms += days * 24 * HOUR_MS
    assert clock.now_ms() == right_ms
    assert clock.hours_to_keep(720) >= 720 + days * 24
    clocks.go_on(3600)
    assert clock.now_ms() <= right_ms + 2 * HOUR_MS
    clocks.wall_ms -= days * 24 * HOUR_MS
    assert clock.now_ms() == clocks.wall_ms and clock.ahead_ms() == 0


def test_a_fold_that_starts_under_a_wrong_clock_goes_by_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    sync_lake(tmp_path, {}, clocks.wall_ms)
    clocks.wall_ms += 31 * 24 * HOUR_MS
    assert CleanUpClock(tmp_path).now_ms() == clocks.wall_ms - 31 * 24 * HOUR_MS


def test_after_a_stop_it_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    sync_lake(tmp_path, {}, clocks.wall_ms)
    clocks.go_on(24 * 3600)
    clock = CleanUpClock(tmp_path)
    assert clock.ahead_ms() == 24 * HOUR_MS
    for _ in range(25):
        clocks.go_on(3600)
        clock.now_ms()
    assert clock.ahead_ms() == 0


def set_back(lake_dir: Path, days: int) -> None:
    """Let all of a lake be so much older than the machine's clock, by which delta-rs goes."""
    for entry in lake_dir.glob("*/_delta_log/*.json"):
        text = re.sub(
            r'("(?:deletionTimestamp|timestamp)":)(\d+)',
            lambda found: f"{found[1]}{int(found[2]) - days * 24 * HOUR_MS}",
            entry.read_text(),
        )
        entry.unlink()
        entry.write_text(text)
    long_ago = time.time() - days * 86_400
    for file in lake_dir.rglob("*"):
        os.utime(file, (long_ago, long_ago))


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_clean_up_under_a_clock_a_month_ahead_deletes_nothing(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    set_back(tmp_path, 31)
    writer = open_writer(tmp_path)
    log = FixedLog(RECORDS)
    maintenance = Maintenance(writer.tables, log, 30, log_retention_hours=24)
    if not is_trusted:
        monkeypatch.setattr(maintenance._clock, "ahead_ms", lambda: 31 * 24 * HOUR_MS)
    before = files(tmp_path, "topicQueueTable")
    for _ in sweep(maintenance, writer):
        pass
    after = files(tmp_path, "topicQueueTable")
    if is_trusted:  # the month has passed
        assert after["data"] < before["data"] and after["change"] < before["change"]
    else:
        assert after["data"] >= before["data"] and after["change"] >= before["change"]
        assert after["log"] >= before["log"]
        assert all_epochs(tmp_path) == all_epochs(made)


def test_a_long_trim_goes_on_in_the_next_steps_beside_the_sweep(
    writer: LakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of a trim stay, so that the lake is not synced again. A failure waits for the next trim."""
    clocks = Clocks(monkeypatch)
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_COMMITS", 1_000)
    monkeypatch.setattr(Maintenance, "_sweep_work", lambda self: iter([("piece", lambda: done.append("piece"))] * 9))
    monkeypatch.setattr(module, "STEP_S", 0)
    monkeypatch.setattr(module, "sync_lake", lambda *_: done.append("sync"))
    done: list[str] = []
    parts = [25_000, 25_000, 7, 0]

    class Parts(FixedLog):
        def trim(self, before_offset: int, older_than_ms: int) -> int:
            self.trims.append((before_offset, older_than_ms))
            done.append("trim")
            if not parts:
                raise OSError("disk full")
            return parts.pop(0)

    log = Parts(RECORDS)
    maintenance = keeper(writer, log)
    clocks.go_on(module.SWEEP_INTERVAL_S)

    def step() -> list[str]:
        done.clear()
        writer.tables[ROUTE_COMMIT_TABLE.name].version += 1
        maintenance.step(writer)
        return [*done]

    assert step() == ["sync", "trim", "piece"]
    assert [step() for _ in range(4)] == [["trim", "piece"]] * 3 + [["piece"]]
    assert len({*log.trims}) == 1
    clocks.go_on(module.TRIM_INTERVAL_S)
    assert [step() for _ in range(2)] == [["sync", "trim", "piece"], ["piece"]]


def test_the_log_is_judged_by_its_own_time(writer: LakeWriter) -> None:
    """A gateway's clock may be behind: what it has just written is not old."""
    log = FixedLog(RECORDS)
    Maintenance(writer.tables, log, 30, log_retention_hours=24)._trim(writer.log_offset + 1, writer.event_time_ms)
    ((_, older_than_ms),) = log.trims
    assert older_than_ms == RECORDS[-1].event_time_ms - 24 * HOUR_MS


def test_a_failure_is_no_reason_to_stop(tmp_path: Path) -> None:
    """The next try comes with the next round."""
    delta = lake(tmp_path, records=RECORDS[:2])

    class Broken(FixedLog):
        def trim(self, before_offset: int, older_than_ms: int) -> int:
            super().trim(before_offset, older_than_ms)
            raise OSError("disk full")

    log = Broken(RECORDS)
    maintenance = keeper(delta.writer, log)
    for _ in range(3):
        maintenance._trimmed_at = time.monotonic() - module.TRIM_INTERVAL_S - 1
        maintenance.step(delta.writer)
        maintenance.step(delta.writer)
    assert len(log.trims) >= 2


def test_a_checkpoint_that_cannot_be_written_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta = lake(tmp_path, records=RECORDS[:4])
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_COMMITS", 2)
    tries: list[str] = []

    def fail() -> None:
        tries.append("checkpoint")
        raise OSError("checkpoint cannot be written")

    first = delta.writer.tables[STATE_TABLES[0].name]
    monkeypatch.setattr(first, "checkpoint", fail)
    log = FixedLog(RECORDS)
    maintenance = keeper(delta.writer, log)
    maintenance._trimmed_at -= module.TRIM_INTERVAL_S
    for _ in range(20):
        maintenance.step(delta.writer)
    assert first.version >= 2 and tries == ["checkpoint"]
    assert delta.writer.tables[ROUTE_COMMIT_TABLE.name].last_checkpoint.version
    assert len({*log.trims}) == 1
    maintenance._checkpoint_from_s[first.path.name] -= module.CHECKPOINT_AGAIN_S
    monkeypatch.undo()
    maintenance.step(delta.writer)
    maintenance.step(delta.writer)


# --- time ---


@pytest.mark.parametrize("piece_s", [0.05, 1.0])
def test_a_sweep_of_400_crowded_partitions_reaches_the_last_table_in_short_steps(
    writer: LakeWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_s: float
) -> None:
    """On a quiet lake, which has a batch every ten seconds. Two tables are crowded, and again at the next sweep."""
    clocks = Clocks(monkeypatch)
    done: list[str] = []

    def piece(what: str) -> None:
        done.append(what)
        clocks.go_on(piece_s)

    def crowded(table: DeltaTable, partition_by: tuple[str, ...]) -> list[Any]:
        return [[("brokerName", "=", f"b{number}")] for number in range(400)] if "brokerName" in partition_by else []

    monkeypatch.setattr(Maintenance, "_crowded", staticmethod(crowded))
    monkeypatch.setattr(Maintenance, "_compact", lambda self, name, partition: piece(f"compact {name}"))
    monkeypatch.setattr(Maintenance, "_vacuum", lambda self, table, hours: piece(f"vacuum {table.path.name}"))
    monkeypatch.setattr(Maintenance, "_clean_log", lambda self, table: piece(f"clean up {table.path.name}"))
    monkeypatch.setattr(module, "CHECKPOINT_EVERY_COMMITS", 1_000)
    monkeypatch.setattr(Maintenance, "_sync", lambda self: None)
    tables = {**writer.tables, **IntervalKeeper(tmp_path).tables}
    maintenance = Maintenance(tables, FixedLog(RECORDS), 30, log_retention_hours=0)
    longest_s = 0.0
    for _ in range(5 * 360):
        began_s = clocks.passed_s
        maintenance.step(writer)
        longest_s = max(longest_s, clocks.passed_s - began_s)
        clocks.go_on(10)
    assert 1 <= done.count("vacuum kvHistory") <= 5, "a sweep an hour at most, and each to its end"
    assert longest_s < 0.25 + piece_s + 1e-6


def test_each_piece_of_work_is_short_on_a_lake_of_300_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_WHEN_FILES", 32)
    table = make.topics(*(f"topic-{number}" for number in range(200)))
    events = [make.register(f"10.0.{number}.1:1", name=f"broker-{number}", table=table) for number in range(300)]
    query = Query(SHARDS)
    writer = open_writer(tmp_path)
    query.lake = DeltaLake(writer)
    records = written([(1, event) for event in events])
    query.run(records)
    extra = [(1, make.register_topic(f"new-{number}", name="broker-7")) for number in range(40)]
    for record in written([(400, make.clock()), *extra])[1:]:
        query.run([record._replace(offset=record.offset + 300)])
    maintenance = keeper(writer)
    took = dict(sweep(maintenance, writer))
    assert any(what.startswith("compact topicQueueTable") for what in took)
    assert any(what.startswith("checkpoint topicQueueTable") for what in took)
    slow = {what: seconds for what, seconds in took.items() if seconds > 1}
    assert not slow
