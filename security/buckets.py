# SPDX-License-Identifier: Apache-2.0
"""Token buckets, one for each key. No I/O, no clock.

A bucket holds at most its burst and fills at its rate; whoever takes what is in it is let through. So of any stretch of
time no more is let through than the burst and what flowed in meanwhile. What a write costs may be known only when it is
done: then it is charged, the bucket may fall below empty, and whoever comes next waits until it is above it again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MAX_KEYS: Final = 10_000
"""Maximum number of buckets of one kind, some 2 MB. The one that was used least recently is dropped."""


class Buckets:
    """Buckets of one kind. One thread at a time."""

    def __init__(self, per_s: float, burst: float, max_keys: int = MAX_KEYS) -> None:
        """Start with full buckets.

        Args:
            per_s: Units that flow into a bucket per second.
            burst: Units that a full bucket holds.
            max_keys: For one more, the bucket that was not used for longest is forgotten, and is full when it is
                asked for again.
        """
        self._per_s = per_s
        self._burst = burst
        self._max_keys = max_keys
        self._filled: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """key -> (level, as of when)."""

    def __len__(self) -> int:
        """Return the number of buckets that are kept."""
        return len(self._filled)

    def level(self, key: str, now_s: float) -> float:
        """Return the level of a bucket; below zero, the debt."""
        found = self._filled.get(key)
        if found is None:
            return self._burst
        level, then_s = found
        return min(self._burst, level + self._per_s * max(0.0, now_s - then_s))

    def wait_s(self, key: str, now_s: float, cost: float = 0.0) -> float:
        """Return the time until a bucket holds ``cost``, or is full, in seconds; 0.0 if it does now.

        Args:
            key: Owner of the bucket.
            now_s: Current time, in seconds, of a clock that never goes back.
            cost: Units to take. 0.0: they are charged later, and the bucket must not be below empty.
        """
        lacking = min(cost, self._burst) - self.level(key, now_s)
        return 0.0 if lacking <= 0 else lacking / self._per_s if self._per_s > 0 else float("inf")

    def take(self, key: str, now_s: float, cost: float = 1.0) -> float:
        """Take units from a bucket if they are there; a refused request costs nothing.

        Args:
            key: Owner of the bucket.
            now_s: Current time, in seconds, of a clock that never goes back.
            cost: Units to take. More than a bucket holds is taken from a full one, which is then below empty.

        Returns:
            0.0 if the units were taken, else the time until they can be, in seconds.
        """
        wait_s = self.wait_s(key, now_s, cost)
        if not wait_s:
            self.charge(key, now_s, cost)
        elif key in self._filled:
            self._filled.move_to_end(key)  # whoever asks again and again is not forgotten
        return wait_s

    def charge(self, key: str, now_s: float, cost: float) -> None:
        """Take so much, whether it is there or not; a negative cost is given back."""
        then_s = self._filled[key][1] if key in self._filled else now_s
        self._filled[key] = min(self._burst, self.level(key, now_s) - cost), max(now_s, then_s)
        self._filled.move_to_end(key)
        if len(self._filled) > self._max_keys:
            self._filled.popitem(last=False)

    def used(self, key: str, now_s: float) -> float:
        """Return the part of its burst that a bucket lacks: 0.0 none, 1.0 all of it."""
        return 1.0 - self.level(key, now_s) / self._burst

    def most_used(self, now_s: float) -> float:
        """`used` of the bucket that lacks most."""
        return max((self.used(key, now_s) for key in self._filled), default=0.0)
