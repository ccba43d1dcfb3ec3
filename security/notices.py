# SPDX-License-Identifier: Apache-2.0
"""Bounded reports of many equal things: each kind at once, then seldom, and all kinds together within a rate.

The rate is divided into shares: kinds that a stranger makes up in one share take nothing from another share.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

INTERVAL_S: Final = 60.0
"""Between two notices of one kind."""
MOST_PER_S: Final = 5.0
"""Notices of all shares together; as many of one share may come at once."""
_MOST_KINDS: Final = 200
"""Maximum number of kinds in one share."""


class _Kind(Generic[T]):
    __slots__ = ("count", "last", "reported_s")

    def __init__(self, reported_s: float, last: T) -> None:
        self.reported_s = reported_s
        self.count = 0
        """Since it was reported."""
        self.last = last


class _Share(Generic[T]):
    __slots__ = ("allowance", "at_s", "forgotten", "kinds")

    def __init__(self) -> None:
        self.kinds: dict[Hashable, _Kind[T]] = {}
        self.allowance = MOST_PER_S
        self.at_s = 0.0
        self.forgotten = 0
        """Counted of kinds that were dropped before they were told."""


class Notices(Generic[T]):
    """Decides what is told. Bounded, whatever peers think of. The caller has the clock."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self._shares: dict[Hashable, _Share[T]] = {}

    def due(self, kind: Hashable, what: T, now_s: float, share: Hashable = None) -> int:
        """Count one thing, and decide whether to report it now.

        Args:
            kind: Key that equal things have in common.
            what: The thing, for `overdue`.
            now_s: Current time, in seconds, of a clock that does not go back.
            share: Value of a fixed set, never chosen by a peer. Each share has as much room and time as any other.

        Returns:
            Number of things of this kind since the last report, this one included, if it is to be reported now; else 0.
        """
        of_share = self._shares.get(share)
        if of_share is None:
            of_share = self._shares[share] = _Share()
        known = of_share.kinds.get(kind)
        if known is None:
            if len(of_share.kinds) >= _MOST_KINDS:
                of_share.forgotten += of_share.kinds.pop(next(iter(of_share.kinds))).count
            known = of_share.kinds[kind] = _Kind(now_s - INTERVAL_S, what)
        known.count += 1
        known.last = what
        return self._told(of_share, known, now_s)

    def overdue(self, now_s: float) -> list[tuple[T, int]]:
        """Return the things to report that were counted only: the last of each kind, and their number.

        Drop the kinds that were reported and did not come again since.
        """
        found = []
        for share in self._shares.values():
            for kind, known in list(share.kinds.items()):
                count = self._told(share, known, now_s) if known.count else 0
                if count:
                    found.append((known.last, count))
                elif not known.count and now_s - known.reported_s >= INTERVAL_S:
                    del share.kinds[kind]
        return found

    def forgotten(self) -> dict[Hashable, int]:
        """By share, how many were counted and will not be told, as there were too many kinds; from now on none."""
        found = {name: share.forgotten for name, share in self._shares.items() if share.forgotten}
        for share in self._shares.values():
            share.forgotten = 0
        return found

    def _told(self, share: _Share[T], known: _Kind[T], now_s: float) -> int:
        if now_s - known.reported_s < INTERVAL_S:
            return 0
        rate = MOST_PER_S / sum(now_s - other.at_s < INTERVAL_S or other is share for other in self._shares.values())
        share.allowance = min(MOST_PER_S, share.allowance + (now_s - share.at_s) * rate)
        share.at_s = now_s
        if share.allowance < 1:
            return 0
        share.allowance -= 1
        count, known.count, known.reported_s = known.count, 0, now_s
        return count
