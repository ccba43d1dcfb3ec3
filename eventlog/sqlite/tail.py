# SPDX-License-Identifier: Apache-2.0
"""Following a SQLite log, and reading a range of it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from eventlog.base import LogRecord
from eventlog.sqlite.file import connect_reader, file_identity, read_log_id, sqlite_errors
from eventlog.sqlite.log import read_records
from eventlog.tail import SMALL_BYTES, Cost, LogTail, cost_bytes, missing_records
from schemas.events import HEAD_BYTES

_PIECE_RECORDS: Final = 10_000
_PIECE_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of one Arrow batch in the Python worker and in the JVM, in bytes."""


class SqliteTail(LogTail):
    """The tail of a SQLite log.

    Raises:
        SetupError: There is no log at ``path``.
    """

    first_offset = 1
    _seen_version: int

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._open()

    def check_identity(self, log_id: str | None) -> None:
        """See `LogTail`."""
        if file_identity(self._path) != self._identity:
            self.close()
            self._open()
        super().check_identity(log_id)

    def wait_for_change(self, deadline: float, poll_s: float) -> bool:
        """See `LogTail`."""
        with sqlite_errors(self._path, "read"):
            while True:
                # The version changes with every commit of another connection. To read it, SQLite reads no table.
                (version,) = self._reader.execute("PRAGMA data_version").fetchone()
                if version != self._seen_version:
                    self._seen_version = version
                    return True
                if time.monotonic() >= deadline:
                    return False
                time.sleep(poll_s)

    def close(self) -> None:
        """See `LogTail`."""
        self._reader.close()

    def _bounds(self) -> tuple[int, int]:
        with sqlite_errors(self._path, "read"):
            last, first = self._reader.execute(
                "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'event'), (SELECT min(offset) FROM event)"
            ).fetchone()
        end = (last or 0) + 1
        return end if first is None else first, end

    def _costs(self, start: int, limit: int) -> Generator[Cost]:
        cursor = self._reader.execute(
            "SELECT offset, key, length(payload),"
            " CASE WHEN length(payload) <= ? THEN payload ELSE substr(payload, 1, ?) END, event_time_ms FROM event"
            " WHERE offset >= ? ORDER BY offset LIMIT ?",
            (SMALL_BYTES, HEAD_BYTES, start, limit),
        )
        with sqlite_errors(self._path, "read"), closing(cursor):
            for offset, key, size, head, time_ms in cursor:
                yield offset, cost_bytes(key, head, size), head, time_ms

    def _open(self) -> None:
        with sqlite_errors(self._path, "read", at_start=True):
            self._identity = file_identity(self._path)
            self._reader = connect_reader(self._path)
            self.log_id = read_log_id(self._reader)
            self._seen_version = -1
            self._scan = None


def sqlite_records(path: Path, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
    """The records from ``start`` up to, not including, ``end``, in pieces of bounded size.

    Raises:
        SetupError: Some of the records were deleted. A SQLite log has no gaps.
        UnavailableError: The file cannot be read.
    """
    with sqlite_errors(path, "read"), closing(connect_reader(path)) as reader:
        while start < end:
            records = read_records(reader, start, min(_PIECE_RECORDS, end - start), _PIECE_BYTES)
            if not records:
                raise missing_records(str(path), start, start + 1)
            for expected, record in enumerate(records, start):
                if record.offset != expected:
                    raise missing_records(str(path), expected, record.offset)
            yield records
            start = records[-1].offset + 1
