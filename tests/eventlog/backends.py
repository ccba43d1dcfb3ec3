# SPDX-License-Identifier: Apache-2.0
"""Ways in which tests open an event log, and wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from dev.support.memory_log import MemoryLog
from eventlog import EventLog, open_log
from schemas.errors import InDoubtError, UnavailableError

Answer = TypeVar("Answer")


def until_available(call: Callable[[], Answer]) -> Answer:
    """Return what the call returns as soon as the log can be used. For each call after a disturbance."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except (InDoubtError, UnavailableError):
            if time.monotonic() > deadline:
                raise


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
