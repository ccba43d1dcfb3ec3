# SPDX-License-Identifier: Apache-2.0
"""The embedded log: one SQLite file in WAL mode. It needs no server, and several processes may append at once.

How an append keeps the promises of `EventLog`:

1. The append takes the file's only write lock. Other processes that append wait (busy timeout).
2. Under the lock it reads the last record. The new offsets follow without a gap, and the new event time is never less,
   even if the clock is wrong (`eventlog.stamps`).
3. It inserts the rows. The commit writes them to the WAL with one fsync (synchronous=FULL).
4. Then it returns the offsets. If the process is killed before the fsync, the log has none of the rows. If it is killed
   after the fsync, the log has all of them.

For few events, one statement does all of this, because that is fastest.

Readers have their own connections. In WAL mode they see the last commit and never delay the writer.

Offsets have no gaps, so a gap shows that records were deleted. `pipelines.source` then fails. A trim deletes only the
oldest rows, a few at a time. SQLite's AUTOINCREMENT counter keeps the last offset after its row is deleted. SQLite uses
the pages of trimmed rows again, so the file does not shrink.

`eventlog.sqlite.file` creates and opens the file. `eventlog.sqlite.start` checks a log before its use and locks it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from eventlog.base import (
    DEFAULT_READ_BYTES,
    DEFAULT_READ_RECORDS,
    NO_LIMITS,
    Appended,
    Entry,
    LogEnd,
    LogRecord,
    check_entries,
    check_time,
)
from eventlog.sqlite.file import (
    BUSY_TIMEOUT_S,
    LARGE_WAL_BYTES,
    connect_reader,
    file_identity,
    open_for_writing,
    read_log_id,
    refuse_moved,
    sqlite_errors,
    wal_bytes,
    who_holds_the_wal,
)
from eventlog.sqlite.start import LockedLog, prove, read_generation
from eventlog.stamps import Stamps
from schemas.errors import UnavailableError

log = structlog.get_logger("routelake.log")

_TRIM_RECORDS: Final = 1_000
_TRIM_BYTES: Final = 4 * 1024 * 1024
# Size of one step of a trim. A step holds the write lock for a few milliseconds, so that appends hardly wait.

_TRIM_STEPS: Final = 25
"""Maximum number of steps of one trim. They take about a quarter of a second. The fold trims at most once for each
batch of up to 20,000 records (`pipelines.source`), so a trim must be able to delete more."""

_TAIL: Final = (
    "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'event'),"
    " (SELECT event_time_ms FROM event ORDER BY offset DESC LIMIT 1)"
)

_AT_ONCE: Final = 64
"""Maximum number of events in one INSERT."""

T = TypeVar("T")


class SqliteLog:
    """An `EventLog` in a SQLite file.

    Args:
        path: Path of the file. The file is created if it does not exist. Its directory must exist.
        stamps: Source of event times, called under the write lock.
        busy_timeout_s: Maximum wait for other processes before UnavailableError, in seconds.

    Raises:
        SetupError: The directory is missing or read-only, or the file is not an event log. Or the log has a newer
            format, lacks records, or has the WAL of another log.
        UnavailableError: The disk is full, or another process held the file for longer than ``busy_timeout_s``.
    """

    limits = NO_LIMITS

    def __init__(self, path: Path, *, stamps: Stamps | None = None, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._stamps = stamps or Stamps()
        self._closed = False
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._stamped = 0, 0
        self._not_after_ms: int | None = None
        self._refusal: Exception | None = None
        self._warned_bytes = LARGE_WAL_BYTES
        """Size of the -wal file from which on the next warning is logged, in bytes."""
        self._held = LockedLog(path)
        try:
            with sqlite_errors(path, "open", at_start=True):
                if self._held.alone:
                    prove(path)
                self._writer = open_for_writing(path, busy_timeout_s)
                try:
                    self._writer.create_function("stamp", 2, self._stamp)
                    self._reader = connect_reader(path, busy_timeout_s)
                    self.log_id = read_log_id(self._reader)
                    self.lineage = read_generation(self._reader) or self.log_id
                except BaseException:
                    self._writer.close()
                    raise
            self._identity = file_identity(path)
            self._held.share()
        except BaseException:
            self._held.close()
            raise

    def append(self, entries: Sequence[Entry], not_after_ms: int | None = None) -> list[Appended]:
        """See `EventLog.append`."""
        check_entries(entries)
        if not entries:
            self._check_open()
            return []

        def insert(writer: sqlite3.Connection) -> list[Appended]:
            self._not_after_ms = not_after_ms
            appended: list[Appended] = []
            for start in range(0, len(entries), _AT_ONCE):
                some = entries[start : start + _AT_ONCE]
                try:
                    writer.execute(_insert(len(some)), [value for entry in some for value in entry])
                except sqlite3.OperationalError:
                    refusal, self._refusal = self._refusal, None
                    if refusal is None:
                        raise
                    raise refusal from None
                last_offset, event_time_ms = self._stamped
                appended += [Appended(last_offset + number, event_time_ms) for number in range(1, len(some) + 1)]
            return appended

        return self._write(insert, "append to", one_statement=len(entries) <= _AT_ONCE)

    def _stamp(self, last_offset: int | None, last_time_ms: int | None) -> int:
        """Return the event time for the INSERT, under the write lock. SQLite drops errors, so `insert` raises them."""
        try:
            self._check_file()
            time_ms = self._stamps.next(last_time_ms)
            check_time(time_ms, self._not_after_ms)
            self._stamped = last_offset or 0, time_ms
        except Exception as error:
            self._refusal = error
            raise
        return self._stamped[1]

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """See `EventLog.read`."""
        with self._reading() as reader:
            return read_records(reader, start_offset, max_records, max_bytes)

    def kept_from(self, offset: int) -> int:
        """See `EventLog.kept_from`."""
        with self._reading() as reader:
            return _kept_from(reader, offset)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        with self._reading() as reader:
            last_offset, last_time_ms = reader.execute(_TAIL).fetchone()
            return LogEnd((last_offset or 0) + 1, last_time_ms)

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        """See `EventLog.trim`."""
        dropped = 0
        self._look_at_wal()
        for _ in range(_TRIM_STEPS):
            with self._reading() as reader:
                last = _last_of_trim_step(reader, before_offset, older_than_ms)
            if last is None:
                break
            dropped += self._write(partial(self._delete_up_to, last), "trim")
        return dropped

    def _look_at_wal(self) -> None:
        """Log a warning if the -wal file is large, and again each time that its size has doubled."""
        size = wal_bytes(self._path)
        if size < LARGE_WAL_BYTES:
            self._warned_bytes = LARGE_WAL_BYTES
        elif size >= self._warned_bytes:
            self._warned_bytes = size * 2
            log.warning(
                "the WAL file of the event log is large",
                wal_bytes=size,
                reason=who_holds_the_wal(self._path),
            )

    def _delete_up_to(self, offset: int, writer: sqlite3.Connection) -> int:
        self._check_file()
        return writer.execute("DELETE FROM event WHERE offset <= ?", (offset,)).rowcount

    def close(self) -> None:
        """See `EventLog.close`."""
        with self._write_lock, self._read_lock:
            if not self._closed:
                self._closed = True
                # The writer last: closing the last connection moves the WAL into the file.
                self._reader.close()
                self._writer.close()
                self._held.close()

    def _write(self, work: Callable[[sqlite3.Connection], T], doing: str, *, one_statement: bool = False) -> T:
        """Run ``work`` in one durable transaction. If ``one_statement``, the statement itself is the transaction."""
        with self._write_lock:
            self._check_open()
            with sqlite_errors(self._path, doing):
                if one_statement:
                    return work(self._writer)
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    result = work(self._writer)
                    self._writer.execute("COMMIT")
                except BaseException:
                    # SQLite has already rolled back after some errors (disk full, I/O).
                    if self._writer.in_transaction:
                        with contextlib.suppress(sqlite3.Error):
                            self._writer.execute("ROLLBACK")
                    raise
            return result

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._read_lock:
            self._check_open()
            with sqlite_errors(self._path, "read"):
                yield self._reader

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("the event log is closed")

    def _check_file(self) -> None:
        """Make sure that the path still names the file. Otherwise all writes would be lost at the last close.

        The caller holds the write lock.
        """
        if file_identity(self._path) != self._identity:
            raise UnavailableError(
                f"the event log {self._path} was removed or replaced while in use."
                " Put it back, or restart routelake to continue with the present file.",
                path=str(self._path),
            )


@cache
def _insert(count: int) -> str:
    """Return an INSERT of ``count`` pairs (key, payload) after the last record."""
    rows = ", ".join(f"({number}, ?, ?)" for number in range(1, count + 1))
    return (  # safe, as it is made of numbers and question marks
        f"WITH tail (last, event_time_ms) AS ({_TAIL}),"  # noqa: S608
        " stamped (last, event_time_ms) AS MATERIALIZED (SELECT last, stamp(last, event_time_ms) FROM tail)"
        " INSERT INTO event (offset, event_time_ms, key, payload)"
        f" SELECT last + column1, event_time_ms, column2, column3 FROM stamped, (VALUES {rows})"
    )


class SqliteReader:
    """A reader of an existing log, for one thread at a time.

    Raises:
        SetupError: There is no log at ``path``, or the log was moved.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with sqlite_errors(path, "read", at_start=True):
            self._reader = connect_reader(path)
            try:
                refuse_moved(self._reader, path)
            except BaseException:
                self._reader.close()
                raise

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """See `EventLog.read`."""
        with sqlite_errors(self._path, "read"):
            return read_records(self._reader, start_offset, max_records, max_bytes)

    def kept_from(self, offset: int) -> int:
        """See `EventLog.kept_from`."""
        with sqlite_errors(self._path, "read"):
            return _kept_from(self._reader, offset)

    def close(self) -> None:
        """Release the file."""
        self._reader.close()


def read_records(reader: sqlite3.Connection, start_offset: int, max_records: int, max_bytes: int) -> list[LogRecord]:
    """`EventLog.read` on a connection."""
    cursor = reader.execute(
        "SELECT offset, event_time_ms, key, payload FROM event WHERE offset >= ? ORDER BY offset LIMIT ?",
        (start_offset, max_records),
    )
    records: list[LogRecord] = []
    total_bytes = 0
    with contextlib.closing(cursor):  # an open cursor would pin the WAL
        for row in cursor:
            record = LogRecord(*row)
            total_bytes += len(record.payload)
            if records and total_bytes > max_bytes:
                break
            records.append(record)
    return records


def _kept_from(reader: sqlite3.Connection, offset: int) -> int:
    """See `EventLog.kept_from`. A SQLite log has no gaps, so every missing record was deleted."""
    first, end = reader.execute(
        "SELECT (SELECT min(offset) FROM event WHERE offset >= ?),"
        " (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'event')",
        (offset,),
    ).fetchone()
    return max(offset, end or 1) if first is None else int(first)


def _last_of_trim_step(reader: sqlite3.Connection, before_offset: int, older_than_ms: int) -> int | None:
    """The last offset that the next step of a trim may delete, or None at the end of the trim."""
    cursor = reader.execute(
        "SELECT offset, event_time_ms, length(payload) FROM event"
        " WHERE offset < min(?, (SELECT max(offset) FROM event)) ORDER BY offset LIMIT ?",
        (before_offset, _TRIM_RECORDS),
    )
    last: int | None = None
    total_bytes = 0
    with contextlib.closing(cursor):
        for offset, event_time_ms, size in cursor:
            total_bytes += size
            # Event times do not decrease, so the first one that is too recent ends the search.
            if event_time_ms >= older_than_ms or (last is not None and total_bytes > _TRIM_BYTES):
                break
            last = offset
    return last
