# SPDX-License-Identifier: Apache-2.0
"""A SQLite file with a log: creation, checks, connections, and error messages for operators."""

from __future__ import annotations

import contextlib
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from eventlog.sqlite.start import begin_generation, read_generation, why_not_writable
from schemas.errors import InDoubtError, RoutelakeError, SetupError, UnavailableError

FORMAT_VERSION: Final = 1
"""Format version of the file (meta.format_version). Payloads have a format version of their own."""

MOVED: Final = "moved"
"""Value in place of the format version in a log that was moved. Older versions refuse it too (docs/adr/0018)."""

_MOVED_TO: Final = "moved_to"

LARGE_WAL_BYTES: Final = 256 * 1024 * 1024
"""Size of the -wal file, in bytes, from which on it counts as large. SQLite normally resets it after a few MiB."""

BUSY_TIMEOUT_S: Final = 10.0
"""Maximum wait for an append of another process, in seconds."""

_SCHEMA: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE event (offset INTEGER PRIMARY KEY AUTOINCREMENT, event_time_ms INTEGER NOT NULL,"
    " key TEXT NOT NULL, payload BLOB NOT NULL)",
)


def open_for_writing(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a connection that appends. Create the log if it does not exist.

    Raises:
        SetupError: The file is not an event log of this format.
        sqlite3.Error: SQLite fails. `sqlite_errors` converts the error.
    """
    writer = _connect(path, "rwc", busy_timeout_s)
    try:
        # The check comes before the first write, because the file may belong to another program.
        if not (check_format(writer, path) and read_generation(writer)):
            _begin(writer, path)
        _use_wal(writer, busy_timeout_s)
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute("PRAGMA secure_delete = OFF")  # Debian's default overwrites every trimmed page
        writer.execute("PRAGMA journal_size_limit = 67108864")
        # Checks that the file can be written, before the log is used.
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("ROLLBACK")
    except BaseException:
        writer.close()
        raise
    return writer


def connect_reader(path: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Open a connection that only reads an existing log. The caller serialises its use between threads.

    Raises:
        sqlite3.Error: SQLite fails. `sqlite_errors` converts the error.
    """
    reader = _connect(path, "rw", busy_timeout_s)
    reader.execute("PRAGMA query_only = ON")
    return reader


def read_log_id(reader: sqlite3.Connection) -> str:
    """See `EventLog.log_id`."""
    row: tuple[str] = reader.execute("SELECT value FROM meta WHERE key = 'log_id'").fetchone()
    return row[0]


def moved_to(connection: sqlite3.Connection) -> str:
    """URL to which the log was moved, or empty if it was not moved."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_MOVED_TO,)).fetchone()
    return "" if row is None else str(row[0])


def refuse_moved(connection: sqlite3.Connection, path: Path) -> None:
    """Raise SetupError if the log was moved."""
    if to := moved_to(connection):
        raise SetupError(f"the event log {path} was moved to {to}. Start with --event-log {to}.", path=str(path))


def mark_moved(path: Path, to: str) -> None:
    """Mark the log as moved, in the file itself and not in its WAL. No other process may have the log open.

    Raises:
        sqlite3.Error: SQLite fails. `sqlite_errors` converts the error.
    """
    with contextlib.closing(_connect(path, "rw", BUSY_TIMEOUT_S)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_MOVED_TO, to))
        writer.execute("INSERT OR REPLACE INTO meta VALUES ('format_version', ?)", (MOVED,))
        writer.execute("COMMIT")


def wal_bytes(path: Path) -> int:
    """Size of the -wal file of a log, in bytes."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def who_holds_the_wal(path: Path) -> str:
    """Advice about a WAL file that is too large."""
    return (
        f"a process keeps a read transaction of {path} open, so SQLite cannot reset the WAL file. Find the process "
        f"with `fuser -v {path}`, and end its read or stop it"
    )


def file_identity(path: Path) -> tuple[int, int] | None:
    """Identity of a file: device and inode. None if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _connect(path: Path, mode: str, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a connection with autocommit. Any thread may use it, but only one at a time."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )


def _begin(writer: sqlite3.Connection, path: Path) -> None:
    """Create the log if needed, and write its generation in rollback mode, so that it is in the file and in no WAL."""
    writer.execute("PRAGMA journal_mode = DELETE")
    writer.execute("PRAGMA synchronous = FULL")
    writer.execute("BEGIN EXCLUSIVE")
    try:
        if not check_format(writer, path):
            _make(writer)
        if not read_generation(writer):
            begin_generation(writer)
        writer.execute("COMMIT")
    except BaseException:
        if writer.in_transaction:
            writer.execute("ROLLBACK")
        raise


def _use_wal(writer: sqlite3.Connection, timeout_s: float) -> None:
    """Switch to WAL mode. While other processes create the same file, SQLite reports "busy" without waiting: retry."""
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


def check_format(connection: sqlite3.Connection, path: Path) -> bool:
    """Return True if the file has a log of this format, False if the file is still empty.

    Raises:
        SetupError: The file has other content.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return False
    if not {"meta", "event"} <= tables:
        raise SetupError(
            f"{path} is a SQLite database, but not a routelake event log. Set --event-log to another path.",
            path=str(path),
        )
    row = connection.execute("SELECT value FROM meta WHERE key = 'format_version'").fetchone()
    refuse_moved(connection, path)
    if row is None or row[0] != str(FORMAT_VERSION):
        found = row[0] if row else "unknown"
        raise SetupError(
            f"the event log {path} has format {found}; this routelake writes format {FORMAT_VERSION}."
            " Start the routelake version that wrote it, or a newer one.",
            path=str(path),
            format_version=found,
        )
    return True


@contextlib.contextmanager
def sqlite_errors(path: Path, doing: str, *, at_start: bool = False) -> Iterator[None]:
    """Convert SQLite's errors to errors with a remedy for the operator, or with the advice to try again."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error, path, doing, at_start=at_start) from error


def _translated(error: sqlite3.Error, path: Path, doing: str, *, at_start: bool) -> RoutelakeError:
    code = _primary_code(error)
    kind: type[RoutelakeError] = SetupError if at_start else UnavailableError
    if code == sqlite3.SQLITE_NOTADB:
        kind, why = SetupError, "it is not a SQLite database. Set --event-log to another path, or move the file away"
    elif code == sqlite3.SQLITE_CORRUPT:
        kind, why = SetupError, "the file is damaged. Restore it from a backup, or move it away to begin a new log"
    elif _is_busy(error):
        kind, why = (
            UnavailableError,
            "another process has locked it for too long. Find it with `fuser -v " + str(path) + "`",
        )
    elif code == sqlite3.SQLITE_FULL:
        kind, why = UnavailableError, "the disk is full. Free some space on it"  # may be temporary, even at a start
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        why = "there is no such file" if doing == "read" and not path.exists() else why_not_writable(path)
    elif code == sqlite3.SQLITE_IOERR:
        kind, why = UnavailableError, f"{error} ({error.sqlite_errorname}). The disk is full or failing"
    else:
        why = f"{error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    if code == sqlite3.SQLITE_IOERR and doing == "append to":
        kind = InDoubtError
    return kind(f"cannot {doing} the event log {path}: {why}", path=str(path))


def _is_busy(error: sqlite3.Error) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite's primary result code, or 0 for errors of the sqlite3 module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
