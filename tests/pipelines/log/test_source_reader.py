# SPDX-License-Identifier: Apache-2.0
"""The SQLite source without Spark: where batches end, how it waits, and what it refuses."""

from __future__ import annotations

import contextlib
import pickle
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pipelines.log import source
from pipelines.log.source import OffsetRange, SourceOffset, SqliteLogSource, SqliteLogStreamReader
from pipelines.log.sqlite import SqliteLog
from schemas.errors import SetupError, UnavailableError
from schemas.events import PATIENT, URGENT

MakeReader = Callable[..., SqliteLogStreamReader]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> SqliteLog:
    return SqliteLog(path)


@pytest.fixture
def reader(path: Path, log: SqliteLog) -> MakeReader:
    def make(start: int = 0, max_records: int = 1000, max_bytes: int = 10**9) -> SqliteLogStreamReader:
        options = {
            "path": str(path),
            "startOffset": str(start),
            "maxRecordsPerBatch": str(max_records),
            "maxBytesPerBatch": str(max_bytes),
        }
        data_source = SqliteLogSource(options)
        return data_source.streamReader(data_source.schema())

    return make


def batches(reader: SqliteLogStreamReader) -> list[list[int]]:
    """Offsets of each batch until there is nothing more, as Spark would ask for them."""
    limit = reader.getDefaultReadLimit()
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        (partition,) = reader.partitions(start, end)
        found.append([row["offset"] for batch in reader.read(partition) for row in batch.to_pylist()])
        start = end
    assert list(reader.partitions(start, start)) == []
    return found


def delete(path: Path, where: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        plain.execute(f"DELETE FROM event WHERE {where}")


def test_batches_keep_the_bound_on_records(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 10)
    assert batches(reader(max_records=4)) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_batches_keep_the_bound_on_bytes_but_a_large_record_comes_alone(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", bytes(size)) for size in (10, 10, 10, 100, 1, 29, 1)])
    assert batches(reader(max_bytes=30)) == [[1, 2, 3], [4], [5, 6], [7]]


def test_what_can_wait_goes_with_the_next_that_cannot(log: SqliteLog, reader: MakeReader) -> None:
    beat, change = ("b:b", PATIENT + b"x"), ("b:b", URGENT + b"x")
    one = reader()
    start, limit = one.initialOffset(), one.getDefaultReadLimit()
    for _ in range(3):
        log.append([beat] * 2)
        assert one.latestOffset(start, limit) == start
    log.append([beat, change, beat])
    taken = one.latestOffset(start, limit)
    assert taken["offset"] == 10
    log.append([beat])
    assert one.latestOffset(taken, limit) == taken
    assert one.latestOffset(start, limit)["offset"] == 11, "asked again for an older batch, as after a restart"
    log.append([change])
    assert one.latestOffset(taken, limit)["offset"] == 12


def test_what_can_wait_does_not_wait_for_ever(log: SqliteLog, reader: MakeReader) -> None:
    """A batch that is full is taken, and so is all there is when nothing more is to come."""
    log.append([("b:b", PATIENT + bytes(9))] * 10)
    assert batches(reader(max_records=4)) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert batches(reader(max_bytes=45)) == [[1, 2, 3, 4], [5, 6, 7, 8]]
    last = reader()
    last.prepareForTriggerAvailableNow()
    assert batches(last) == [list(range(1, 11))]
    everything = reader()
    assert everything.latestOffset(everything.initialOffset(), ReadAllAvailable())["offset"] == 11


def test_a_batch_of_everything_ignores_the_bounds(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 10)
    one = reader(max_records=4, max_bytes=1)
    assert one.latestOffset(one.initialOffset(), ReadAllAvailable())["offset"] == 11


def test_a_backlog_is_read_in_arrow_batches_of_bounded_size(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", bytes(1000 * 1000))] * 20)
    sizes = [batch.num_rows for batch in reader().read(OffsetRange(1, 21))]
    assert sizes == [8, 8, 4]


def test_rows_are_what_the_log_holds(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("b:\N{SNOWMAN}", b"\x00\xff"), ("", b"")])
    (batch,) = reader().read(OffsetRange(1, 3))
    records = log.read(0)
    rows = batch.to_pylist()
    assert [(row["offset"], row["key"], row["payload"]) for row in rows] == [
        (1, "b:\N{SNOWMAN}", b"\x00\xff"),
        (2, "", b""),
    ]
    assert [round(row["eventTime"].timestamp() * 1000) for row in rows] == [record.event_time_ms for record in records]


def test_starts_at_the_given_offset(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    assert batches(reader(start=4)) == [[4, 5]]
    assert batches(reader(start=6)) == []


def test_what_was_read_may_be_trimmed(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    one = reader()
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(3))
    log.trim(4, 2**60)
    assert one.latestOffset(end, ReadMaxRows(3))["offset"] == 6
    assert batches(reader(start=4)) == [[4, 5]]


def test_waits_a_little_for_a_record(log: SqliteLog, reader: MakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WAIT_S", 60)
    one = reader()
    timer = threading.Timer(0.05, lambda: log.append([("k", b"x")]))
    timer.start()
    start = time.monotonic()
    assert one.latestOffset(one.initialOffset(), ReadMaxRows(3))["offset"] == 2
    assert time.monotonic() - start < 30
    timer.join()


def test_answers_in_bounded_time_when_nothing_comes(reader: MakeReader) -> None:
    one = reader()
    start = time.monotonic()
    initial = one.initialOffset()
    assert one.latestOffset(initial, ReadMaxRows(3)) == initial
    assert 0.09 < time.monotonic() - start < 5


def test_available_now_stops_at_what_was_there(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    one = reader(max_records=3)
    one.prepareForTriggerAvailableNow()
    log.append([("k", b"x")] * 5)
    assert batches(one) == [[1, 2, 3], [4, 5]]


def test_can_be_sent_to_a_worker(reader: MakeReader) -> None:
    one = reader()
    assert pickle.loads(pickle.dumps(one)).getDefaultReadLimit() == ReadMaxRows(1000)


def test_a_start_beyond_the_end_fails(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    with pytest.raises(SetupError, match=r"ends before offset 6, but this stream goes on at 7"):
        reader(start=7).initialOffset()


def test_a_log_that_was_trimmed_too_far_fails(log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    log.trim(4, 2**60)
    with pytest.raises(SetupError, match=r"lacks the records from offset 2 to 3"):
        reader(start=2).initialOffset()
    with pytest.raises(SetupError, match=r"lacks the records from offset 1 to 3"):
        reader(start=0).initialOffset()


def test_records_deleted_behind_the_last_batch_fail(path: Path, log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    one = reader()
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(2))
    delete(path, "offset <= 4")
    with pytest.raises(SetupError, match=r"lacks the records from offset 3 to 4"):
        one.latestOffset(end, ReadMaxRows(2))


@pytest.mark.parametrize(("where", "missing"), [("1", "1 to 5"), ("offset = 3", "3 to 3"), ("offset >= 4", "4 to 4")])
def test_records_deleted_from_a_planned_batch_fail(
    path: Path, log: SqliteLog, reader: MakeReader, where: str, missing: str
) -> None:
    log.append([("k", b"x")] * 5)
    one = reader()
    initial = one.initialOffset()
    (partition,) = one.partitions(initial, one.latestOffset(initial, ReadMaxRows(10)))
    delete(path, where)
    if where == "1":
        with pytest.raises(SetupError, match=f"lacks the records from offset {missing}"):
            one.latestOffset(initial, ReadMaxRows(10))
    with pytest.raises(SetupError, match="lacks the records from offset"):
        list(one.read(partition))


def replace_log(path: Path, log: SqliteLog, records: int) -> None:
    log.close()
    for file in path.parent.glob("log.db*"):
        file.unlink()
    with contextlib.closing(SqliteLog(path)) as new:
        new.append([("k", b"other")] * records)


@pytest.mark.parametrize("records", [1, 5, 100])
def test_a_log_made_anew_fails_even_if_it_is_longer(
    path: Path, log: SqliteLog, reader: MakeReader, records: int
) -> None:
    """Both in a running query and in one that goes on from its checkpoint."""
    log.append([("k", b"x")] * 5)
    running = reader()
    end = running.latestOffset(running.initialOffset(), ReadMaxRows(10))
    replace_log(path, log, records)
    for one in (running, reader()):
        with pytest.raises(SetupError, match="made anew"):
            one.latestOffset(end, ReadMaxRows(10))


def test_a_log_that_was_put_back_goes_on(path: Path, log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    one = reader()
    end = one.latestOffset(one.initialOffset(), ReadMaxRows(10))
    log.append([("k", b"x")])
    log.close()
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    assert one.latestOffset(end, ReadMaxRows(10))["offset"] == 7


def test_a_log_that_was_removed_fails(path: Path, log: SqliteLog, reader: MakeReader) -> None:
    log.append([("k", b"x")] * 5)
    one = reader()
    end: SourceOffset = one.latestOffset(one.initialOffset(), ReadMaxRows(10))
    log.close()
    for file in path.parent.glob("log.db*"):
        file.unlink()
    with pytest.raises(SetupError, match=r"cannot read the event log .*log.db: there is no such file"):
        one.latestOffset(end, ReadMaxRows(10))
    with pytest.raises(UnavailableError, match=r"cannot read the event log .*log.db: there is no such file"):
        list(one.read(OffsetRange(1, 3)))
