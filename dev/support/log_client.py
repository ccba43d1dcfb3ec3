# SPDX-License-Identifier: Apache-2.0
"""The event log of a gateway in a test: in this process, without the one of its own that `serve` gives it."""

from __future__ import annotations

from collections.abc import Sequence

from api.settings.gateway import GatewaySettings
from eventlog.base import Appended, Entry, EventLog, LogEnd
from eventlog.worker import ResumingLog


class LocalLogClient:
    """An `eventlog.group_commit.LogClient`, which appends at once."""

    late_after_s = None

    def __init__(self, event_log: EventLog, settings: GatewaySettings) -> None:
        self._log, self.limits = event_log, event_log.limits
        self._appends = ResumingLog(event_log, settings.gateway_id, settings.gap_s)

    async def open(self) -> str:
        """The caller has opened it."""
        return self._log.lineage

    async def end(self) -> LogEnd:
        return self._log.end()

    async def append(self, entries: Sequence[Entry]) -> list[Appended]:
        return self._appends.append(entries)

    async def close(self) -> None:
        """The log is the caller's."""
