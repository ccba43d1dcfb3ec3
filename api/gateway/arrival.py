# SPDX-License-Identifier: Apache-2.0
"""Age of something that another machine has dated: measured from its arrival here, on this machine's steady clock.

Clocks of two machines may differ by minutes, so the date itself says little. The date is used once: for what exists
when this process starts, because its arrival is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Arrival:
    """The newest thing of a kind.

    Args:
        clock: Seconds; never goes back.
        wall_clock: Seconds since 1970.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall_clock = clock, wall_clock
        self._date_s: float | None = None
        self._came_s = 0.0

    def came(self, date_s: float) -> None:
        """Take note of the newest one; the same date again is the same one."""
        if date_s == self._date_s:
            return
        is_first, self._date_s = self._date_s is None, date_s
        self._came_s = self._clock() - (max(0.0, self._wall_clock() - date_s) if is_first else 0.0)

    @property
    def age_s(self) -> float | None:
        """Seconds since it came; None before the first."""
        return None if self._date_s is None else self._clock() - self._came_s

    @property
    def now_ms(self) -> int:
        """The time now by the clock that dates them, ms since 1970; this machine's before the first."""
        age_s = self.age_s
        if self._date_s is None or age_s is None:
            return round(self._wall_clock() * 1000)
        return round((self._date_s + age_s) * 1000)

    @property
    def ahead_s(self) -> float | None:
        """By how much the clock that dates them is ahead of this machine's, seconds; None before the first."""
        return None if self._date_s is None else max(0.0, self.now_ms / 1000 - self._wall_clock())
