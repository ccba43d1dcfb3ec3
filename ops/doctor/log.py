# SPDX-License-Identifier: Apache-2.0
"""Examination of the event log without changes, and a new event log from the readable records.

At each start, the offsets of the event log are checked and, after a crash, its pages (`eventlog.sqlite.start`). The
examination always checks each page, and the content of each record by its checksum.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eventlog.base import LogRecord
from eventlog.sqlite.file import (
    LARGE_WAL_BYTES,
    check_format,
    open_for_writing,
    read_log_id,
    wal_bytes,
    who_holds_the_wal,
)
from eventlog.sqlite.start import LOCK_SUFFIX, Extent, check_extent, prove
from ops.doctor.findings import Finding, Kind
from schemas.errors import EventDecodeError, SetupError, one_line
from schemas.events import read_json

_RECORD: Final = "SELECT offset, event_time_ms, key, payload FROM event WHERE offset = ?"
_NAMED: Final = 20
"""Maximum number of damaged records that are named."""


@dataclass
class ExaminedLog:
    """Result of an examination of the event log.

    Attributes:
        path: File of the event log.
        extent: Range of its records, or None if it is unknown.
        last_time_ms: Event time of the last record, ms since 1970.
        in_use: True if a process has the event log open. Then its -wal could not be compared with it.
        findings: All findings.
        damaged: Offsets of records that are unreadable or do not match their checksum.
    """

    path: Path
    extent: Extent | None = None
    last_time_ms: int | None = None
    in_use: bool = False
    findings: list[Finding] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


def examine_log(path: Path, needs_from: int) -> ExaminedLog:
    """Examine an event log in SQLite.

    Args:
        path: File of the event log.
        needs_from: The first offset that the fold may read again. Earlier records are in the tables.
    """
    found = ExaminedLog(path)
    if not path.exists():
        found.findings.append(Finding(Kind.LOG_MISSING, str(path), "is missing"))
        return found
    with _alone(path) as alone:
        found.in_use = not alone
        try:
            if alone and _has_wal(path):
                prove(path)
            with closing(connect(path)) as connection:
                connection.execute("BEGIN")  # one snapshot, while others append
                if why := _why_refused(path, connection):
                    found.findings.append(Finding(Kind.LOG_FORMAT, str(path), f"is refused: {why}"))
                    return found
                found.extent = check_extent(path, connection, whole=True)
                (found.last_time_ms,) = connection.execute("SELECT max(event_time_ms) FROM event").fetchone()
        except SetupError as error:
            found.findings.append(Finding(Kind.LOG_UNREADABLE, str(path), f"is refused: {one_line(error)}"))
        except sqlite3.Error as error:
            found.findings.append(Finding(Kind.LOG_UNREADABLE, str(path), f"is damaged: {one_line(error)}"))
        if found.extent is not None:
            found.damaged = [offset for offset, _ in _damaged_records(path, found.extent)]
    if found.in_use and (size := wal_bytes(path)) >= LARGE_WAL_BYTES:
        what = f"has a -wal of {size // 2**20} MiB: {who_holds_the_wal(path)}"
        found.findings.append(Finding(Kind.LOG_WAL, str(path), what))
    needed = [offset for offset in found.damaged if offset >= needs_from]
    for offset in needed[:_NAMED]:
        what = f"has a record at offset {offset} with a wrong checksum, and it is not in the tables yet"
        found.findings.append(Finding(Kind.RECORD, str(path), what))
    if count := len(found.damaged) - len(needed):
        what = f"has {count} records with wrong checksums, the first at offset {found.damaged[0]}"
        found.findings.append(Finding(Kind.RECORD, str(path), f"{what}; the tables already include it"))
    return found


def connect(path: Path) -> sqlite3.Connection:
    """Open a read-only connection. If there is a -wal, SQLite may create its -shm. Otherwise no file is created."""
    how = "mode=ro" if _has_wal(path) or path.with_name(path.name + "-shm").exists() else "immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)


def record_at(path: Path, offset: int) -> LogRecord | None:
    """Read one record. None if it is missing or unreadable."""
    with suppress(sqlite3.Error), closing(connect(path)) as connection:
        row = connection.execute(_RECORD, (offset,)).fetchone()
        return None if row is None else LogRecord(*row)
    return None


def salvageable(path: Path, needs_from: int) -> str | None:
    """Return the reason why an event log cannot be rebuilt from its own records, or None if it can.

    It can be rebuilt if every record from ``needs_from`` up to the counter is intact. The counter is the offset of the
    last acknowledged record. Then all lost records are in the tables, as if they had been trimmed.
    """
    try:
        with closing(connect(path)) as connection:
            read_log_id(connection)
            last = _counter(connection)
            for offset in range(needs_from, last + 1):
                row = connection.execute(_RECORD, (offset,)).fetchone()
                if row is None:
                    return f"the record at offset {offset} is missing, and the tables do not include it"
                read_json(row[3])
            # The last record is always kept, for its event time.
            if last < needs_from and connection.execute(_RECORD, (last,)).fetchone() is None:
                return (
                    f"its last record, at offset {last}, is missing, so records acknowledged after it cannot be known"
                )
    except EventDecodeError as error:
        return f"the record at offset {offset}, which the tables lack, has a wrong checksum ({one_line(error)})"
    except (sqlite3.Error, TypeError) as error:
        return f"the last acknowledged record cannot be determined ({one_line(error)})"
    return None


def salvage(path: Path, needs_from: int, target: Path) -> Extent:
    """Write an event log of the same id with the records from ``needs_from`` on, and always the last record.

    Args:
        path: The damaged event log, for which `salvageable` returned None.
        needs_from: The first offset to copy.
        target: The new file, which must not exist.
    """
    with closing(connect(path)) as old:
        last = _counter(old)
        open_for_writing(target, 1.0).close()
        with closing(sqlite3.connect(target, isolation_level=None)) as new:
            new.execute("PRAGMA journal_mode = DELETE")
            new.execute("BEGIN")
            new.execute("UPDATE meta SET value = ? WHERE key = 'log_id'", (read_log_id(old),))
            for offset in range(min(needs_from, last), last + 1):
                row = old.execute(_RECORD, (offset,)).fetchone()
                new.execute("INSERT INTO event (offset, event_time_ms, key, payload) VALUES (?, ?, ?, ?)", row)
            new.execute("COMMIT")
            return check_extent(target, new, whole=True)


def _has_wal(path: Path) -> bool:
    wal = path.with_name(path.name + "-wal")
    return wal.exists() and wal.stat().st_size > 0


def _counter(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'event'").fetchone()
    return int(found)


def _why_refused(path: Path, connection: sqlite3.Connection) -> str | None:
    """Return the reason why this release does not open an intact log: it was moved, or has another format."""
    try:
        check_format(connection, path)
    except SetupError as error:
        return one_line(error)
    return None


def _damaged_records(path: Path, extent: Extent) -> Iterator[tuple[int, str]]:
    with closing(connect(path)) as connection:
        last = connection.execute("SELECT max(offset) FROM event").fetchone()[0] or 0
        rows = connection.execute("SELECT offset, payload FROM event WHERE offset <= ?", (last,))
        for offset, payload in rows:
            try:
                read_json(payload)
            except EventDecodeError as error:
                yield offset, str(error)


@contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Yield True if no other process has the event log open, and block others meanwhile. Creates no lock file."""
    try:
        opened = os.open(path.with_name(path.name + LOCK_SUFFIX), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(opened)
