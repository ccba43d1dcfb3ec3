# SPDX-License-Identifier: Apache-2.0
"""Following a SQLite log that others append to: what is new, where a bounded batch ends, whether it is still whole."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pipelines.log.base import LOST_LOG
from pipelines.log.cost import SMALL_BYTES, cost_bytes
from pipelines.log.sqlite import connect_reader, file_identity, read_log_id, sqlite_errors
from schemas.errors import SetupError
from schemas.events import HEAD_BYTES


@dataclass(slots=True)
class Scan:
    """How far a batch was looked at that is not taken yet: it goes on from there, however often it is asked for."""

    asked: tuple[int, int, int, bytes]
    end: int
    bytes: int = 0
    records: int = 0
    urgent: bool = False


class SqliteTail:
    """The reader's side of a SQLite log. For one thread.

    Attributes:
        log_id: see `EventLog.log_id`.

    Raises:
        SetupError: there is no log at ``path``.
    """

    log_id: str
    _seen_version: int

    def __init__(self, path: Path) -> None:
        self._path = path
        self._scan: Scan | None = None
        self._open()

    def check_identity(self, log_id: str | None) -> None:
        """Make sure that the path still names the log with this id.

        Args:
            log_id: None accepts whichever log is there now.

        Raises:
            SetupError: the log was removed, or another one is in its place.
        """
        if file_identity(self._path) != self._identity:
            self.close()
            self._open()
        if log_id not in (None, self.log_id):
            raise SetupError(
                f"{self._path} is not the event log that this stream has been reading: it was made anew. {LOST_LOG}",
                path=str(self._path),
            )

    def check_readable_from(self, start_offset: int) -> None:
        """Make sure that no record from ``start_offset`` on is missing at the log's old end, nor the log cut short.

        Raises:
            SetupError: the message names the missing offsets.
        """
        with sqlite_errors(self._path, "read"):
            last, first = self._reader.execute(
                "SELECT (SELECT seq FROM sqlite_sequence WHERE name = 'event'), (SELECT min(offset) FROM event)"
            ).fetchone()
        end = (last or 0) + 1
        if start_offset > end:
            raise SetupError(
                f"the event log {self._path} ends before offset {end}, but this stream goes on at {start_offset}:"
                f" records were cut off, or it is another log. {LOST_LOG}",
                path=str(self._path),
                start_offset=start_offset,
                next_offset=end,
            )
        oldest = end if first is None else first
        if start_offset < oldest:
            raise missing_records(self._path, start_offset, oldest)

    def next_offset(self) -> int:
        """The offset after the last record."""
        with sqlite_errors(self._path, "read"):
            (last,) = self._reader.execute("SELECT max(offset) FROM event").fetchone()
            return (last or 0) + 1

    def bounded_end(self, start_offset: int, max_records: int, max_bytes: int, patient: bytes = b"") -> int:
        """The offset after a batch from ``start_offset`` that keeps both bounds; a larger record comes alone.

        Args:
            start_offset: Of the first record.
            max_records: Bound on the records.
            max_bytes: Bound on what they cost (`cost_bytes`).
            patient: How the payload of a record begins that can wait: while there are only such, and room for more,
                the batch is empty.
        """
        asked = (start_offset, max_records, max_bytes, patient)
        if self._scan is None or self._scan.asked != asked:
            self._scan = Scan(asked, start_offset, urgent=not patient)
        scan = self._scan
        cursor = self._reader.execute(
            "SELECT offset, key, length(payload),"
            " CASE WHEN length(payload) <= ? THEN payload ELSE substr(payload, 1, ?) END FROM event"
            " WHERE offset >= ? ORDER BY offset LIMIT ?",
            (SMALL_BYTES, HEAD_BYTES, scan.end, max_records - scan.records),
        )
        with sqlite_errors(self._path, "read"), closing(cursor):
            for offset, key, size, head in cursor:
                scan.bytes += cost_bytes(key, head, size)
                if scan.records and scan.bytes > max_bytes:
                    self._scan = None
                    return scan.end
                scan.end = offset + 1
                scan.records += 1
                scan.urgent = scan.urgent or not head.startswith(patient)
        return scan.end if scan.urgent or scan.records >= max_records else start_offset

    def wait_for_change(self, deadline: float, poll_s: float) -> bool:
        """Wait until somebody has written to the log.

        Args:
            deadline: on `time.monotonic`.
            poll_s: pause between looks.

        Returns:
            False when nobody had by then.
        """
        with sqlite_errors(self._path, "read"):
            while True:
                # Changes with every commit of another connection, and costs no look at any table.
                (version,) = self._reader.execute("PRAGMA data_version").fetchone()
                if version != self._seen_version:
                    self._seen_version = version
                    return True
                if time.monotonic() >= deadline:
                    return False
                time.sleep(poll_s)

    def close(self) -> None:
        """Release the file."""
        self._reader.close()

    def _open(self) -> None:
        with sqlite_errors(self._path, "read", at_start=True):
            self._identity = file_identity(self._path)
            self._reader = connect_reader(self._path)
            self.log_id = read_log_id(self._reader)
            self._seen_version = -1
            self._scan = None


def missing_records(path: Path, first: int, end: int) -> SetupError:
    """The error for records ``first`` up to, not including, ``end`` that are gone although nobody has read them."""
    return SetupError(
        f"the event log {path} lacks the records from offset {first} to {end - 1}, which this stream has not read yet:"
        f" somebody deleted them. {LOST_LOG}",
        path=str(path),
        first_missing=first,
        last_missing=end - 1,
    )
