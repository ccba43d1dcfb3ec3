# SPDX-License-Identifier: Apache-2.0
"""Which of many equal things are told: each kind at once, then seldom, and all kinds together within a rate."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

INTERVAL_S: Final = 60.0
"""Between two notices of one kind."""
MOST_PER_S: Final = 5.0
"""Notices of all kinds together; as many may come at once."""
_MOST_KINDS: Final = 1_000


class Notices:
    """Decides what is told. Bounded, whatever peers think of. The caller has the clock."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._told: dict[Hashable, list[float]] = {}
        """kind -> when it was told, how often it happened since."""
        self._allowance = MOST_PER_S
        self._at_s = 0.0

    def due(self, kind: Hashable, now_s: float) -> int:
        """Count one.

        Args:
            kind: What is equal.
            now_s: The time, on a clock that does not go back.

        Returns:
            How many there were of this kind since it was told last, this one included, if it is to be told now; else 0.
        """
        known = self._told.get(kind)
        if known is None:
            if len(self._told) >= _MOST_KINDS:
                del self._told[next(iter(self._told))]
            known = self._told[kind] = [-INTERVAL_S + now_s, 0]
        known[1] += 1
        if now_s - known[0] < INTERVAL_S:
            return 0
        self._allowance = min(MOST_PER_S, self._allowance + (now_s - self._at_s) * MOST_PER_S)
        self._at_s = now_s
        if self._allowance < 1:
            return 0
        self._allowance -= 1
        count = int(known[1])
        known[:] = now_s, 0
        return count
