# SPDX-License-Identifier: Apache-2.0
"""The event log as a source of Spark. `test_source_reader.py` tests the source without Spark, over both logs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dev.peers.java import wait_until
from eventlog import EventLog, LogRecord
from eventlog.urls import parse_url
from pipelines.blocks import pack, unpack
from pipelines.source import SCHEMA, SourceSettings, read_stream
from schemas.errors import SetupError
from tests.eventlog.backends import Backend

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


class Sink:
    """What a query wrote, batch by batch."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: list[list[LogRecord]] = []
        self.times: list[datetime] = []

    def write(self, frame: DataFrame, batch_id: int) -> None:
        assert frame.schema == SCHEMA
        rows = frame.collect()
        self.times += [row["eventTime"] for row in rows]
        records = unpack(row["records"] for row in rows)
        self.batches.append([LogRecord(*record[:2], record.key or "", record.payload or b"") for record in records])

    def start(self, frame: DataFrame, *, available_now: bool = False) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(self.write).option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def drain(self, frame: DataFrame) -> None:
        """Read all there is now."""
        self.start(frame, available_now=True).awaitTermination()

    @property
    def records(self) -> list[LogRecord]:
        return [record for batch in self.batches for record in batch]


class DigestSink(Sink):
    """Digests of the blocks that a query wrote, which may be large."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(checkpoint)
        self.digests: list[str] = []

    def write(self, frame: DataFrame, batch_id: int) -> None:
        self.digests += [row[0] for row in frame.selectExpr("md5(records)").collect()]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "checkpoint")


@pytest.fixture
def log(stream_backend: Backend) -> EventLog:
    return stream_backend.open()


@pytest.fixture
def read(spark: SparkSession, stream_backend: Backend) -> Callable[..., DataFrame]:
    def make(start: int = 0, **bounds: Any) -> DataFrame:
        return read_stream(spark, SourceSettings(stream_backend.url, start, **bounds))

    return make


@contextlib.contextmanager
def running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def failure_of(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination(60)
    return str(failed.value)


def test_reads_what_the_log_holds(log: EventLog, sink: Sink, read: Callable[..., DataFrame]) -> None:
    log.append([("b:\N{SNOWMAN}\x00", b"\x00\xff"), ("", b""), ("*", os.urandom(200_000))])
    log.append([("kv", b"x" * size) for size in range(50)])
    sink.drain(read())
    assert sink.records == log.read(0)


def test_event_time_keeps_its_milliseconds(
    log: EventLog, sink: Sink, read: Callable[..., DataFrame], spark: SparkSession
) -> None:
    expected = [log.append([("k", b"x")])[0].event_time_ms for _ in range(5)]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    sink.drain(read(max_records=1))
    assert [record.event_time_ms for record in sink.records] == expected
    assert [round(time.replace(tzinfo=UTC).timestamp() * 1000) for time in sink.times] == expected
    assert all(time.microsecond % 1000 == 0 for time in sink.times)


def test_batches_keep_the_bound_on_records(log: EventLog, sink: Sink, read: Callable[..., DataFrame]) -> None:
    log.append([("k", str(index).encode()) for index in range(20)])
    sink.drain(read(max_records=8))
    assert [len(batch) for batch in sink.batches] == [8, 8, 4]
    assert sink.records == log.read(0)


def test_an_empty_log_is_waited_for(log: EventLog, sink: Sink, read: Callable[..., DataFrame]) -> None:
    with running(sink.start(read())) as query:
        wait_until(lambda: query.lastProgress is not None, 60, "a first look at the log")
        log.append([("k", b"1")])
        wait_until(lambda: bool(sink.records), 60, "the record")
    assert [record.payload for record in sink.records] == [b"1"]


def test_follows_a_log_that_grows_and_is_trimmed(log: EventLog, sink: Sink, read: Callable[..., DataFrame]) -> None:
    appended = 0

    def append() -> None:
        nonlocal appended
        for size in range(60):
            log.append([("k", str(appended + index).encode()) for index in range(size % 7 + 1)])
            appended += size % 7 + 1
            if sink.records:
                log.trim(sink.records[-1].offset, 2**60)

    with running(sink.start(read(max_records=10))) as query:
        thread = threading.Thread(target=append)
        thread.start()
        thread.join()
        wait_until(lambda: not query.isActive or len(sink.records) >= appended, 60, "all records")
        assert query.exception() is None
    assert [int(record.payload) for record in sink.records] == list(range(appended))
    offsets = [record.offset for record in sink.records]
    assert offsets == sorted(offsets)


def test_goes_on_from_its_checkpoint(log: EventLog, sink: Sink, read: Callable[..., DataFrame]) -> None:
    first = log.append([("k", str(index).encode()) for index in range(10)])
    sink.drain(read())
    log.trim(first[-1].offset, 2**60)
    log.append([("k", str(index).encode()) for index in range(10, 15)])
    sink.drain(read())  # the start offset does not count any more, though it has been trimmed
    assert [int(record.payload) for record in sink.records] == list(range(15))


def test_a_missing_log_is_made(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    sink.drain(read_stream(spark, SourceSettings(f"sqlite://{tmp_path}/new.db")))
    assert (tmp_path / "new.db").exists()
    assert sink.records == []


def test_a_log_that_spark_cannot_read_is_a_setup_error(spark: SparkSession) -> None:
    with pytest.raises(SetupError, match="not an event log"):
        read_stream(spark, SourceSettings("mysql://x"))


@pytest.mark.deep
@pytest.mark.parametrize("stream_backend", ["kafka"], indirect=True)
def test_null_keys_and_values_read_as_empty_ones(
    log: EventLog, sink: Sink, read: Callable[..., DataFrame], stream_backend: Backend
) -> None:
    (address,), topic, _ = parse_url(stream_backend.url)
    log.append([("k", b"")])
    with contextlib.closing(KafkaProducer(bootstrap_servers=address)) as foreign:
        for key, value in ((b"k", None), (None, b"v")):
            foreign.send(topic, key=key, value=value)
            foreign.flush()
    sink.drain(read())
    assert [record[2:] for record in sink.records] == [("k", b""), ("k", b""), ("", b"v")]


@pytest.mark.usefixtures("fast_crc")
def test_a_registration_of_64_mib_reaches_the_stream(
    log: EventLog, tmp_path: Path, read: Callable[..., DataFrame]
) -> None:
    payload = os.urandom(1 << 20) * 64
    log.append([("k", payload)])
    sink = DigestSink(tmp_path / "checkpoint")
    sink.drain(read())
    (block,) = pack(log.read(0), 0, 1)
    assert sink.digests == [hashlib.md5(block.data).hexdigest()]


def test_records_deleted_while_stopped_fail(log: EventLog, sink: Sink, read: Callable[..., DataFrame]) -> None:
    log.append([("k", b"x")] * 5)
    sink.drain(read())
    appended = log.append([("k", b"x")] * 5)
    log.trim(appended[3].offset, 2**60)
    message = failure_of(sink.start(read(), available_now=True))
    assert len(sink.records) == 5
    assert "lacks the records" in message or "data may have been lost" in message, message
