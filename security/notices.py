# SPDX-License-Identifier: Apache-2.0
"""Bounded reports of many equal events: each kind at once, then rarely, and all kinds together within a rate.

The rate is divided into shares. A peer that makes up many kinds in one share takes nothing from another share.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

INTERVAL_S: Final = 60.0
"""Minimum time between two reports of one kind, in seconds."""
MOST_PER_S: Final = 5.0
"""Maximum rate of reports of all shares together, per second. One share may send as many at once."""
_MOST_KINDS: Final = 200
"""Maximum number of kinds in one share."""


class _Kind(Generic[T]):
    __slots__ = ("count", "last", "reported_s")

    def __init__(self, reported_s: float, last: T) -> None:
        self.reported_s = reported_s
        self.count = 0
        """Number of events since the last report."""
        self.last = last


class _Share(Generic[T]):
    __slots__ = ("allowance", "at_s", "forgotten", "kinds")

    def __init__(self) -> None:
        self.kinds: dict[Hashable, _Kind[T]] = {}
        self.allowance = MOST_PER_S
        self.at_s = 0.0
        self.forgotten = 0
        """Number of events of kinds that were dropped before they were reported."""


class Notices(Generic[T]):
    """Decides which events are reported. Its size is bounded for any number of kinds. The caller passes the time."""

    def __init__(self) -> None:
        """Start without any report."""
        self._shares: dict[Hashable, _Share[T]] = {}

    def due(self, kind: Hashable, what: T, now_s: float, share: Hashable = None) -> int:
        """Count one event, and decide whether to report it now.

        Args:
            kind: Key that equal events have in common.
            what: Event, for `overdue`.
            now_s: Current time of a clock that does not go back, in seconds.
            share: Value of a fixed set, never chosen by a peer. Each share has as much room and time as any other.

        Returns:
            0 if the event is not to be reported now. Otherwise the number of events of this kind since the last report,
            with this one.
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
        """Return the events to report that were only counted: the last of each kind, and their number.

        Drop the kinds that have not occurred since their last report.
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
        """Return by share the number of events that are not reported, because of too many kinds. Reset the numbers."""
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
