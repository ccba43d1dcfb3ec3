# SPDX-License-Identifier: Apache-2.0
"""Refused and evicted connections of a listener: counted by reason, and logged within bounds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

log = structlog.get_logger("routelake.gateway")

LOG_INTERVAL_S: Final = 10.0
"""Minimum time between two log lines of one reason, in seconds."""


class Refusals:
    """Counts of one listener. Belongs to one event loop.

    Attributes:
        counts: Number of refusals since the start, by reason.
    """

    def __init__(self, listener: str, count: Callable[[str], None] = lambda _: None) -> None:
        """Create counts of zero.

        Args:
            listener: Name of the listener in each log line, for example ``remoting``.
            count: Callback for each refusal, with the reason.
        """
        self.counts: Counter[str] = Counter()
        self._listener = listener
        self._count = count
        self._logged: dict[str, tuple[float, int]] = {}

    def note(self, reason: str, peer: str, detail: str) -> None:
        """Count a refusal. Log the first of its reason, then at most one in `LOG_INTERVAL_S`, with the number of all.

        Args:
            reason: One of a fixed set, never text from a peer, because it becomes a metric's label.
            peer: Peer as host:port.
            detail: Detail for a person, truncated to 200 characters.
        """
        self.counts[reason] += 1
        self._count(reason)
        now = time.monotonic()
        last_s, before = self._logged.get(reason, (-LOG_INTERVAL_S, 0))
        if now - last_s >= LOG_INTERVAL_S:
            count = self.counts[reason]
            self._logged[reason] = now, count
            log.warning(
                "connection or request refused",
                listener=self._listener,
                reason=reason,
                peer=peer,
                detail=detail[:200],
                since_last_line=count - before,
                in_all=count,
            )
