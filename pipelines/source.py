# SPDX-License-Identifier: Apache-2.0
"""The event log as a Spark stream: blocks of records (`pipelines.blocks`), in micro-batches of bounded size.

=========  =========  ================================================================
column     type       meaning
=========  =========  ================================================================
shard      int        grouping key of the shard of the records
eventTime  timestamp  time of receipt of the last record, to the millisecond
records    binary     packed records, in the order of their offsets
=========  =========  ================================================================

A Python data source reads the event log. One long-lived Python process determines the end of the next micro-batch, and
a Python worker packs the records of the batch into blocks. Spark's Kafka connector would read faster, but it only
limits the number of records. So the bytes of its batch have no limit, and decompression may multiply them by 1,000.

The fold limits its processor time: a batch that used much of it delays the next one (`Pace`). Only readers of the
tables notice the delay, and a read with ``wait_for`` ends it.

Heartbeats, unchanged registrations and CLOCK do not start a micro-batch. They wait for the next record that may change
the state, at most ten seconds after the start of the last batch.

If the event log is not the one of the checkpoint, or lacks records that the stream has not read, the query stops with a
message. An unnoticed gap could leave expired brokers in the tables for ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType, TimestampType

from eventlog.base import LogRecord
from eventlog.open import close_readers, open_log, open_tail, records_between
from eventlog.tail import BatchEnd, LogTail
from eventlog.urls import is_kafka
from pipelines.blocks import pack
from pipelines.gc_pause import spare_imports
from runtime.procfs import processor_s
from schemas.errors import UnavailableError
from schemas.events import DEFERRABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA: Final = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("eventTime", TimestampType()),
        StructField("records", BinaryType()),
    ]
)

MAX_RECORDS_PER_BATCH: Final = 20_000
MAX_BYTES_PER_BATCH: Final = 32 * 1024 * 1024
"""Of what the events cost (`eventlog.tail`): about a hundred registrations of 10,000 topics each."""

POLL_S: Final = 0.005
"""Seconds between checks for new records. One check takes 20 microseconds."""

WAIT_S: Final = 1.0
"""Seconds until the source answers Spark that there is no batch. Spark asks again at once, which takes some
milliseconds of processor time."""

_SETTINGS: Final = "settings"
"""Name of the one option, JSON."""

PACE_POLL_S: Final = 0.05
"""Seconds between checks of the hasten file, while a batch is not due."""

_ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("eventTime", pa.timestamp("us", tz="UTC")),
        pa.field("records", pa.binary()),
    ]
)


class PaceSettings(msgspec.Struct, frozen=True):
    """Limits for the start of micro-batches.

    Attributes:
        cores: Cores that batches may use on average. 0: no limit.
        burst_s: Processor seconds that batches may use without a delay after a quiet time.
        least_s: Minimum seconds from the start of one batch to the start of the next one.
        most_s: Maximum of that time, if there are events to process.
        deferred_s: Minimum of that time if all events are deferrable, such as heartbeats and CLOCK.
        pid: Process with the processor time to limit. Its child processes count, too.
        hasten_file: File that a reader touches if it waits for the next batch. Empty: no file.
    """

    cores: float = 0.0
    burst_s: float = 2.0
    least_s: float = 0.0
    most_s: float = 10.0
    deferred_s: float = 0.0
    pid: int = 0
    hasten_file: str = ""


NO_PACE: Final = PaceSettings()


class Pace:
    """A token bucket in which the processor time of batches delays the next batch.

    The first batch is not counted, because most of its cost is the start of Spark.

    Args:
        settings: Limits.
        clock: Monotonic clock, in seconds.
        spent_s: Function that returns the processor seconds used so far by a process and its child processes.
    """

    def __init__(
        self,
        settings: PaceSettings,
        clock: Callable[[], float] = time.monotonic,
        spent_s: Callable[[int], float] = processor_s,
    ) -> None:
        self._settings, self._clock, self._spent_s = settings, clock, spent_s
        self._began_s: float | None = None
        """Start of the last batch, or None before the first."""
        self._left_s = self._spent_before_s = 0.0
        """At the start of the last batch: tokens, and processor seconds used so far."""
        self._cost_s: float | None = 0.0
        """Processor seconds of the last batch, or None while it runs."""
        self._hastened_ns = self._asked_ns()

    def begins(self) -> None:
        """Note that a batch starts now."""
        settings, now_s = self._settings, self._clock()
        self._hastened_ns = self._asked_ns()
        if settings.cores:
            is_first = self._began_s is None
            self._left_s = settings.burst_s if is_first else min(settings.burst_s, max(0.0, self._tokens_s(now_s)))
            self._spent_before_s = self._spent_s(settings.pid)
            self._cost_s = 0.0 if is_first else None
        self._began_s = now_s

    def due_s(self) -> float:
        """Time of the clock at which the next batch may start. Call this after the end of the last batch."""
        settings = self._settings
        if self._began_s is None:
            return self._clock()
        wait_s = settings.least_s
        if settings.cores:
            missing_s = -self._tokens_s(self._began_s)
            wait_s = max(wait_s, missing_s / settings.cores)
        return self._began_s + wait_s

    def is_hastened(self) -> bool:
        """Return True if a reader has asked for a batch since the start of the last one, and `least_s` has passed."""
        began_s = self._began_s
        return self._asked_ns() > self._hastened_ns and (
            began_s is None or self._clock() >= began_s + self._settings.least_s
        )

    def defers(self) -> bool:
        """Return True if deferrable events alone start no batch now. The first batch waits for nothing."""
        began_s = self._began_s
        return began_s is not None and self._clock() < began_s + self._settings.deferred_s and not self.is_hastened()

    def _tokens_s(self, now_s: float) -> float:
        """Processor seconds that batches may use at a time. Below 0: they used too many."""
        if self._cost_s is None:
            self._cost_s = self._spent_s(self._settings.pid) - self._spent_before_s
        cores = self._settings.cores
        left_s = max(self._left_s - self._cost_s, -cores * self._settings.most_s)  # after most_s, the debt is repaid
        return left_s + cores * (now_s - (self._began_s or now_s))

    def _asked_ns(self) -> int:
        try:
            return Path(self._settings.hasten_file).stat().st_mtime_ns if self._settings.hasten_file else 0
        except OSError:
            return 0


class SourceSettings(msgspec.Struct, frozen=True):
    """Event log of a stream, its beginning and the bounds of its micro-batches.

    Attributes:
        url: URL of the event log, as for `open_log`.
        start_offset: Offset of the first record to read, in a query without a checkpoint. 0 reads the whole event log.
        start_time_ms: The greatest event time before the first record, ms since 1970.
        shards: Number of shards among which the records are divided.
        max_records: Maximum number of records in a micro-batch.
        max_bytes: Maximum cost of the records in a micro-batch (`eventlog.tail`). A larger record is in its own batch.
        pace: Limits for the start of micro-batches.
    """

    url: str
    start_offset: int = 0
    start_time_ms: int = 0
    shards: int = 1
    max_records: int = MAX_RECORDS_PER_BATCH
    max_bytes: int = MAX_BYTES_PER_BATCH
    pace: PaceSettings = NO_PACE


def read_stream(spark: SparkSession, settings: SourceSettings) -> DataFrame:
    """An event log as a streaming DataFrame with the columns of `SCHEMA`. A missing event log is created.

    The Python workers must be able to import `pipelines` (PYTHONPATH).

    Raises:
        SetupError: the event log cannot be used. The message says what to do.
        UnavailableError: the event log cannot be reached.
    """
    # Creates the event log if it is missing. An error here is readable, while Spark would wrap it.
    open_log(settings.url).close()
    spark.dataSource.register(LogSource)
    return spark.readStream.format(LogSource.name()).options(**options_of(settings)).load()


def options_of(settings: SourceSettings) -> dict[str, str]:
    """Options of `LogSource`, from settings."""
    return {_SETTINGS: msgspec.json.encode(settings).decode()}


SourceOffset = dict[str, Any]
"""Position that Spark stores in the checkpoint: ``offset`` of the next record to read, ``timeMs``, the greatest event
time before it, and ``log``, the id of the event log."""


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Records from ``start`` up to, not including, ``end``. ``time_ms`` is the greatest event time before them."""

    start: int
    end: int
    time_ms: int


class LogSource(DataSource):
    """The event log as a Spark data source. `options_of` makes its options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.settings = msgspec.json.decode(options[_SETTINGS], type=SourceSettings)

    def schema(self) -> StructType:
        """Return `SCHEMA`."""
        return SCHEMA

    @classmethod
    def name(cls) -> str:
        """Name of the format in Spark."""
        return "routelake-log"

    def streamReader(self, schema: StructType) -> LogStreamReader:
        """Called by Spark, in the planning process and in each worker."""
        return LogStreamReader(self.settings)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches (in one process per query) and reads them (in Python workers)."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        # Opened by the planning process alone: this object is pickled for the workers before that.
        self._tail: LogTail | None = None
        self._stop_at: int | None = None
        self._pace = Pace(settings.pace)

    def initialOffset(self) -> SourceOffset:
        """Return the first offset of a query without a checkpoint."""
        tail = self._open()
        start = max(self._settings.start_offset, tail.first_offset)
        tail.check_readable_from(start)
        return {"offset": start, "timeMs": self._settings.start_time_ms, "log": tail.log_id}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit on records. The limit on bytes applies as well."""
        return ReadMaxRows(self._settings.max_records)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the present records."""
        self._stop_at = self._open().next_offset()

    def latestOffset(self, start: SourceOffset, limit: ReadLimit) -> SourceOffset:
        """The end of the next micro-batch, after a short wait if there is no new record.

        While Kafka cannot be reached, there is no new record.
        """
        try:
            return self._latest_offset(self._open(), start, limit)
        except UnavailableError as error:
            if not is_kafka(self._settings.url):
                raise
            print(f"{error}; trying again", file=sys.stderr, flush=True)
            self._close()
            time.sleep(WAIT_S)
            return start

    def _latest_offset(self, tail: LogTail, start: SourceOffset, limit: ReadLimit) -> SourceOffset:
        tail.check_identity(start.get("log"))
        deadline = time.monotonic() + (WAIT_S if self._stop_at is None else 0)
        pace = self._pace
        due_s = pace.due_s() if self._stop_at is None else 0.0
        tail.check_readable_from(start["offset"])
        while True:
            is_due = time.monotonic() >= due_s or pace.is_hastened()
            end = self._batch_end(tail, BatchEnd(start["offset"], start["timeMs"]), limit, only_full=not is_due)
            if end.offset > start["offset"]:
                pace.begins()
            elif not is_due and time.monotonic() < deadline:
                time.sleep(PACE_POLL_S)
                tail.check_readable_from(start["offset"])  # and learn where the event log ends now
                continue
            elif tail.wait_for_change(deadline, POLL_S):  # for each append, so it asks Kafka nothing more
                continue
            return {"offset": end.offset, "timeMs": end.time_ms, "log": tail.log_id}

    def partitions(self, start: SourceOffset, end: SourceOffset) -> Sequence[OffsetRange]:
        """Return one partition, as a batch is small and its blocks are shuffled by shard anyway."""
        if start["offset"] >= end["offset"]:
            return []
        return [OffsetRange(start["offset"], end["offset"], start["timeMs"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the blocks of a partition as Arrow. Runs in a worker."""
        assert isinstance(partition, OffsetRange)
        time_ms = partition.time_ms
        for records in records_between(self._settings.url, partition.start, partition.end):
            yield _to_arrow(records, time_ms, self._settings.shards)
            time_ms = max(time_ms, *(record.event_time_ms for record in records))
        spare_imports()

    def stop(self) -> None:
        """Called when the query ends."""
        self._close()
        close_readers(self._settings.url)

    def _open(self) -> LogTail:
        if self._tail is None:
            self._tail = open_tail(self._settings.url)
        return self._tail

    def _close(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _batch_end(self, tail: LogTail, start: BatchEnd, limit: ReadLimit, *, only_full: bool) -> BatchEnd:
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else self._settings.max_records
        deferrable = DEFERRABLE if self._stop_at is None and self._pace.defers() else b""
        max_bytes = self._settings.max_bytes
        return tail.bounded_end(start, max_records, max_bytes, deferrable, self._stop_at, only_full=only_full)


def _to_arrow(records: Sequence[LogRecord], time_ms: int, shards: int) -> pa.RecordBatch:
    shard_column, times_ms, data = zip(*pack(records, time_ms, shards), strict=True)
    times_us = [time_ms * 1000 for time_ms in times_ms]
    columns = zip((shard_column, times_us, data), _ARROW_SCHEMA.types, strict=True)
    return pa.record_batch([pa.array(values, kind) for values, kind in columns], schema=_ARROW_SCHEMA)
