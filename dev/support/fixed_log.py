# SPDX-License-Identifier: Apache-2.0
"""An event log that holds given records, for what only reads."""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.base import NO_LIMITS, Appended, LogEnd, LogRecord


class FixedLog:
    """See `eventlog.base.EventLog`; ``read_from`` collects the offsets that were asked for."""

    log_id = lineage = "fixed"
    limits = NO_LIMITS

    def __init__(self, records: Sequence[LogRecord]) -> None:
        self.records = list(records)
        self.read_from: list[int] = []
        self.trims: list[tuple[int, int]] = []

    def append(self, entries: Sequence[tuple[str, bytes]], not_after_ms: int | None = None) -> list[Appended]:
        raise AssertionError("this log is not written")

    def read(self, start_offset: int, max_records: int = 3, max_bytes: int = 0) -> list[LogRecord]:
        """Three at a time, so that readers have to come back."""
        self.read_from.append(start_offset)
        return [record for record in self.records if record.offset >= start_offset][: min(max_records, 3)]

    def kept_from(self, offset: int) -> int:
        return next((record.offset for record in self.records if record.offset >= offset), offset)

    def end(self) -> LogEnd:
        last = self.records[-1]
        return LogEnd(last.offset + 1, last.event_time_ms)

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        self.trims.append((before_offset, older_than_ms))
        kept = [r for r in self.records[:-1] if r.offset >= before_offset or r.event_time_ms >= older_than_ms]
        dropped = len(self.records) - 1 - len(kept)
        self.records = [*kept, self.records[-1]]
        return dropped

    def close(self) -> None:
        pass
