# SPDX-License-Identifier: Apache-2.0
"""Following a Kafka log: what is new, where a bounded batch ends, whether it is still whole; and reading it.

Kafka tells no sizes, so the planner reads every record before the worker does; it keeps of each only what it costs.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from pipelines.log.base import LOST_LOG, LogRecord
from pipelines.log.cost import SMALL_BYTES, cost_bytes
from pipelines.log.kafka import CONNECT_TIMEOUT_S, RECONNECT_MS, KafkaLog, record_of
from pipelines.log.kafka_client import connected
from pipelines.log.tail import Scan
from schemas.errors import SetupError, UnavailableError
from schemas.events import HEAD_BYTES

_ANSWER_S: Final = 60.0
"""How long Kafka may leave a request unanswered; a fold that gives up is started again, which takes longer."""

_FETCH_BYTES: Final = 4 * 1024 * 1024
"""One answer of Kafka's; a larger record comes alone."""

_POLL_RECORDS: Final = 5_000


class KafkaRecords:
    """The one partition of a log, read forwards from wherever one likes. For one thread.

    Raises:
        UnavailableError: no broker answers.
    """

    def __init__(self, bootstrap: Sequence[str], topic: str) -> None:
        self.name = f"kafka://{','.join(bootstrap)}/{topic}"
        self._partition = TopicPartition(topic, 0)
        self._at = -1
        with self._errors():
            self._consumer = connected(
                KafkaConsumer,
                bootstrap_servers=list(bootstrap),
                bootstrap_timeout_ms=int(CONNECT_TIMEOUT_S * 1000),
                reconnect_backoff_max_ms=RECONNECT_MS,
                request_timeout_ms=int(_ANSWER_S * 1000),
                enable_auto_commit=False,
                auto_offset_reset="none",
                max_partition_fetch_bytes=_FETCH_BYTES,
                allow_auto_create_topics=False,
            )
            self._consumer.assign([self._partition])

    def bounds(self) -> tuple[int, int]:
        """The oldest offset, and the one after the last.

        Raises:
            UnavailableError: no answer.
        """
        with self._errors():
            timeout_ms = int(_ANSWER_S * 1000)
            begin = self._consumer.beginning_offsets([self._partition], timeout_ms=timeout_ms)[self._partition]
            end = self._consumer.end_offsets([self._partition], timeout_ms=timeout_ms)[self._partition]
            return begin, end

    def go_to(self, offset: int) -> None:
        """Make this the next offset."""
        if self._at != offset:
            self._consumer.seek(self._partition, offset)
            self._at = offset

    @property
    def at(self) -> int:
        """The next offset."""
        return self._at

    def poll(self, timeout_ms: int, max_records: int) -> list[LogRecord]:
        """What comes next; waits for it if need be. Records of any number may be none, as Kafka counts its own, too.

        Raises:
            SetupError: the record at `at` was deleted.
            UnavailableError: no answer.
        """
        with self._errors():
            polled = self._consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
            self._at = self._consumer.position(self._partition, timeout_ms=timeout_ms) or self._at
            return [record_of(message) for message in polled.get(self._partition, ())]

    def between(self, start: int, end: int) -> Iterator[list[LogRecord]]:
        """The records from ``start`` up to, not including, ``end``.

        Raises:
            SetupError: some were deleted.
            UnavailableError: no answer.
        """
        self.go_to(start)
        deadline = time.monotonic() + _ANSWER_S
        while self._at < end:
            records = [record for record in self.poll(1000, min(_POLL_RECORDS, end - self._at)) if record.offset < end]
            if records:
                deadline = time.monotonic() + _ANSWER_S
                yield records
            elif time.monotonic() > deadline:
                raise UnavailableError(f"cannot read the event log {self.name}: no answer for {_ANSWER_S:.0f} s")

    def close(self) -> None:
        """Release the connections."""
        with contextlib.suppress(KafkaError):
            self._consumer.close(autocommit=False, timeout_ms=1000)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
            raise missing_records(self.name, self._at) from error
        except KafkaError as error:
            raise UnavailableError(
                f"cannot read the event log {self.name}: {str(error) or type(error).__name__}"
            ) from error


class _Ahead(NamedTuple):
    """A record that no batch has taken yet."""

    offset: int
    cost_bytes: int
    head: bytes


class KafkaTail:
    """The planner's side; the same as `pipelines.log.tail.SqliteTail`. For one thread.

    Attributes:
        log_id: see `EventLog.log_id`.

    Raises:
        SetupError: the topic is not fit to be a log.
        UnavailableError: no broker answers.
    """

    def __init__(self, bootstrap: Sequence[str], topic: str) -> None:
        with closing(KafkaLog(bootstrap, topic)) as log:
            self.log_id = log.log_id
        self._records = KafkaRecords(bootstrap, topic)
        self._ahead: deque[_Ahead] = deque()
        self._taken_to = -1
        self._scan: Scan | None = None
        self._end = 0

    def check_identity(self, log_id: str | None) -> None:
        """Make sure that this is the log with this id; None accepts any.

        Raises:
            SetupError: the topic was made anew.
        """
        if log_id not in (None, self.log_id):
            raise SetupError(
                f"{self._records.name} is not the event log that this stream has been reading: it was made anew."
                f" {LOST_LOG}"
            )

    def check_readable_from(self, start_offset: int) -> None:
        """Make sure that no record from ``start_offset`` on is missing at the log's old end, nor the log cut short.

        Raises:
            SetupError: the message names the missing offsets.
            UnavailableError: no answer.
        """
        begin, self._end = self._records.bounds()
        if start_offset > self._end:
            raise SetupError(
                f"the event log {self._records.name} ends before offset {self._end}, but this stream goes on at"
                f" {start_offset}: records were cut off, or it is another log. {LOST_LOG}"
            )
        if start_offset < begin:
            raise missing_records(self._records.name, start_offset)

    def next_offset(self) -> int:
        """The offset after the last record.

        Raises:
            UnavailableError: no answer.
        """
        _, self._end = self._records.bounds()
        return self._end

    def bounded_end(self, start_offset: int, max_records: int, max_bytes: int, patient: bytes = b"") -> int:
        """See `SqliteTail.bounded_end`; of what was there at the last `check_readable_from` or `next_offset`.

        Raises:
            SetupError: records were deleted.
            UnavailableError: no answer.
        """
        asked = (start_offset, max_records, max_bytes, patient)
        if self._scan is None or self._scan.asked != asked:
            self._scan = Scan(asked, start_offset, urgent=not patient)
            if self._taken_to != start_offset:
                self._ahead.clear()
                self._records.go_to(start_offset)
                self._taken_to = start_offset
        scan = self._scan
        deadline = time.monotonic() + _ANSWER_S
        while scan.records < max_records:
            if not self._ahead:
                if self._records.at >= self._end:
                    break
                if not self._read_ahead(1000) and time.monotonic() > deadline:
                    raise UnavailableError(f"cannot read the event log {self._records.name}: no answer")
                continue
            record = self._ahead[0]
            if scan.records and scan.bytes + record.cost_bytes > max_bytes:
                self._scan = None
                return scan.end
            self._ahead.popleft()
            scan.bytes += record.cost_bytes
            scan.records += 1
            scan.end = self._taken_to = record.offset + 1
            scan.urgent = scan.urgent or not record.head.startswith(patient)
        return scan.end if scan.urgent or scan.records >= max_records else start_offset

    def wait_for_change(self, deadline: float, poll_s: float) -> bool:
        """Wait until there are more records; False when there were none by ``deadline`` (`time.monotonic`)."""
        return bool(self._ahead) or self._read_ahead(max(0, round((deadline - time.monotonic()) * 1000)))

    def close(self) -> None:
        """Release the connections."""
        self._records.close()

    def _read_ahead(self, timeout_ms: int) -> bool:
        records = self._records.poll(timeout_ms, _POLL_RECORDS)
        for record in records:
            size = len(record.payload)
            head = record.payload if size <= SMALL_BYTES else record.payload[:HEAD_BYTES]
            self._ahead.append(_Ahead(record.offset, cost_bytes(record.key, head, size), head[:1]))
        return bool(records)


def missing_records(name: str, first: int) -> SetupError:
    """The error for records from ``first`` on that are gone although nobody has read them."""
    return SetupError(
        f"the event log {name} lacks the records from offset {first} on, which this stream has not read yet: somebody"
        f" deleted them. {LOST_LOG}"
    )
