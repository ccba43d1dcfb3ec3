# SPDX-License-Identifier: Apache-2.0
"""Which of many equal things are told: each kind at once, then seldom, and all kinds together within a rate."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

INTERVAL_S: Final = 60.0
"""Between two notices of one kind."""
MOST_PER_S: Final = 5.0
"""Notices of all kinds together; as many may come at once."""
_MOST_KINDS: Final = 1_000


class _Kind(Generic[T]):
    __slots__ = ("count", "last", "told_s")

    def __init__(self, told_s: float, last: T) -> None:
        self.told_s = told_s
        self.count = 0
        """Since it was told."""
        self.last = last


class Notices(Generic[T]):
    """Decides what is told. Bounded, whatever peers think of. The caller has the clock."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._kinds: dict[Hashable, _Kind[T]] = {}
        self._allowance = MOST_PER_S
        self._at_s = 0.0

    def due(self, kind: Hashable, what: T, now_s: float) -> int:
        """Count one.

        Args:
            kind: What is equal.
            what: It, for `overdue`.
            now_s: The time, on a clock that does not go back.

        Returns:
            How many there were of this kind since it was told last, this one included, if it is to be told now; else 0.
        """
        known = self._kinds.get(kind)
        if known is None:
            if len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            known = self._kinds[kind] = _Kind(now_s - INTERVAL_S, what)
        known.count += 1
        known.last = what
        return self._told(known, now_s)

    def overdue(self, now_s: float) -> list[tuple[T, int]]:
        """What was counted and not told, and may be told by now: the last of each kind, and how many there were."""
        found = []
        for known in self._kinds.values():
            count = self._told(known, now_s) if known.count else 0
            if count:
                found.append((known.last, count))
        return found

    def _told(self, known: _Kind[T], now_s: float) -> int:
        if now_s - known.told_s < INTERVAL_S:
            return 0
        self._allowance = min(MOST_PER_S, self._allowance + (now_s - self._at_s) * MOST_PER_S)
        self._at_s = now_s
        if self._allowance < 1:
            return 0
        self._allowance -= 1
        count, known.count, known.told_s = known.count, 0, now_s
        return count
