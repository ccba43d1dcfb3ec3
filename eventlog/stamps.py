# SPDX-License-Identifier: Apache-2.0
"""Event times of a SQLite log, from a clock that may be wrong (ADR 22).

Three rules apply, each under the log's write lock:

1. Time never goes back: an event time is never less than the last one on the log.
2. Time never stands still. While the clock is behind the log, event time advances at nine tenths of the pace of the
   steady clock. So brokers expire, and the clock catches up.
3. Time does not leap. If the clock is far beyond the last event time, nothing is written. The error names the remedy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from eventlog.base import Clock, now_ms
from schemas.errors import UnavailableError

SteadyClock = Callable[[], float]
"""Monotonic clock, seconds. Setting the system clock does not change it."""

MAX_LEAP_MS: Final = 3_600_000
"""Maximum distance of the clock from the expected event time, in a process that has appended before."""

MAX_PAUSE_MS: Final = 31 * 24 * 3_600_000
"""Maximum distance of the clock from the log's last event time, in a process that has appended nothing yet. No process
may have run for that long."""

_EARLIEST_MS: Final = 1_577_836_800_000
"""The begin of the year 2020. A clock before that time was never set."""

_LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last possible timestamp."""


class ClockError(UnavailableError):
    """Error: the clock is not plausible. Nothing was written."""


class Stamps:
    """Source of event times for one log. Make one call at a time.

    Args:
        clock: The wall clock.
        steady: Clock that keeps its pace if the wall clock is set.
        max_leap_ms: Maximum leap, as `MAX_LEAP_MS`. 0: every time of the clock is accepted.
    """

    def __init__(
        self, clock: Clock = now_ms, steady: SteadyClock | None = None, max_leap_ms: int = MAX_LEAP_MS
    ) -> None:
        self._clock, self._steady = clock, steady or steady_s
        self._max_leap_ms = max_leap_ms
        self._stamped_us: tuple[int, int] | None = None
        """The last event time from this object, and the steady clock at that time, both in microseconds: events may be
        less than a millisecond apart, and their parts of a millisecond add up."""

    def next(self, last_ms: int | None) -> int:
        """Return the event time of the next records, in milliseconds.

        Args:
            last_ms: The last event time on the log, from any process, or None in an empty log.

        Raises:
            ClockError: The clock is not plausible.
        """
        time_ms, steady_us = self._clock(), round(self._steady() * 1_000_000)
        floor_us = expected_us = (last_ms or 0) * 1000
        limit_ms = MAX_PAUSE_MS
        if self._stamped_us is not None:
            before_us, before_steady_us = self._stamped_us
            passed_us = max(0, steady_us - before_steady_us)
            expected_us = max(expected_us, before_us + passed_us)
            floor_us = max(floor_us, before_us + passed_us * 9 // 10)
            limit_ms = self._max_leap_ms
        floor_ms, expected_ms = floor_us // 1000, expected_us // 1000
        if self._max_leap_ms and time_ms < _EARLIEST_MS and not floor_ms:
            raise ClockError(
                f"this machine's clock says {_text(time_ms)}, so it was never set. Set it. No restart is needed.",
                clock_ms=time_ms,
            )
        if time_ms > _LATEST_MS or (self._max_leap_ms and expected_ms and time_ms > expected_ms + limit_ms):
            raise ClockError(
                f"this machine's clock says {_text(time_ms)}, {_span(time_ms - expected_ms)} later than the event log "
                f"expects ({_text(expected_ms)}). Set the clock. If the clock is right, {self._way_on()}",
                clock_ms=time_ms,
                expected_ms=expected_ms,
            )
        stamp_ms = min(max(time_ms, floor_ms), max(_LATEST_MS, last_ms or 0))
        self._stamped_us = max(stamp_ms * 1000, floor_us), steady_us
        return stamp_ms

    def _way_on(self) -> str:
        if self._stamped_us is None:
            return "start the gateway once with --max-clock-leap-s 0."
        return "restart the gateway."


def steady_s() -> float:
    """Steady clock, in seconds. If the system supports it, time in which the machine is suspended counts."""
    return time.clock_gettime(_STEADY)


_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _text(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def _span(ms: int) -> str:
    seconds = ms // 1000
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {name}"
    return f"{seconds} seconds"
