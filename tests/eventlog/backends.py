# SPDX-License-Identifier: Apache-2.0
"""What a contract test gets to open its log with."""

from __future__ import annotations

from dev.support.memory_log import MemoryLog
from eventlog import EventLog, open_log


class Backend:
    """Opens one and the same log any number of times; what it opened is closed at the end of the test."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._opened: list[EventLog] = []

    def open(self) -> EventLog:
        """Open the log. For the memory log, every call gives the same object."""
        if self.kind == "memory" and self._opened:
            return self._opened[0]
        log = MemoryLog() if self.kind == "memory" else open_log(self.url)
        self._opened.append(log)
        return log

    def close_all(self) -> None:
        for log in self._opened:
            log.close()
