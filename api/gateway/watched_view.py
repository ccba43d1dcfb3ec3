# SPDX-License-Identifier: Apache-2.0
"""WatchedView: a view that newer ones replace, and the requests that wait for it to reach an offset of the event log.

`Arrival` is the age of something that another machine has dated, measured from its arrival here on the steady clock.
Clocks of two machines may differ by minutes, so the date itself says little. The date is used once: for what exists
when this process starts, because its arrival is unknown.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Final

from nameserver.view.snapshot import RouteView


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
        if self._date_s is None:
            return round(self._wall_clock() * 1000)
        return round((self._date_s + self._clock() - self._came_s) * 1000)

    @property
    def ahead_s(self) -> float | None:
        """By how much the clock that dates them is ahead of this machine's, seconds; None before the first."""
        return None if self._date_s is None else max(0.0, self.now_ms / 1000 - self._wall_clock())


_PRUNE_WAITERS: Final = 1_000
"""From here on, waiters that have given up are dropped before another is added, whenever most of them may have."""

OnMove = Callable[[RouteView, RouteView], None]


class WatchedView:
    """A view that is replaced by a newer one again and again. Lives on one event loop.

    Attributes:
        view: The newest view.
        offset: Offset of the event log up to which the view shows all results.
        event: Age of the newest event that it shows, and the log's time now.
    """

    def __init__(self) -> None:
        """Begin with an empty view and no waiting request."""
        self.view = RouteView.empty()
        self.event = Arrival()
        self.offset = -1
        self._followers: list[OnMove] = []
        self._epoch_followers: list[Callable[[], None]] = []
        self._waiters: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._prune_at = 0
        self._reads: set[asyncio.Future[bool]] = set()
        self._reads_end = False
        self._serial = count()

    def follow(self, moved: OnMove) -> None:
        """Call back with the view before and after, whenever more than times of heartbeats may have changed."""
        self._followers.append(moved)

    def follow_epochs(self, moved: Callable[[], None]) -> None:
        """Call back whenever the view is of a newer epoch, be it of times of heartbeats alone."""
        self._epoch_followers.append(moved)

    def move(self, view: RouteView, offset: int) -> None:
        """There is a newer view, and it shows what came of the log up to an offset."""
        previous, self.view, self.offset = self.view, view, offset
        if view.log_offset >= 0:
            self.event.came(view.event_time.timestamp())
        if view.serial != previous.serial:
            for moved in self._followers:
                moved(previous, view)
        if view.epoch != previous.epoch:
            for epoch_moved in self._epoch_followers:
                epoch_moved()
        self.reach(offset)

    def reach(self, offset: int) -> None:
        """Up to an offset the log has changed nothing that the view does not show."""
        self.offset = offset
        while self._waiters and (self._waiters[0][0] <= offset or self._waiters[0][2].done()):
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(True)

    def end_reads(self) -> None:
        """No read waits, now and from now on: the server stops. Whoever has written is still told what came of it."""
        self._reads_end = True
        for future in self._reads:
            _give_up(future)

    async def wait_for(self, offset: int, timeout_s: float, *, is_read: bool = False) -> bool:
        """Wait until the view shows the event log up to an offset. False if that takes too long.

        Args:
            offset: Offset of the event log.
            timeout_s: Maximum wait, in seconds.
            is_read: The caller is a read, which may be repeated later or elsewhere: `end_reads` ends the wait.
        """
        if self.offset >= offset:
            return True
        if is_read and self._reads_end:
            return False
        if len(self._waiters) >= max(_PRUNE_WAITERS, self._prune_at):
            self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]
            heapq.heapify(self._waiters)
            self._prune_at = 2 * len(self._waiters)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        heapq.heappush(self._waiters, (offset, next(self._serial), future))
        timer = loop.call_later(timeout_s, _give_up, future)  # for half of what asyncio.wait_for costs
        if is_read:
            self._reads.add(future)
        try:
            return await future
        finally:
            timer.cancel()
            self._reads.discard(future)


def _give_up(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(False)
