# SPDX-License-Identifier: Apache-2.0
"""The source without Spark, over both logs: where batches end, how it waits, and what it refuses."""

from __future__ import annotations

import contextlib
import pickle
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from dev.support import events as make
from eventlog.base import EventLog
from eventlog.sqlite.log import SqliteLog
from pipelines import source
from pipelines.blocks import Record, unpack
from pipelines.source import (
    NO_PACE,
    LogSource,
    LogStreamReader,
    OffsetRange,
    Pace,
    PaceSettings,
    SourceOffset,
    SourceSettings,
    options_of,
)
from schemas.errors import SetupError, UnavailableError
from schemas.events import DEFERRABLE, AnyEvent, encode, routing_key
from tests.eventlog.backends import Backend
from tests.eventlog.conftest import make_backend

pytestmark = pytest.mark.xdist_group("kafka")

MIB = 1024 * 1024


class Readers:
    """Makes readers of one log; ``first`` is the offset of its first record."""

    def __init__(self, backend: Backend) -> None:
        self.log: EventLog = backend.open()
        self.first = 1 if backend.kind == "sqlite" else 0
        self._url = backend.url
        self._made: list[LogStreamReader] = []

    def __call__(
        self, start: int = 0, max_records: int = 1000, max_bytes: int = 10**9, pace: PaceSettings = NO_PACE
    ) -> LogStreamReader:
        settings = SourceSettings(self._url, start, max_records=max_records, max_bytes=max_bytes, pace=pace)
        data_source = LogSource(options_of(settings))
        made = data_source.streamReader(data_source.schema())
        self._made.append(made)
        return made

    def stop(self) -> None:
        for made in self._made:
            made.stop()

    def write(self, *events: AnyEvent) -> None:
        self.log.append([(routing_key(event), encode(event)) for event in events])


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.jvm)])
def readers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Readers]:
    """Of one log of each kind."""
    for backend in make_backend(request, tmp_path):
        made = Readers(backend)
        yield made
        made.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def sqlite(path: Path) -> Iterator[Readers]:
    """Of a SQLite log, for what Kafka does not do, or what does not depend on the log."""
    backend = Backend("sqlite", f"sqlite://{path}")
    made = Readers(backend)
    yield made
    made.stop()
    backend.close_all()


def batches(reader: LogStreamReader) -> list[list[int]]:
    """Offsets of each batch until there is nothing more, as Spark would ask for them."""
    limit = reader.getDefaultReadLimit()
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        (partition,) = reader.partitions(start, end)
        found.append([record.offset for batch in reader.read(partition) for record in unpacked(batch)])
        start = end
    assert list(reader.partitions(start, start)) == []
    return found


def unpacked(batch: pa.RecordBatch) -> list[Record]:
    return unpack(block.as_py() for block in batch["records"])


def delete(path: Path, where: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        plain.execute(f"DELETE FROM event WHERE {where}")


# --- when a batch begins ---


class Paced:
    """A pace. The test moves its clock and processor time. Its first batch is over."""

    def __init__(self, hasten_file: str = "") -> None:
        self.now_s = self.spent_s = 1_000.0
        self.pace = Pace(PaceSettings(cores=0.1, least_s=1.0, hasten_file=hasten_file), *self.readings())
        assert self.pace.due_s() <= self.now_s
        assert self.batch(5.0, 30.0) == 1.0, "the first is free"

    def readings(self) -> tuple[Callable[[], float], Callable[[int], float]]:
        return lambda: self.now_s, lambda _pid: self.spent_s

    def batch(self, took_s: float, spent_s: float) -> float:
        """Seconds from its begin to when the next one may begin."""
        began_s = self.now_s
        self.pace.begins()
        self.now_s += took_s
        self.spent_s += spent_s
        return self.pace.due_s() - began_s


@pytest.mark.parametrize(("spent_s", "waits_s"), [(0.0, 1.0), (2.1, 1.0), (2.3, 3.0), (3.0, 10.0), (30.0, 10.0)])
def test_the_dearer_a_batch_the_later_the_next(spent_s: float, waits_s: float) -> None:
    """Two seconds of processor are there after a quiet time."""
    assert Paced().batch(0.2, spent_s) == pytest.approx(waits_s)


def test_in_the_long_run_batches_use_their_share() -> None:
    paced, began_s, spent_s = Paced(), 0.0, 0.0
    for number in range(100):
        if number == 20:  # the burst is over
            began_s, spent_s = paced.now_s, paced.spent_s
        waits_s = paced.batch(0.5, 0.35)
        paced.now_s += waits_s - 0.5
    assert (paced.spent_s - spent_s) / (paced.now_s - began_s) == pytest.approx(0.1, rel=0.05)


def test_after_a_quiet_time_batches_begin_at_once() -> None:
    paced = Paced()
    for _ in range(3):
        paced.batch(0.2, 30.0)
        paced.now_s += 9.8
        assert paced.pace.due_s() <= paced.now_s
    paced.now_s += 30.0
    assert [paced.batch(1.0, 0.3) for _ in range(7)] == [pytest.approx(1.0)] * 7
    for _ in range(3):
        last_s = paced.batch(1.0, 0.5)
    assert last_s > 1.0


def test_without_a_bound_the_cost_of_a_batch_is_not_even_looked_at() -> None:
    def never(_pid: int) -> float:
        raise AssertionError

    pace = Pace(PaceSettings(), lambda: 5.0, never)
    pace.begins()
    assert pace.due_s() == 5.0


def test_who_waits_for_an_epoch_hastens_it(tmp_path: Path) -> None:
    hasten = tmp_path / "fold-hasten"
    paced = Paced(str(hasten))
    assert paced.batch(0.2, 5.0) == pytest.approx(10.0)
    assert not paced.pace.is_hastened()
    hasten.touch()
    assert not paced.pace.is_hastened(), "least_s holds all the same"
    paced.now_s += 0.8
    assert paced.pace.is_hastened()
    paced.pace.begins()
    paced.now_s += 2.0
    assert not paced.pace.is_hastened(), "that one has come"


def test_a_batch_that_is_not_due_begins_only_when_it_is_full_or_somebody_waits(
    sqlite: Readers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WAIT_S", 0.0)
    hasten = tmp_path / "fold-hasten"
    one = sqlite(
        max_records=4, pace=PaceSettings(burst_s=0.0, cores=1e-9, most_s=3600.0, pid=1, hasten_file=str(hasten))
    )
    start, limit = one.initialOffset(), one.getDefaultReadLimit()
    spent = iter(range(100))
    monkeypatch.setattr(one._pace, "_spent_s", lambda _pid: float(next(spent)))
    sqlite.write(make.clock())
    first = one.latestOffset(start, limit)
    assert first["offset"] == sqlite.first + 1
    sqlite.write(make.clock())
    second = one.latestOffset(first, limit)
    assert second["offset"] == sqlite.first + 2, "the first one was free"
    first = second
    sqlite.write(*[make.clock()] * 3)
    assert one.latestOffset(first, limit) == first
    sqlite.write(*[make.clock()] * 3)
    full = one.latestOffset(first, limit)
    assert full["offset"] == sqlite.first + 6
    assert one.latestOffset(full, limit) == full
    hasten.touch()
    assert one.latestOffset(full, limit)["offset"] == sqlite.first + 8


# --- both logs ---


def test_batches_keep_the_bound_on_records(readers: Readers) -> None:
    readers.write(*[make.clock()] * 10)
    found = batches(readers(max_records=4))
    assert list(map(len, found)) == [4, 4, 2]
    assert list(chain.from_iterable(found)) == list(range(readers.first, readers.first + 10))


def test_batches_keep_the_bound_on_bytes_but_a_large_record_comes_alone(readers: Readers) -> None:
    readers.log.append([("k", bytes(size)) for size in (10, 10, 10, 100, 1, 29, 1)])
    assert list(map(len, batches(readers(max_bytes=30)))) == [3, 1, 2, 1]


def test_a_batch_is_bounded_by_what_it_inflates_to(readers: Readers) -> None:
    readers.write(*(make.put("n", "k", letter * 12 * MIB) for letter in "ab" * 3))
    assert list(map(len, batches(readers(max_bytes=32 * MIB)))) == [2, 2, 2]
    readers.write(*[make.wipe()] * 200)
    assert max(map(len, batches(readers(readers.first + 6, max_bytes=32 * MIB)))) <= 64


def test_what_can_wait_goes_with_the_next_that_cannot(readers: Readers) -> None:
    one = readers(pace=PaceSettings(deferred_s=3600.0))
    limit = one.getDefaultReadLimit()
    readers.write(make.heartbeat())
    start = one.latestOffset(one.initialOffset(), limit)
    assert start["offset"] == readers.first + 1, "the first batch waits for nothing"
    for _ in range(3):
        readers.write(make.heartbeat(), make.clock())
        assert one.latestOffset(start, limit) == start
    readers.write(make.heartbeat(), make.put("n", "k", "v"), make.heartbeat())
    taken = one.latestOffset(start, limit)
    assert taken["offset"] == readers.first + 10
    readers.write(make.heartbeat())
    assert one.latestOffset(taken, limit) == taken
    assert one.latestOffset(start, limit)["offset"] == readers.first + 11, "an older batch, as after a restart"
    readers.write(make.put("n", "k", "v"))
    assert one.latestOffset(taken, limit)["offset"] == readers.first + 12


def test_events_that_can_wait_start_a_batch_after_their_time_or_if_a_reader_waits(
    sqlite: Readers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "WAIT_S", 0.0)
    hasten = tmp_path / "fold-hasten"
    one = sqlite(pace=PaceSettings(deferred_s=10.0, hasten_file=str(hasten)))
    now_s = 1_000.0
    monkeypatch.setattr(one._pace, "_clock", lambda: now_s)
    limit = one.getDefaultReadLimit()
    sqlite.write(make.clock())
    first = one.latestOffset(one.initialOffset(), limit)
    sqlite.write(make.heartbeat(), make.clock())
    now_s += 9.9
    assert one.latestOffset(first, limit) == first
    now_s += 0.2
    second = one.latestOffset(first, limit)
    assert second["offset"] == first["offset"] + 2
    sqlite.write(make.clock())
    assert one.latestOffset(second, limit) == second
    hasten.touch()
    assert one.latestOffset(second, limit)["offset"] == second["offset"] + 1


def test_a_batch_is_read_again(readers: Readers) -> None:
    """By another worker, or the same: what was fetched ahead is of no use then."""
    readers.write(*[make.clock()] * 50)
    one, first = readers(), readers.first
    ranges = [OffsetRange(first, first + 20, 0), OffsetRange(first + 20, first + 50, 0)]
    for partition in (ranges[0], ranges[1], ranges[0], ranges[1], ranges[1]):
        offsets = [record.offset for batch in one.read(partition) for record in unpacked(batch)]
        assert offsets == list(range(partition.start, partition.end))


def test_starts_at_the_given_offset(readers: Readers) -> None:
    readers.write(*[make.clock()] * 5)
    last = readers.first + 4
    assert batches(readers(start=last - 1)) == [[last - 1, last]]
    assert batches(readers(start=last + 1)) == []


def test_a_start_beyond_the_end_fails(readers: Readers) -> None:
    readers.write(*[make.clock()] * 5)
    end = readers.first + 5
    with pytest.raises(SetupError, match=f"ends before offset {end}, but this stream continues at {end + 1}"):
        readers(start=end + 1).initialOffset()


def test_what_was_read_may_be_trimmed_and_what_was_not_may_not(readers: Readers) -> None:
    readers.write(*[make.clock()] * 6)
    one, first = readers(), readers.first
    start = one.initialOffset()
    planned = one.partitions(start, one.latestOffset(start, ReadMaxRows(4)))
    readers.log.trim(first + 4, 2**60)
    assert one.latestOffset({**start, "offset": first + 4}, ReadMaxRows(4))["offset"] == first + 6
    assert batches(readers(start=first + 4)) == [[first + 4, first + 5]]
    with pytest.raises(SetupError, match=f"lacks the records from offset {first} to {first + 3}"):
        one.latestOffset(start, ReadMaxRows(4))
    with pytest.raises(SetupError, match=f"lacks the records from offset {first} "):
        list(one.read(planned[0]))


def test_another_log_fails(readers: Readers) -> None:
    readers.write(make.clock())
    with pytest.raises(SetupError, match="deleted and created again"):
        readers().latestOffset({"offset": readers.first, "timeMs": 0, "log": "another"}, ReadMaxRows(4))


# --- one log ---


def test_what_can_wait_does_not_wait_for_ever(sqlite: Readers) -> None:
    """A batch that is full is taken, and so is all there is when nothing more is to come."""
    sqlite.log.append([("b:b", DEFERRABLE + bytes(9))] * 10)
    deferring = PaceSettings(deferred_s=3600.0)
    assert batches(sqlite(max_records=4, pace=deferring)) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert batches(sqlite(max_bytes=45, pace=deferring)) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    last = sqlite()
    last.prepareForTriggerAvailableNow()
    assert batches(last) == [list(range(1, 11))]


def test_a_backlog_is_read_in_arrow_batches_of_bounded_size(sqlite: Readers) -> None:
    sqlite.log.append([("k", bytes(1000 * 1000))] * 20)
    read = [
        [len(unpack([block.as_py()])) for block in batch["records"]] for batch in sqlite().read(OffsetRange(1, 21, 0))
    ]
    assert read == [[4, 4], [4, 4], [4]]


def test_blocks_are_what_the_log_holds(sqlite: Readers) -> None:
    sqlite.log.append([("b:\N{SNOWMAN}", b"\x00\xff"), ("", b"")])
    (batch,) = sqlite().read(OffsetRange(1, 3, 0))
    records = sqlite.log.read(0)
    assert [record[:4] for record in unpacked(batch)] == records
    (row,) = batch.to_pylist()
    assert row["shard"] == 0
    assert round(row["eventTime"].timestamp() * 1000) == records[-1].event_time_ms


def test_waits_a_little_for_a_record(sqlite: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WAIT_S", 60)
    one = sqlite()
    timer = threading.Timer(0.05, lambda: sqlite.log.append([("k", b"x")]))
    timer.start()
    start = time.monotonic()
    assert one.latestOffset(one.initialOffset(), ReadMaxRows(3))["offset"] == 2
    assert time.monotonic() - start < 30
    timer.join()


def test_answers_in_bounded_time_when_nothing_comes(sqlite: Readers) -> None:
    one = sqlite()
    start = time.monotonic()
    initial = one.initialOffset()
    assert one.latestOffset(initial, ReadMaxRows(3)) == initial
    assert 0.09 < time.monotonic() - start < 5


def test_available_now_stops_at_what_was_there(sqlite: Readers) -> None:
    sqlite.log.append([("k", b"x")] * 5)
    one = sqlite(max_records=3)
    one.prepareForTriggerAvailableNow()
    sqlite.log.append([("k", b"x")] * 5)
    assert batches(one) == [[1, 2, 3], [4, 5]]


def test_can_be_sent_to_a_worker(sqlite: Readers) -> None:
    assert pickle.loads(pickle.dumps(sqlite())).getDefaultReadLimit() == ReadMaxRows(1000)


def test_records_deleted_behind_the_last_batch_fail(path: Path, sqlite: Readers) -> None:
    sqlite.log.append([("k", b"x")] * 5)
    one = sqlite()
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(2))
    delete(path, "offset <= 4")
    with pytest.raises(SetupError, match=r"lacks the records from offset 3 to 4"):
        one.latestOffset(end, ReadMaxRows(2))


@pytest.mark.parametrize(("where", "missing"), [("1", "1 to 5"), ("offset = 3", "3 to 3"), ("offset >= 4", "4 to 4")])
def test_records_deleted_from_a_planned_batch_fail(path: Path, sqlite: Readers, where: str, missing: str) -> None:
    sqlite.log.append([("k", b"x")] * 5)
    one = sqlite()
    initial = one.initialOffset()
    (partition,) = one.partitions(initial, one.latestOffset(initial, ReadMaxRows(10)))
    delete(path, where)
    if where == "1":
        with pytest.raises(SetupError, match=f"lacks the records from offset {missing}"):
            one.latestOffset(initial, ReadMaxRows(10))
    with pytest.raises(SetupError, match="lacks the records from offset"):
        list(one.read(partition))


def replace_log(path: Path, log: EventLog, records: int) -> None:
    log.close()
    for file in path.parent.glob("log.db*"):
        file.unlink()
    with contextlib.closing(SqliteLog(path)) as new:
        new.append([("k", b"other")] * records)


@pytest.mark.parametrize("records", [1, 5, 100])
def test_a_log_made_anew_fails_even_if_it_is_longer(path: Path, sqlite: Readers, records: int) -> None:
    """Both in a running query and in one that goes on from its checkpoint."""
    sqlite.log.append([("k", b"x")] * 5)
    running = sqlite()
    end = running.latestOffset(running.initialOffset(), ReadMaxRows(10))
    replace_log(path, sqlite.log, records)
    for one in (running, sqlite()):
        with pytest.raises(SetupError, match="deleted and created again"):
            one.latestOffset(end, ReadMaxRows(10))


def test_a_log_that_was_put_back_goes_on(path: Path, sqlite: Readers) -> None:
    sqlite.log.append([("k", b"x")] * 5)
    one = sqlite()
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(10))
    sqlite.log.append([("k", b"x")])
    sqlite.log.close()
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert one.latestOffset(end, ReadMaxRows(10))["offset"] == 7


def test_a_log_that_was_removed_fails(path: Path, sqlite: Readers) -> None:
    sqlite.log.append([("k", b"x")] * 5)
    one = sqlite()
    end: SourceOffset = one.latestOffset(one.initialOffset(), ReadMaxRows(10))
    sqlite.log.close()
    for file in path.parent.glob("log.db*"):
        file.unlink()
    with pytest.raises(SetupError, match=r"cannot read the event log .*log.db: there is no such file"):
        one.latestOffset(end, ReadMaxRows(10))
    with pytest.raises(UnavailableError, match=r"cannot read the event log .*log.db: there is no such file"):
        list(one.read(OffsetRange(1, 3, 0)))
