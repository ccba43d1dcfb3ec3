# SPDX-License-Identifier: Apache-2.0
"""Contract of every event log, and the checks of every backend before it writes.

An event log is one sequence of records. The gateway appends, the fold reads, retention trims the old end::

    offset      1        2        3        4        5 ...           strictly increasing, never used twice
    event time  10:00.0  10:00.0  10:00.7  10:00.7  10:00.9         time of receipt, ms; never decreasing
    key         b:a      b:b      *        b:a      kv              the state that the event touches
    payload     bytes as `schemas.events.encode` made them; the log never looks inside

Event time is the log's own clock: a record is stamped when it gets its offset. Kafka's stamps may go back. So every
reader takes the greatest so far (`in_time`), and the order by offset and the order by time agree.

All calls block, and any thread may make them. The gateway groups the commits of several callers: an ``append`` of a
list costs one fsync, for a list of any length.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from runtime.version import PROGRAM
from schemas.errors import BadRequestError, SetupError, TooLargeError, UnavailableError

MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""A registration of 100,000 topics is about 1 MB compressed: anything near this bound is a mistake."""

MAX_KEY_BYTES: Final = 32 * 1024
"""In UTF-8. Bounded so that a record of the largest payload still fits a Kafka message."""

DEFAULT_READ_RECORDS: Final = 10_000
DEFAULT_READ_BYTES: Final = 16 * 1024 * 1024

LOST_LOG: Final = f"Restore lake and log from a backup (`{PROGRAM} restore`), or start over with a new data directory."
"""Advice if the event log lacks records that the tables or a stream have already read."""

Entry = tuple[str, bytes]
"""An event to append: routing key, payload."""

Clock = Callable[[], int]
"""Milliseconds since the epoch."""


class LateError(UnavailableError):
    """A stop, or a step of the clock, was between the last stamp and this one."""


def check_time(stamp_ms: int, not_after_ms: int | None) -> None:
    """Raise LateError where a stamp is past ``not_after_ms``. For implementations of `EventLog`."""
    if not_after_ms is not None and stamp_ms > not_after_ms:
        raise LateError("the event log did not accept the event at once. Try again")


class LogRecord(NamedTuple):
    """One record. ``event_time_ms`` is milliseconds since the epoch.

    A foreign Kafka record without key or value reads as an empty key or payload here: no event has an empty payload,
    so it is quarantined like every other record that is no event.
    """

    offset: int
    event_time_ms: int
    key: str
    payload: bytes


def in_time(records: Iterable[LogRecord], time_ms: int) -> Iterator[tuple[int, LogRecord]]:
    """Each record, the log's time before it in front; its own event time is never less than that.

    Every reader of a part of a log uses this, so the time is the same for all, wherever they begin.

    Args:
        records: in their order, without a gap.
        time_ms: the greatest event time before the first of them; 0 if there is none.
    """
    for record in records:
        yield time_ms, record if record.event_time_ms >= time_ms else record._replace(event_time_ms=time_ms)
        time_ms = max(time_ms, record.event_time_ms)


class Appended(NamedTuple):
    """Place of an appended record."""

    offset: int
    event_time_ms: int


class Limits(NamedTuple):
    """The largest event that a log takes, key and payload together, and what an operator can do about it."""

    event_bytes: int
    hint: str = ""

    def check(self, key: str, payload: bytes) -> int:
        """The size of an event that the log takes.

        Raises:
            BadRequestError: the log does not take it; the message names the size and the limit.
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
"""Of a log that takes whatever `check_entries` takes."""


class LogEnd(NamedTuple):
    """The end of the log. ``last_event_time_ms`` is None in a log that never had a record."""

    next_offset: int
    last_event_time_ms: int | None


def check_end(end: LogEnd, folded_offset: int) -> None:
    """Refuse a log that ends before the tables do: a write to it would count as folded before the fold has seen it.

    Args:
        end: Of the log.
        folded_offset: The last offset that the tables hold; -1 for none.

    Raises:
        SetupError: It does.
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
    """Read access to a log. Made by `open_reader`."""

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """Records from ``start_offset`` on, in order, as many as both bounds allow; at least one if there is one.

        Does not wait for records to come. Below the oldest record it begins with that one.

        Args:
            start_offset: the first record's offset is this or higher.
            max_records: 1 or more.
            max_bytes: bound on the sum of payload sizes; one larger record comes alone.

        Raises:
            UnavailableError: the log cannot be reached.
        """
        ...

    def kept_from(self, offset: int) -> int:
        """The first offset, this one or higher, from which on nothing was deleted at the log's old end.

        Raises:
            UnavailableError: the log cannot be reached.
        """
        ...

    def close(self) -> None:
        """Release everything. A second call does nothing; other calls then raise UnavailableError."""
        ...


def lacks(log: LogReader, start_offset: int, records: Sequence[LogRecord]) -> bool:
    """Return True if records were deleted between ``start_offset`` and the first record that was read.

    Kafka counts entries of its own, such as the ends of transactions of other programs: those are no records.
    """
    start_offset = max(start_offset, 1)
    is_gap = bool(records) and records[0].offset > start_offset
    return is_gap and log.kept_from(start_offset) > start_offset


class EventLog(LogReader, Protocol):
    """A durable, totally ordered log. Made by `open_log`."""

    @property
    def log_id(self) -> str:
        """Given to the log when it was made: a log made anew at the same place has another one."""
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
        """Append records in the given order; return when they are durable.

        All or nothing: when it raises, none of them is in. On Kafka, and when a disk fails during the final fsync, it
        can be unknown whether they are in. Appending them again is harmless to the fold, whose events are idempotent
        facts.

        Args:
            entries: the events.
            not_after_ms: a log that is stamped here does not append them with a later event time. Kafka stamps by
                itself, and does not ask (`schemas.events.Resume.after_ms`).

        Returns:
            One `Appended` for each entry. Offsets strictly increase, event times never decrease.

        Raises:
            BadRequestError: a payload or key is too large; nothing was sent.
            UnavailableError: none of them is in; the message says why.
            LateError: it was past ``not_after_ms``; none of them is in.
            ClockError: the clock is not believed; none of them is in.
            InDoubtError: they may be in, or may not.
        """
        ...

    def end(self) -> LogEnd:
        """The offset after the last record, and the last record's event time.

        Raises:
            UnavailableError: the log cannot be reached.
        """
        ...

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        """Drop the oldest records that have ``offset < before_offset`` and an event time before ``older_than_ms``.

        The last record always stays, so that the log knows its event time. Offsets are never used again.

        Returns:
            The number of records dropped.

        Raises:
            UnavailableError: the log cannot be reached.
        """
        ...


def now_ms() -> int:
    """The wall clock, in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def check_entries(entries: Sequence[Entry]) -> None:
    """Refuse what no backend takes, before anything is written.

    Raises:
        BadRequestError: the message names the size and the limit.
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
