# SPDX-License-Identifier: Apache-2.0
"""Reader of an event log in Kafka, for gateways, the fold, audits and copies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, MetadataEmptyBrokerList, NoOffsetForPartitionError, OffsetOutOfRangeError

from eventlog.base import DEFAULT_READ_BYTES, DEFAULT_READ_RECORDS, LogRecord
from eventlog.kafka.access.settings import AccessError
from eventlog.kafka.client import close_consumer, log_consumer
from eventlog.kafka.topic import AGAIN_S
from eventlog.tail import missing_records
from eventlog.urls import first_offset
from schemas.errors import UnavailableError

ANSWER_S: Final = 60.0
"""Maximum time that a request may stay unanswered, in seconds. It is long, because a fold that gives up is restarted,
which takes longer."""

_NEW_TOPIC_S: Final = 3.0
"""Maximum time until all brokers know a new topic, in seconds."""

POLL_RECORDS: Final = 5_000


class KafkaReader:
    """A `LogReader` of the only partition of an existing log. It reads on from its position, or seeks. For one thread.

    Args:
        bootstrap: ``host:port`` of some brokers.
        topic: Name of the topic.
        config: File of Kafka client properties. Empty: no TLS and no authentication.
        answer_s: Maximum time that a request may stay unanswered, in seconds.

    Raises:
        UnavailableError: No broker answers, no broker gives access, or the topic does not exist.
    """

    def __init__(self, bootstrap: Sequence[str], topic: str, config: str = "", answer_s: float = ANSWER_S) -> None:
        self.name = f"kafka://{','.join(bootstrap)}/{topic}"
        self._partition = TopicPartition(topic, 0)
        self.first = first_offset(topic)
        self.answer_s = answer_s
        self._bootstrap, self._topic, self._config = bootstrap, topic, config
        self._at = -1
        self._consumer: KafkaConsumer | None = None
        self._closed = False
        with self._asking():
            pass

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """See `LogReader.read`."""
        end = self._end()
        if start_offset >= end:  # the usual case, as a gateway asks many times a second
            return []
        return self.fetch(self.kept_from(start_offset), end, max_records, max_bytes)

    def kept_from(self, offset: int) -> int:
        """See `LogReader.kept_from`."""
        return max(offset, self._begin())

    def fetch(self, start: int, end: int, max_records: int, max_bytes: int) -> list[LogRecord]:
        """Return records between two offsets of the log, within the bounds of `read`.

        Raises:
            SetupError: The record at ``start`` was deleted.
            UnavailableError: Kafka does not answer.
        """
        records: list[LogRecord] = []
        if start >= end:
            return records
        self.go_to(start)
        deadline = time.monotonic() + self.answer_s
        total_bytes = 0
        while self._at < end and len(records) < max_records:
            if time.monotonic() > deadline:
                raise self._no_answer()
            for record in self.poll(1000, max_records - len(records)):
                total_bytes += len(record.payload)
                if record.offset >= end or (records and total_bytes > max_bytes):
                    self.go_to(record.offset)
                    return records
                records.append(record)
        return records

    def first_since(self, time_ms: int) -> int | None:
        """Return the offset of the first record with this time or a later one, or None without such a record.

        Raises:
            UnavailableError: Kafka does not answer.
        """
        with self._asking() as consumer:
            found = consumer.offsets_for_times({self._partition: time_ms})[self._partition]
            return None if found is None else self.first + found.offset

    def bounds(self) -> tuple[int, int]:
        """The oldest offset, and the one after the last.

        Raises:
            UnavailableError: Kafka does not answer.
        """
        return self._begin(), self._end()

    def go_to(self, offset: int) -> None:
        """Set the next offset to read."""
        if self._at != offset:
            with self._asking() as consumer:
                consumer.seek(self._partition, offset - self.first)
            self._at = offset

    @property
    def at(self) -> int:
        """The next offset to read."""
        return self._at

    def poll(self, timeout_ms: int, max_records: int) -> list[LogRecord]:
        """Return the next records. Wait for them if needed.

        The list may be empty although the position moved, because Kafka's own entries have offsets too.

        Raises:
            SetupError: The record at `at` was deleted.
            UnavailableError: Kafka does not answer.
        """
        with self._asking() as consumer:
            polled = consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
            if at := consumer.position(self._partition, timeout_ms=timeout_ms):
                self._at = self.first + at
            return [record_of(message, self.first) for message in polled.get(self._partition, ())]

    def between(self, start: int, end: int) -> Iterator[list[LogRecord]]:
        """Yield the records from ``start`` up to, not including, ``end``.

        Raises:
            SetupError: Some of the records were deleted.
            UnavailableError: Kafka does not answer.
        """
        self.go_to(start)
        deadline = time.monotonic() + self.answer_s
        while self._at < end:
            records = [record for record in self.poll(1000, min(POLL_RECORDS, end - self._at)) if record.offset < end]
            if records:
                deadline = time.monotonic() + self.answer_s
                yield records
            elif time.monotonic() > deadline:
                raise self._no_answer()

    def close(self) -> None:
        """See `LogReader.close`."""
        self._closed = True
        self._drop()

    def _begin(self) -> int:
        with self._asking() as consumer:
            found = consumer.beginning_offsets([self._partition], timeout_ms=int(self.answer_s * 1000))
            return self.first + int(found[self._partition])

    def _end(self) -> int:
        with self._asking() as consumer:
            found = consumer.end_offsets([self._partition], timeout_ms=int(self.answer_s * 1000))
            return self.first + int(found[self._partition])

    def _no_answer(self) -> UnavailableError:
        return UnavailableError(f"cannot read the event log {self.name}: no answer for {self.answer_s:.0f} s")

    @contextlib.contextmanager
    def _asking(self) -> Iterator[KafkaConsumer]:
        """Yield the consumer. If it fails, it is closed, and the next call creates another one at the same offset."""
        if self._closed:
            raise UnavailableError("the event log is closed")
        try:
            if self._consumer is None:
                self._consumer = self._connect()
            yield self._consumer
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            raise missing_records(self.name, self._at) from error
        except (AccessError, KafkaError) as error:
            self._drop()
            raise UnavailableError(
                f"cannot read the event log {self.name}: {str(error) or type(error).__name__}"
            ) from error

    def _connect(self) -> KafkaConsumer:
        consumer = log_consumer(
            self._bootstrap, self._partition, self._config, answer_s=self.answer_s, offset_reset="none"
        )
        try:
            deadline = time.monotonic() + _NEW_TOPIC_S
            while not self._is_there(consumer):
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"cannot read the event log {self.name}: Kafka shows no such topic. Correct --event-log, or "
                        "allow this client to read the topic."
                    )
                time.sleep(AGAIN_S)
            if self._at >= 0:
                consumer.seek(self._partition, self._at - self.first)
        except BaseException:
            close_consumer(consumer)
            raise
        return consumer

    def _is_there(self, consumer: KafkaConsumer) -> bool:
        """Return whether Kafka shows the topic. A broker that has just started does not know any broker yet."""
        try:
            return bool(consumer.partitions_for_topic(self._topic))
        except MetadataEmptyBrokerList:
            return False

    def _drop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            close_consumer(consumer)


def record_of(message: Any, first: int) -> LogRecord:  # noqa: ANN401 - a ConsumerRecord; the stubs call its fields Any
    """Convert a Kafka record to a record of the log. ``first`` is the log's offset for Kafka's offset 0."""
    key = b"" if message.key is None else message.key
    value = b"" if message.value is None else message.value
    return LogRecord(first + message.offset, message.timestamp, key.decode(errors="replace"), value)
