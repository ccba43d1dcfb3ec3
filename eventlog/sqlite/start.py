# SPDX-License-Identifier: Apache-2.0
"""Checks of a SQLite log before its first use: the ``-wal`` belongs to the file, and no offset is missing.

SQLite replays any ``-wal`` next to a file if its frames are intact. If the file was restored from a copy, the ``-wal``
belongs to another file. Then old and new pages form one database, with missing records in the middle and acknowledged
writes after them. So file and WAL have an identity, the *generation*::

    meta             generation = 3f2c...             a page that is never written again: it is only in the file
    sqlite_sequence  ('event', 3000)                  a page that every append writes: it is in every WAL
                     ('generation:3f2c...', 0)

The generation is written in rollback mode, while there is no WAL. A backup has no generation (`clear_generation`). It
gets one when it is first opened, and until then every WAL next to it is foreign. If a copy was made by hand of the file
that the WAL belongs to, both have the same generation. Then the offsets decide: count, sum and counter must agree.

The first process that opens a log makes these checks, while it holds `LockedLog` exclusively. Later processes rely on
these checks as long as any process has the log open. The checks use a read-only connection, so a refused file is not
changed.

Source: https://sqlite.org/walformat.html, "Recovery"; https://sqlite.org/autoinc.html; https://sqlite.org/uri.html
(immutable: the file alone, without its WAL).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.disk import advice, at_start
from runtime.version import PROGRAM
from schemas.errors import SetupError, UnavailableError

LOCK_SUFFIX: Final = "-lock"
"""Suffix of the lock file next to the log. A process that has the log open holds its flock."""

WAIT_S: Final = 60.0
"""Maximum wait for a process that checks the log, in seconds. The check of ten million records takes three seconds."""

_POLL_S: Final = 0.02

_GENERATION: Final = "generation"
_GENERATION_ROW: Final = "generation:"

_WAY_OUT: Final = (
    f"Nothing was changed. `{PROGRAM} restore` restores a backup and moves these files aside: "
    "see docs/how-to/operate/backup-restore.md"
)


class LockedLog:
    """The lock on a log. Processes that use the log share it. A process that checks or replaces the log holds it alone.

    Attributes:
        alone: Whether no other process has the log open. No other process can open it before `share`.

    Raises:
        SetupError: The lock file cannot be created.
        UnavailableError: The disk is full or failing.
        UnavailableError: Another process has held the lock exclusively for longer than `wait_s`.
    """

    def __init__(self, path: Path, *, wait_s: float = WAIT_S) -> None:
        self.alone = False
        lock = path.with_name(path.name + LOCK_SUFFIX)
        try:
            if path.is_dir():
                raise IsADirectoryError
            self._fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise at_start(error)(
                f"cannot open the event log {path}: {why_not_writable(path, error)}", path=str(path)
            ) from error
        deadline = time.monotonic() + wait_s
        try:
            while not (self._take(fcntl.LOCK_EX) or self._take(fcntl.LOCK_SH)):
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"cannot open the event log {path}: another process is checking or restoring it. Which: "
                        f"`fuser -v {lock}`",
                        path=str(path),
                    )
                time.sleep(_POLL_S)
        except BaseException:
            self.close()
            raise

    def share(self) -> None:
        """Allow other processes to open the log."""
        if self.alone:
            self.alone = False
            # Another process may get the lock first and check the log again. This process does not use the log yet.
            fcntl.flock(self._fd, fcntl.LOCK_SH)

    def close(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.alone = kind == fcntl.LOCK_EX
        return True


@dataclass(frozen=True, slots=True)
class Extent:
    """Range of a log's records: every offset from ``first`` up to, not including, ``end``. Equal in an empty log."""

    first: int
    end: int


def prove(path: Path) -> None:
    """Check a log that no other process has open.

    An empty or missing file passes, and so does a file that is not an event log.

    Raises:
        SetupError: The file and its WAL do not belong together, or records are missing.
        sqlite3.Error: SQLite cannot read the log. See `eventlog.sqlite.file.sqlite_errors`.
    """
    wal = path.with_name(path.name + "-wal")
    has_wal = _size(wal) > 0
    if _size(path) == 0:
        if has_wal:
            raise _foreign(path, f"{path} is missing or empty")
        return
    if has_wal:
        with contextlib.closing(_connect(path, "immutable=1")) as file, contextlib.suppress(sqlite3.DatabaseError):
            # If a power cut interrupted a checkpoint, the file alone may be unreadable, but the WAL has those pages.
            _compare(path, file)
    with contextlib.closing(_connect(path, "mode=ro")) as connection:
        try:
            if _has_meta(connection):
                check_extent(path, connection, whole=has_wal)
        except sqlite3.DatabaseError as error:
            if has_wal and getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
                raise _damaged(path, str(error)) from error
            raise


def check_extent(path: Path, connection: sqlite3.Connection, *, whole: bool) -> Extent:
    """Check that no offset is missing.

    Args:
        path: Path of the log, for the error message.
        connection: Connection to the log. No process may write to the log during the check.
        whole: Check every page of the file too (PRAGMA quick_check), which doubles the time.

    Raises:
        SetupError: Records are missing, or pages contradict each other.
        sqlite3.Error: SQLite cannot read the log.
    """
    first, last, count, total, counter = connection.execute(
        "SELECT min(offset), max(offset), count(*), sum(offset),"
        " (SELECT seq FROM sqlite_sequence WHERE name = 'event') FROM event"
    ).fetchone()
    if count == 0:
        if counter:
            raise _hole(path, 1, counter)
        return Extent(1, 1)
    # The last record always stays (EventLog.trim), so the counter equals its offset.
    if count != last - first + 1 or total != (first + last) * count // 2:
        raise _hole(path, *_first_gap(connection, first, last))
    if counter != last:
        raise _hole(path, min(counter or 0, last) + 1, max(counter or 0, last))
    if whole:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise _damaged(path, " ".join(found.split()))
    return Extent(first, last + 1)


def read_generation(connection: sqlite3.Connection) -> str | None:
    """The generation in the file: empty in a backup that was not opened yet, None in an old log without generations."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (_GENERATION,)).fetchone()
    return None if row is None else str(row[0])


def begin_generation(connection: sqlite3.Connection) -> None:
    """Give the log a new generation. The caller has opened a transaction in rollback mode."""
    _write_generation(connection, uuid.uuid4().hex)


def clear_generation(connection: sqlite3.Connection) -> None:
    """Clear the generation, so that no WAL fits the file. The caller has opened a transaction in rollback mode."""
    _write_generation(connection, "")


def why_not_writable(path: Path, error: OSError | None = None) -> str:
    """Reason why a log cannot be opened, for an operator."""
    directory = path.parent
    if not directory.is_dir():
        return f"the directory {directory} does not exist. Create it"
    if path.is_dir():
        return "that is a directory. Name a file in it"
    if path.exists() and not os.access(path, os.W_OK):
        return f"this user (uid {os.getuid()}) may not write the file. Run as its owner"
    if error is not None and not isinstance(error, PermissionError):
        return f"{error.filename}: {error.strerror}. {advice(error, '--event-log')}".removesuffix(".")
    # SQLite keeps its WAL next to the file, so the directory must be writable too.
    return (
        f"the directory {directory} is read-only, or this user (uid {os.getuid()}) may not write to it. "
        "Change its owner, or run as its owner"
    )


def _write_generation(connection: sqlite3.Connection, generation: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_GENERATION, generation))
    connection.execute("DELETE FROM sqlite_sequence WHERE name LIKE ?", (_GENERATION_ROW + "%",))
    connection.execute("INSERT INTO sqlite_sequence VALUES (?, 0)", (_GENERATION_ROW + generation,))


def _compare(path: Path, file: sqlite3.Connection) -> None:
    """Compare the file without its WAL to the file with its WAL.

    Raises:
        SetupError: They have different generations, or the WAL is older than the file.
        sqlite3.DatabaseError: The file alone cannot be read.
    """
    if not _has_meta(file):
        return
    generation = read_generation(file)
    if generation is None:
        return  # without a generation, only the offsets are checked
    (counter,) = file.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
    with contextlib.closing(_connect(path, "mode=ro")) as both:
        rows = dict(both.execute("SELECT name, seq FROM sqlite_sequence"))
    if generation == "" or _GENERATION_ROW + generation not in rows:
        raise _foreign(path, f"{path} was restored or replaced")
    if rows.get("event", 0) < counter:
        raise _foreign(path, f"{path} has records up to offset {counter}, its -wal is older")


def _first_gap(connection: sqlite3.Connection, first: int, last: int) -> tuple[int, int]:
    """The first range of missing offsets between ``first`` and ``last``."""
    row = connection.execute(
        "SELECT offset + 1, following - 1 FROM"
        " (SELECT offset, lead(offset) OVER (ORDER BY offset) AS following FROM event)"
        " WHERE following <> offset + 1 LIMIT 1"
    ).fetchone()
    return row or (first, last)


def _has_meta(connection: sqlite3.Connection) -> bool:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {"meta", "event", "sqlite_sequence"} <= tables


def _connect(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _foreign(path: Path, what: str) -> SetupError:
    return SetupError(
        f"the event log {path} and its -wal file do not belong together: {what}. Using both would lose records. "
        f"{_WAY_OUT}; or, if the file is the one you want, move {path.name}-wal and {path.name}-shm away.",
        path=str(path),
    )


def _damaged(path: Path, found: str) -> SetupError:
    return SetupError(
        f"the event log {path} is damaged, or was restored next to the -wal of another file ({found}). {_WAY_OUT}; "
        "or move all its files away to begin a new log.",
        path=str(path),
    )


def _hole(path: Path, first: int, last: int) -> SetupError:
    return SetupError(
        f"the event log {path} lacks the records from offset {first} to {last}: it is damaged, or was restored next "
        f"to the -wal of another file. {_WAY_OUT}.",
        path=str(path),
        first_missing=first,
        last_missing=last,
    )
