# SPDX-License-Identifier: Apache-2.0
"""An event log in a list. Nothing is durable."""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from eventlog.base import (
    DEFAULT_READ_BYTES,
    DEFAULT_READ_RECORDS,
    NO_LIMITS,
    Appended,
    Clock,
    Entry,
    LogEnd,
    LogRecord,
    check_entries,
    check_time,
    now_ms,
)
from schemas.errors import UnavailableError

_offset = attrgetter("offset")


class MemoryLog:
    """An `EventLog` that lives as long as the object. ``clock`` is asked for the time of each append."""

    limits = NO_LIMITS

    def __init__(self, clock: Clock = now_ms) -> None:
        self.log_id = self.lineage = uuid.uuid4().hex
        self._clock = clock
        self._lock = threading.Lock()
        self._records: list[LogRecord] = []
        self._next_offset = 1
        self._closed = False

    def append(self, entries: Sequence[Entry], not_after_ms: int | None = None) -> list[Appended]:
        """See `EventLog.append`."""
        check_entries(entries)
        with self._lock:
            self._check_open()
            if not entries:
                return []
            last = self._records[-1].event_time_ms if self._records else 0
            event_time_ms = max(self._clock(), last)
            check_time(event_time_ms, not_after_ms)
            new = [
                LogRecord(offset, event_time_ms, key, bytes(payload))
                for offset, (key, payload) in enumerate(entries, start=self._next_offset)
            ]
            self._records += new
            self._next_offset += len(new)
            return [Appended(record.offset, record.event_time_ms) for record in new]

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """See `EventLog.read`."""
        with self._lock:
            self._check_open()
            first = bisect_left(self._records, start_offset, key=_offset)
            chosen: list[LogRecord] = []
            total_bytes = 0
            for record in self._records[first : first + max_records]:
                total_bytes += len(record.payload)
                if chosen and total_bytes > max_bytes:
                    break
                chosen.append(record)
            return chosen

    def kept_from(self, offset: int) -> int:
        """See `EventLog.kept_from`."""
        with self._lock:
            self._check_open()
            first = bisect_left(self._records, offset, key=_offset)
            return self._records[first].offset if first < len(self._records) else max(offset, self._next_offset)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        with self._lock:
            self._check_open()
            return LogEnd(self._next_offset, self._records[-1].event_time_ms if self._records else None)

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        """See `EventLog.trim`."""
        with self._lock:
            self._check_open()
            dropped = 0
            for record in self._records[:-1]:
                if record.offset >= before_offset or record.event_time_ms >= older_than_ms:
                    break
                dropped += 1
            del self._records[:dropped]
            return dropped

    def close(self) -> None:
        """See `EventLog.close`."""
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("the event log is closed")
