# SPDX-License-Identifier: Apache-2.0
"""The event log as a Spark stream: rows in log order, in micro-batches of bounded size.

=========  =========  =============================================================
column     type       meaning
=========  =========  =============================================================
offset     long       place in the log
eventTime  timestamp  time of receipt, to the millisecond
key        string     routing key; null only in a record that routelake did not write
payload    binary     the event; null likewise
=========  =========  =============================================================

The log is read by a Python data source: one long-lived Python process finds out where the next micro-batch ends, and a
Python worker turns the batch's rows into Arrow. Spark's Kafka connector would read faster, but counts records alone: a
batch of it has no bound in bytes, and these may inflate a thousandfold.

Heartbeats, and registrations that repeat the last one, are not worth a micro-batch of their own: they wait for the next
record that may change something, which the next CLOCK is at the latest.

A log that is not the one the stream began with, or that lacks records the stream has not read, stops the query with a
message: a gap that nobody sees would leave brokers in the tables for ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from pipelines.collector import spare_imports
from pipelines.log.base import LogRecord
from pipelines.log.open import open_log
from pipelines.log.sqlite import connect_reader, read_records, sqlite_errors
from pipelines.log.tail import SqliteTail, missing_records
from pipelines.log.urls import parse_url, sqlite_path
from schemas.errors import SetupError, UnavailableError
from schemas.events import PATIENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipelines.log.kafka_tail import KafkaRecords

SCHEMA: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("eventTime", TimestampType()),
        StructField("key", StringType()),
        StructField("payload", BinaryType()),
    ]
)

MAX_RECORDS_PER_BATCH: Final = 20_000
MAX_BYTES_PER_BATCH: Final = 32 * 1024 * 1024

POLL_S: Final = 0.005
"""How often a waiting stream looks for new records: 20 microseconds each time."""

WAIT_S: Final = 0.1
"""How long the SQLite source waits for a record before it tells Spark that there is none. Spark asks again at once."""

_ARROW_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("offset", pa.int64()),
    pa.field("eventTime", pa.timestamp("us", tz="UTC")),
    pa.field("key", pa.string()),
    pa.field("payload", pa.binary()),
]
_ARROW_SCHEMA: Final = pa.schema(_ARROW_FIELDS)
# One Arrow batch in the Python worker, and in the JVM.
_ARROW_RECORDS: Final = 10_000
_ARROW_BYTES: Final = 8 * 1024 * 1024


def read_stream(
    spark: SparkSession,
    url: str,
    start_offset: int,
    max_records_per_batch: int = MAX_RECORDS_PER_BATCH,
    max_bytes_per_batch: int = MAX_BYTES_PER_BATCH,
) -> DataFrame:
    """The log at ``url`` as a streaming DataFrame with the columns of `SCHEMA`.

    A query that has a checkpoint goes on from there; ``start_offset`` then says nothing. The Python workers must be
    able to import `pipelines` (PYTHONPATH).

    Args:
        spark: a session.
        url: as for `open_log`; ``memory:`` cannot be read by Spark. A missing log is made.
        start_offset: the first record to read; 0 for the whole log.
        max_records_per_batch: bound on the records of a micro-batch.
        max_bytes_per_batch: bound on what the records of a micro-batch cost (`pipelines.log.cost`), though a larger
            one comes alone.

    Raises:
        SetupError: the log cannot be used; the message says what to do.
        UnavailableError: the log cannot be reached.
    """
    if url == "memory:":
        raise SetupError("Spark cannot read a memory: log. Use sqlite:// or kafka://.")
    # Makes the log if need be, and gives the operator a readable error before Spark wraps it.
    open_log(url).close()
    source = KafkaLogSource if url.startswith("kafka:") else SqliteLogSource
    spark.dataSource.register(source)
    return (
        spark.readStream.format(source.name())
        .option("path", url if source is KafkaLogSource else str(sqlite_path(url)))
        .option("startOffset", start_offset)
        .option("maxRecordsPerBatch", max_records_per_batch)
        .option("maxBytesPerBatch", max_bytes_per_batch)
        .load()
    )


SourceOffset = dict[str, Any]
"""What Spark keeps in the checkpoint: ``offset``, the next record to read, and ``log``, the id of the log it is in."""


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Records from ``start`` up to, not including, ``end``."""

    start: int
    end: int


class Tail(Protocol):
    """What the planning process needs of a log; see `SqliteTail`."""

    log_id: str

    def check_identity(self, log_id: str | None) -> None:
        """See `SqliteTail`."""

    def check_readable_from(self, start_offset: int) -> None:
        """See `SqliteTail`."""

    def next_offset(self) -> int:
        """See `SqliteTail`."""

    def bounded_end(self, start_offset: int, max_records: int, max_bytes: int, patient: bytes = b"") -> int:
        """See `SqliteTail`."""

    def wait_for_change(self, deadline: float, poll_s: float) -> bool:
        """See `SqliteTail`."""

    def close(self) -> None:
        """See `SqliteTail`."""


class LogSource(DataSource):
    """The event log as a Spark data source; `read_stream` sets its options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.path = options["path"]
        self.start_offset = int(options["startOffset"])
        self.max_records = int(options["maxRecordsPerBatch"])
        self.max_bytes = int(options["maxBytesPerBatch"])

    def schema(self) -> StructType:
        """See `SCHEMA`."""
        return SCHEMA


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches (in one process for the query's life) and reads them (in Python workers)."""

    first_offset: ClassVar[int]
    """Of a new log."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        # Opened by the planning process alone: this object is pickled for the workers before that.
        self._tail: Tail | None = None
        self._stop_at: int | None = None

    def open_tail(self) -> Tail:
        """Open the log, in the planning process."""
        raise NotImplementedError

    def records(self, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
        """The records of a range, in a worker, in pieces of bounded size."""
        raise NotImplementedError

    def initialOffset(self) -> SourceOffset:
        """Where a query without a checkpoint begins."""
        tail = self._open()
        start = max(self._source.start_offset, self.first_offset)
        tail.check_readable_from(start)
        return {"offset": start, "log": tail.log_id}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The bound on records; the one on bytes goes with it."""
        return ReadMaxRows(self._source.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to what is there now and no further."""
        self._stop_at = self._open().next_offset()

    def latestOffset(self, start: SourceOffset, limit: ReadLimit) -> SourceOffset:
        """The end of the next micro-batch, after a short wait if there is nothing new."""
        tail = self._open()
        tail.check_identity(start.get("log"))
        deadline = time.monotonic() + (WAIT_S if self._stop_at is None else 0)
        while True:
            tail.check_readable_from(start["offset"])
            end = self._batch_end(tail, start["offset"], limit)
            if end > start["offset"] or not tail.wait_for_change(deadline, POLL_S):
                return {"offset": end, "log": tail.log_id}

    def partitions(self, start: SourceOffset, end: SourceOffset) -> Sequence[OffsetRange]:
        """One: a batch is small, and its rows are shuffled by key anyway."""
        if start["offset"] >= end["offset"]:
            return []
        return [OffsetRange(start["offset"], end["offset"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a partition, as Arrow. Runs in a worker."""
        assert isinstance(partition, OffsetRange)
        for records in self.records(partition.start, partition.end):
            yield _to_arrow(records)
        spare_imports()

    def stop(self) -> None:
        """Called when the query ends."""
        if self._tail is not None:
            self._tail.close()

    def _open(self) -> Tail:
        if self._tail is None:
            self._tail = self.open_tail()
        return self._tail

    def _batch_end(self, tail: Tail, start: int, limit: ReadLimit) -> int:
        if isinstance(limit, ReadAllAvailable):
            end = tail.next_offset()
        else:
            max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else self._source.max_records
            patient = PATIENT if self._stop_at is None else b""
            end = tail.bounded_end(start, max_records, self._source.max_bytes, patient)
        return end if self._stop_at is None else max(start, min(end, self._stop_at))


class SqliteLogSource(LogSource):
    """The SQLite log; ``path`` is the file."""

    @classmethod
    def name(cls) -> str:
        """The format's name in Spark."""
        return "routelake-sqlite-log"

    def streamReader(self, schema: StructType) -> SqliteLogStreamReader:
        """Called by Spark, in the planning process and in each worker."""
        return SqliteLogStreamReader(self)


class SqliteLogStreamReader(LogStreamReader):
    """Reads the file."""

    first_offset = 1

    def open_tail(self) -> Tail:
        """See `LogStreamReader`."""
        return SqliteTail(Path(self._source.path))

    def records(self, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
        """See `LogStreamReader`."""
        path = Path(self._source.path)
        with sqlite_errors(path, "read"), closing(connect_reader(path)) as reader:
            while start < end:
                records = read_records(reader, start, min(_ARROW_RECORDS, end - start), _ARROW_BYTES)
                _check_gapless(path, start, records)
                yield records
                start = records[-1].offset + 1


class KafkaLogSource(LogSource):
    """The Kafka log; ``path`` is its URL."""

    @classmethod
    def name(cls) -> str:
        """The format's name in Spark."""
        return "routelake-kafka-log"

    def streamReader(self, schema: StructType) -> KafkaLogStreamReader:
        """Called by Spark, in the planning process and in each worker."""
        return KafkaLogStreamReader(self)


_kafka_records: dict[str, KafkaRecords] = {}
"""Of a worker, which outlives its tasks: the next one goes on where this one ended."""


class KafkaLogStreamReader(LogStreamReader):
    """Reads the topic."""

    first_offset = 0

    def open_tail(self) -> Tail:
        """See `LogStreamReader`."""
        # Not needed, hence not loaded, where SQLite is the log.
        from pipelines.log.kafka_tail import KafkaTail

        return KafkaTail(*parse_url(self._source.path))

    def latestOffset(self, start: SourceOffset, limit: ReadLimit) -> SourceOffset:
        """See `LogStreamReader`. While Kafka cannot be reached there is nothing new."""
        try:
            return super().latestOffset(start, limit)
        except UnavailableError as error:
            print(f"{error}; trying again", file=sys.stderr, flush=True)
            super().stop()
            self._tail = None
            time.sleep(WAIT_S)
            return start

    def stop(self) -> None:
        """See `LogStreamReader`."""
        super().stop()
        if (known := _kafka_records.pop(self._source.path, None)) is not None:
            known.close()

    def records(self, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
        """See `LogStreamReader`."""
        from pipelines.log.kafka_tail import KafkaRecords

        url = self._source.path
        known = _kafka_records.pop(url, None) or KafkaRecords(*parse_url(url))
        try:
            yield from known.between(start, end)
        except BaseException:
            known.close()
            raise
        _kafka_records[url] = known


def _check_gapless(path: Path, start: int, records: Sequence[LogRecord]) -> None:
    """A SQLite log has no gaps, so one means that records were deleted that this stream had not read."""
    if not records:
        raise missing_records(path, start, start + 1)
    for expected, record in enumerate(records, start):
        if record.offset != expected:
            raise missing_records(path, expected, record.offset)


def _to_arrow(records: Sequence[LogRecord]) -> pa.RecordBatch:
    offsets, times_ms, keys, payloads = zip(*records, strict=True)
    return pa.record_batch(
        [
            pa.array(offsets, pa.int64()),
            pa.array([time_ms * 1000 for time_ms in times_ms], pa.timestamp("us", tz="UTC")),
            pa.array(keys, pa.string()),
            pa.array(payloads, pa.binary()),
        ],
        schema=_ARROW_SCHEMA,
    )
