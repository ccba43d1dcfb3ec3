# SPDX-License-Identifier: Apache-2.0
"""The embedded log: one SQLite file in WAL mode. No server to start, and several processes may append at once.

How an append keeps the promises of `EventLog`:

1. The file's only write lock is taken; whoever else appends waits (busy timeout).
2. Under that lock the tail is read: the new offsets follow it without a gap, and the event time is
   ``max(clock, tail's event time)``, so a clock that jumps back cannot lower it.
3. The rows are inserted, and the commit writes them to the WAL with one fsync (synchronous=FULL).
4. Only then are the offsets returned. Killed before the fsync, nothing is in; killed after it, everything is.

Few events are all that in one statement, which is the cheapest way.

Readers have connections of their own: in WAL mode they see the last commit and never hold up the writer.

Offsets have no gaps, so a reader that meets one knows that somebody deleted records; `pipelines.log.source` fails then.
Trimming takes rows from the old end only, a few at a time, and SQLite's AUTOINCREMENT counter outlives the rows. The
pages of trimmed rows are used again; the file does not shrink.

What is proved before a log is used, and who may use it meanwhile: `pipelines.log.sqlite_start`.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeVar

from pipelines.log.base import (
    DEFAULT_READ_BYTES,
    DEFAULT_READ_RECORDS,
    Appended,
    Clock,
    Entry,
    LogEnd,
    LogRecord,
    check_entries,
    now_ms,
)
from pipelines.log.sqlite_start import HeldLog, begin_generation, prove, read_generation, why_not_writable
from schemas.errors import InDoubtError, RoutelakeError, SetupError, UnavailableError

FORMAT_VERSION: Final = 1
"""Of the file (meta.format_version); payloads carry their own."""

BUSY_TIMEOUT_S: Final = 10.0
"""How long to wait for another process's append."""

_TRIM_RECORDS: Final = 1_000
_TRIM_BYTES: Final = 4 * 1024 * 1024
# One step of a trim: it holds the write lock for a few milliseconds, so that appends hardly wait.

_SCHEMA: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE event (offset INTEGER PRIMARY KEY AUTOINCREMENT, event_time_ms INTEGER NOT NULL,"
    " key TEXT NOT NULL, payload BLOB NOT NULL)",
)
_TAIL: Final = (
    "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'event'),"
    " (SELECT event_time_ms FROM event ORDER BY offset DESC LIMIT 1)"
)

_AT_ONCE: Final = 64
"""Events in one INSERT."""

T = TypeVar("T")


class SqliteLog:
    """An `EventLog` in a SQLite file.

    Args:
        path: the file, made if missing; its directory must exist.
        clock: asked under the append lock.
        busy_timeout_s: how long to wait for other processes before UnavailableError.

    Raises:
        SetupError: the directory is missing or read-only, the disk is full, the file is no event log, of a newer
            format, lacks records, or lies beside the WAL of another one.
        UnavailableError: another process held the file for longer than ``busy_timeout_s``.
    """

    def __init__(self, path: Path, *, clock: Clock = now_ms, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        self._clock = clock
        self._closed = False
        self._write_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._stamped = 0, 0
        self._refusal: Exception | None = None
        self._held = HeldLog(path)
        try:
            with sqlite_errors(path, "open", at_start=True):
                if self._held.alone:
                    prove(path)
                self._writer = _open_for_writing(path, busy_timeout_s)
                try:
                    self._writer.create_function("stamp", 2, self._stamp)
                    self._reader = connect_reader(path, busy_timeout_s)
                    self.log_id = read_log_id(self._reader)
                except BaseException:
                    self._writer.close()
                    raise
            self._identity = file_identity(path)
            self._held.share()
        except BaseException:
            self._held.close()
            raise

    def append(self, entries: Sequence[Entry]) -> list[Appended]:
        """See `EventLog.append`."""
        check_entries(entries)
        if not entries:
            self._check_open()
            return []

        def insert(writer: sqlite3.Connection) -> list[Appended]:
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
        """Called by the INSERT, under the write lock. SQLite tells nobody what was raised here: `insert` does."""
        try:
            self._check_file()
            self._stamped = last_offset or 0, max(self._clock(), last_time_ms or 0)
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

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        with self._reading() as reader:
            last_offset, last_time_ms = reader.execute(_TAIL).fetchone()
            return LogEnd((last_offset or 0) + 1, last_time_ms)

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        """See `EventLog.trim`."""
        dropped = 0
        while True:
            with self._reading() as reader:
                last = _last_of_trim_step(reader, before_offset, older_than_ms)
            if last is None:
                return dropped
            dropped += self._write(partial(self._delete_up_to, last), "trim")

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
        """Run ``work`` in one durable transaction; ``one_statement`` is one by itself."""
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
        """Without the file's name, what is written would be lost with the last open handle. Under the write lock."""
        if file_identity(self._path) != self._identity:
            raise UnavailableError(
                f"the event log {self._path} was removed or replaced while in use."
                " Put it back, or restart routelake to go on with what is there now.",
                path=str(self._path),
            )


@cache
def _insert(count: int) -> str:
    """INSERT of so many (key, payload), behind the tail."""
    rows = ", ".join(f"({number}, ?, ?)" for number in range(1, count + 1))
    return (  # made of numbers and question marks
        f"WITH tail (last, event_time_ms) AS ({_TAIL}),"  # noqa: S608
        " stamped (last, event_time_ms) AS MATERIALIZED (SELECT last, stamp(last, event_time_ms) FROM tail)"
        " INSERT INTO event (offset, event_time_ms, key, payload)"
        f" SELECT last + column1, event_time_ms, column2, column3 FROM stamped, (VALUES {rows})"
    )


class SqliteReader:
    """A reader of an existing log, for one thread at a time.

    Raises:
        SetupError: there is no log at ``path``.
    """

    def __init__(self, path: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        self._path = path
        with sqlite_errors(path, "read", at_start=True):
            self._reader = connect_reader(path, busy_timeout_s)

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """See `EventLog.read`."""
        with sqlite_errors(self._path, "read"):
            return read_records(self._reader, start_offset, max_records, max_bytes)

    def close(self) -> None:
        """Release the file."""
        self._reader.close()


def connect_reader(path: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """A connection that only reads an existing log. The caller serialises its use between threads.

    Raises:
        sqlite3.Error: see `sqlite_errors` for what they mean.
    """
    reader = _connect(path, "rw", busy_timeout_s)
    reader.execute("PRAGMA query_only = ON")
    return reader


def read_log_id(reader: sqlite3.Connection) -> str:
    """See `EventLog.log_id`."""
    row: tuple[str] = reader.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()
    return row[0]


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


def file_identity(path: Path) -> tuple[int, int] | None:
    """What stays the same as long as the path names the same file; None when there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _connect(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Autocommit; usable from any thread, one at a time."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )


def _open_for_writing(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    writer = _connect(path, "rwc", busy_timeout_s)
    try:
        # Before anything is written to a file that may be somebody else's.
        if not (_check_format(writer, path) and read_generation(writer)):
            _begin(writer, path)
        _use_wal(writer, busy_timeout_s)
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute("PRAGMA secure_delete = OFF")  # Debian's default writes every trimmed page once more
        writer.execute("PRAGMA journal_size_limit = 67108864")
        # Proves that the file can be written, before anybody relies on it.
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("ROLLBACK")
    except BaseException:
        writer.close()
        raise
    return writer


def _begin(writer: sqlite3.Connection, path: Path) -> None:
    """Make the log, if there is none yet, and give it a generation, in rollback mode: so it is in the file alone."""
    writer.execute("PRAGMA journal_mode = DELETE")
    writer.execute("PRAGMA synchronous = FULL")
    writer.execute("BEGIN EXCLUSIVE")
    try:
        if not _check_format(writer, path):
            _make(writer)
        if not read_generation(writer):
            begin_generation(writer)
        writer.execute("COMMIT")
    except BaseException:
        if writer.in_transaction:
            writer.execute("ROLLBACK")
        raise


def _use_wal(writer: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to WAL. Where several processes make the file at once SQLite reports "busy" here without waiting."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            writer.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _make(writer: sqlite3.Connection) -> None:
    for statement in _SCHEMA:
        writer.execute(statement)
    writer.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [("format_version", str(FORMAT_VERSION)), ("log_id", uuid.uuid4().hex)],
    )


def _check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the file holds a log of our format; False when it is still empty.

    Raises:
        SetupError: it holds something else.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return False
    if not {"meta", "event"} <= tables:
        raise SetupError(
            f"{path} is a SQLite database, but no routelake event log. Give --log another path.", path=str(path)
        )
    row = connection.execute("SELECT value FROM meta WHERE key = 'format_version'").fetchone()
    if row is None or row[0] != str(FORMAT_VERSION):
        found = row[0] if row else "unknown"
        raise SetupError(
            f"the event log {path} has format {found}; this routelake writes format {FORMAT_VERSION}."
            " Start the routelake version that wrote it, or a newer one.",
            path=str(path),
            format_version=found,
        )
    return True


def _last_of_trim_step(reader: sqlite3.Connection, before_offset: int, older_than_ms: int) -> int | None:
    """The last offset that the next step of a trim may drop; None when nothing is left to drop."""
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
            # Event times do not decrease, so the first one that is too young ends the search.
            if event_time_ms >= older_than_ms or (last is not None and total_bytes > _TRIM_BYTES):
                break
            last = offset
    return last


def _is_busy(error: sqlite3.Error) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for the module's own errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextlib.contextmanager
def sqlite_errors(path: Path, doing: str, *, at_start: bool = False) -> Iterator[None]:
    """Turn SQLite's errors into ours: what an operator must do, or try again."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path, doing, at_start=at_start) from error


def _translated(error: sqlite3.Error, path: Path, doing: str, *, at_start: bool) -> RoutelakeError:
    code = _primary_code(error)
    kind: type[RoutelakeError] = SetupError if at_start else UnavailableError
    if code == sqlite3.SQLITE_NOTADB:
        kind, why = SetupError, "it is not a SQLite database. Give --log another path, or move the file away"
    elif code == sqlite3.SQLITE_CORRUPT:
        kind, why = SetupError, "the file is damaged. Restore it from a backup, or move it away to begin a new log"
    elif _is_busy(error):
        kind, why = UnavailableError, "another process has it locked for too long. Which: `fuser -v " + str(path) + "`"
    elif code == sqlite3.SQLITE_FULL:
        why = "the disk is full. Free some space on it"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        why = "there is no such file" if doing == "read" and not path.exists() else why_not_writable(path)
    elif code == sqlite3.SQLITE_IOERR:
        why = f"{error} ({error.sqlite_errorname}). The disk is full or failing"
    else:
        why = f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    if code == sqlite3.SQLITE_IOERR and doing == "append to":
        kind = InDoubtError
    return kind(f"cannot {doing} the event log {path}: {why}", path=str(path))
