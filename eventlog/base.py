# SPDX-License-Identifier: Apache-2.0
"""Interface of every event log, and the checks of every backend before it writes.

An event log is one sequence of records. The gateway appends, the fold reads, and retention trims the oldest records::

    offset      1        2        3        4        5 ...           strictly increasing, never used twice
    event time  10:00.0  10:00.0  10:00.7  10:00.7  10:00.9         time of receipt, ms; never decreasing
    key         b:a      b:b      *        b:a      kv              the state that the event touches
    payload     bytes from `schemas.events.encode`; the log never decodes them

Event time is the log's own clock: a record gets its event time together with its offset. Kafka's times may go back. So
every reader uses the greatest time so far (`in_time`), and the order by offset agrees with the order by time.

All calls block, and any thread may make them. An ``append`` of a list costs one fsync, for a list of any length. So the
gateway groups the events of several callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from runtime.version import PROGRAM
from schemas.errors import BadRequestError, SetupError, TooLargeError, UnavailableError

MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of a payload, in bytes. A registration of 100,000 topics has only about 1 MB, compressed."""

MAX_KEY_BYTES: Final = 32 * 1024
"""Maximum size of a routing key in UTF-8, in bytes. A key and the largest payload still fit into a Kafka message."""

DEFAULT_READ_RECORDS: Final = 10_000
DEFAULT_READ_BYTES: Final = 16 * 1024 * 1024

LOST_LOG: Final = f"Restore lake and log from a backup (`{PROGRAM} restore`), or start over with a new data directory."
"""Advice if the event log lacks records that the tables or a stream have already read."""

Entry = tuple[str, bytes]
"""An event to append: its routing key and its payload."""

Clock = Callable[[], int]
"""Function that returns the time in milliseconds since 1970."""


class LateError(UnavailableError):
    """Error: the process was suspended, or the clock was set, between the last event time and this one."""


def check_time(stamp_ms: int, not_after_ms: int | None) -> None:
    """Raise LateError if an event time is after ``not_after_ms``. For implementations of `EventLog`."""
    if not_after_ms is not None and stamp_ms > not_after_ms:
        raise LateError("the event log did not accept the event at once. Try again")


class LogRecord(NamedTuple):
    """One record. ``event_time_ms`` is in milliseconds since 1970.

    If another program wrote a Kafka record without key or value, the key or payload is empty here. No event has an
    empty payload. So the record is quarantined, like every other record that is not an event.
    """

    offset: int
    event_time_ms: int
    key: str
    payload: bytes


def in_time(records: Iterable[LogRecord], time_ms: int) -> Iterator[tuple[int, LogRecord]]:
    """Yield each record after the log's time before it. The record's event time is raised to that time, if it is less.

    Every reader of a part of a log uses this function, so all readers see the same times, wherever they begin.

    Args:
        records: Records in their order, without a gap.
        time_ms: The greatest event time before the first record, or 0 in front of the first record of the log.
    """
    for record in records:
        yield time_ms, record if record.event_time_ms >= time_ms else record._replace(event_time_ms=time_ms)
        time_ms = max(time_ms, record.event_time_ms)


class Appended(NamedTuple):
    """Place of an appended record."""

    offset: int
    event_time_ms: int


class Limits(NamedTuple):
    """Maximum size of an event, key and payload together, and advice on how to raise it."""

    event_bytes: int
    hint: str = ""

    def check(self, key: str, payload: bytes) -> int:
        """Return the size of an event, in bytes.

        Raises:
            BadRequestError: The event is too large for the log. The message names the size and the limit.
        """
        size = len(key) + len(payload)
        if key.isascii() and len(key) <= MAX_KEY_BYTES and size <= min(self.event_bytes, MAX_PAYLOAD_BYTES):
            return size
        check_entries([(key, payload)])
        size = len(key.encode()) + len(payload)
        if size > self.event_bytes:
            raise TooLargeError(
                f"an event of {size} bytes is larger than the event log takes ({self.event_bytes} bytes){self.hint}",
                size_bytes=size,
                limit_bytes=self.event_bytes,
            )
        return size


NO_LIMITS: Final = Limits(MAX_PAYLOAD_BYTES + MAX_KEY_BYTES)
"""Limits of a log that accepts all events that pass `check_entries`."""


class LogEnd(NamedTuple):
    """The end of the log. A log that never had a record has no ``last_event_time_ms``."""

    next_offset: int
    last_event_time_ms: int | None


def check_end(end: LogEnd, folded_offset: int) -> None:
    """Refuse a log that ends before the tables do. The fold would skip new events with offsets that the tables include.

    Args:
        end: The end of the log.
        folded_offset: The last offset that the tables include, or -1.

    Raises:
        SetupError: The log ends before the tables do.
    """
    last_offset = end.next_offset - 1
    if last_offset < folded_offset:
        raise SetupError(
            f"the event log ends at offset {last_offset}, but the tables already include offset {folded_offset}. "
            f"The event log was truncated, or it is a different log. {LOST_LOG}",
            last_offset=last_offset,
            folded_offset=folded_offset,
        )


class LogReader(Protocol):
    """Read access to a log. `open_reader` returns one."""

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """Records from ``start_offset`` on, in order, within both bounds, but at least one if the log has one.

        The call does not wait for new records. If records were trimmed, the result begins with the oldest record.

        Args:
            start_offset: Lowest offset of the first record.
            max_records: Maximum number of records, 1 or more.
            max_bytes: Maximum sum of payload sizes, in bytes. A larger record is returned alone.

        Raises:
            UnavailableError: The log cannot be reached.
        """
        ...

    def kept_from(self, offset: int) -> int:
        """The first offset, this one or higher, from which on no record was trimmed.

        Raises:
            UnavailableError: The log cannot be reached.
        """
        ...

    def close(self) -> None:
        """Release all resources. A second call does nothing. All other calls then raise UnavailableError."""
        ...


def lacks(log: LogReader, start_offset: int, records: Sequence[LogRecord]) -> bool:
    """Return True if records were deleted between ``start_offset`` and the first record that was read.

    A gap alone is no proof: Kafka gives offsets to entries of its own too, such as the ends of transactions.
    """
    start_offset = max(start_offset, 1)
    is_gap = bool(records) and records[0].offset > start_offset
    return is_gap and log.kept_from(start_offset) > start_offset


class EventLog(LogReader, Protocol):
    """A durable, totally ordered log. `open_log` returns one."""

    @property
    def log_id(self) -> str:
        """Identity of the log, set at its creation. A log that is created again at the same place has another one."""
        ...

    @property
    def lineage(self) -> str:
        """Identity of the offsets. A copy that continues on its own, such as a restored log, has another one."""
        ...

    @property
    def limits(self) -> Limits:
        """Maximum size of an event."""
        ...

    def append(self, entries: Sequence[Entry], not_after_ms: int | None = None) -> list[Appended]:
        """Append records in the given order. Return when they are durable.

        The append is atomic: if it raises, the log has none of the records. On Kafka, and if a disk fails during the
        final fsync, the result can be unknown. To append the same events again is harmless, because events are
        idempotent.

        Args:
            entries: The events.
            not_after_ms: Latest event time, in milliseconds. A SQLite log refuses the events after this time. Kafka
                sets event times itself and ignores this argument (`schemas.events.Resume.after_ms`).

        Returns:
            One `Appended` for each entry. Offsets strictly increase, event times never decrease.

        Raises:
            BadRequestError: A payload or key is too large. Nothing was appended.
            UnavailableError: Nothing was appended. The message has the reason.
            LateError: The event time would be after ``not_after_ms``. Nothing was appended.
            ClockError: The clock is not plausible. Nothing was appended.
            InDoubtError: It is unknown whether the log has the records.
        """
        ...

    def end(self) -> LogEnd:
        """The offset after the last record, and the last record's event time.

        Raises:
            UnavailableError: The log cannot be reached.
        """
        ...

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        """Delete the oldest records that have ``offset < before_offset`` and an event time before ``older_than_ms``.

        The last record always stays, so that the log keeps its event time. Offsets are never used again. A call is
        short, and may leave records for the next call.

        Returns:
            The number of deleted records. 0 if no such record is left.

        Raises:
            UnavailableError: The log cannot be reached.
        """
        ...


def now_ms() -> int:
    """The wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def check_entries(entries: Sequence[Entry]) -> None:
    """Refuse events that no backend accepts, before anything is written.

    Raises:
        BadRequestError: A payload or key is too large, or a key is not valid Unicode.
    """
    for key, payload in entries:
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise TooLargeError(
                f"an event of {len(payload)} bytes is larger than the event log takes ({MAX_PAYLOAD_BYTES} bytes)",
                size_bytes=len(payload),
                limit_bytes=MAX_PAYLOAD_BYTES,
            )
        try:
            key_bytes = len(key.encode())
        except UnicodeEncodeError as error:
            raise BadRequestError(f"a routing key is not valid Unicode: {error.reason}") from error
        if key_bytes > MAX_KEY_BYTES:
            raise TooLargeError(
                f"a routing key of {key_bytes} bytes is larger than the event log takes ({MAX_KEY_BYTES} bytes)",
                size_bytes=key_bytes,
                limit_bytes=MAX_KEY_BYTES,
            )
