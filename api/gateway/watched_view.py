# SPDX-License-Identifier: Apache-2.0
"""WatchedView: a view that newer ones replace, and the requests that wait for it to reach an offset of the event log.

`Arrival` is the age of something that another machine has dated, measured from its arrival here on the steady clock.
Clocks of two machines may differ by minutes, so the date itself says little. The date is used only for what already
exists when this process starts, because its arrival is unknown.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

from nameserver.view.snapshot import RouteView

T = TypeVar("T")


class Arrival:
    """Arrival of the newest item of a kind.

    Args:
        clock: Clock in seconds that never goes back.
        wall_clock: Seconds since 1970.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._clock, self._wall_clock = clock, wall_clock
        self._date_s: float | None = None
        self._came_s = 0.0

    def came(self, date_s: float) -> None:
        """Note the arrival of the newest item. The same date again is the same item."""
        if date_s == self._date_s:
            return
        is_first, self._date_s = self._date_s is None, date_s
        self._came_s = self._clock() - (max(0.0, self._wall_clock() - date_s) if is_first else 0.0)

    @property
    def age_s(self) -> float | None:
        """Seconds since the item arrived. None before the first."""
        return None if self._date_s is None else self._clock() - self._came_s

    @property
    def now_ms(self) -> int:
        """Time now by the clock that dates the items, in ms since 1970. This machine's time before the first item."""
        if self._date_s is None:
            return round(self._wall_clock() * 1000)
        return round((self._date_s + self._clock() - self._came_s) * 1000)

    @property
    def ahead_s(self) -> float | None:
        """Lead of the clock that dates the items over this machine's, in seconds. None before the first."""
        return None if self._date_s is None else max(0.0, self.now_ms / 1000 - self._wall_clock())


_PRUNE_WAITERS: Final = 1_000
"""Number of waiters above which those that have given up are dropped, as soon as most of them may have."""

_TICK_S: Final = 0.01
"""Resolution of the time after which waiters give up, in seconds: those of one tick share a timer."""

OnMove = Callable[[RouteView, RouteView], None]


class _Waiter(NamedTuple):
    """A future that is completed when the view shows an offset. ``serial`` is its place among equal offsets.

    ``late`` holds the future until then: the waiters that give up at the same tick.
    """

    offset: int
    serial: int
    future: asyncio.Future[Any]
    shown: object
    late: dict[asyncio.Future[Any], object]


class WatchedView:
    """A view that newer ones replace. Used on one event loop.

    Attributes:
        view: The newest view.
        offset: Offset of the event log up to which the view shows all results.
        event: Age of the newest event that the view shows, and the log's time now.
    """

    def __init__(self) -> None:
        """Begin with an empty view and no waiting request."""
        self.view = RouteView.empty()
        self.event = Arrival()
        self.offset = -1
        self._followers: list[OnMove] = []
        self._epoch_followers: list[Callable[[], None]] = []
        self._waiters: list[_Waiter] = []
        self._prune_at = 0
        self._ticks: dict[int, dict[asyncio.Future[Any], object]] = {}
        """Waiters by the tick at which they give up, with the result that they get then."""
        self._reads: set[asyncio.Future[bool]] = set()
        self._reads_end = False
        self._serial = count()

    def follow(self, moved: OnMove) -> None:
        """Call back with the view before and after each move that may change more than times of heartbeats."""
        self._followers.append(moved)

    def follow_epochs(self, moved: Callable[[], None]) -> None:
        """Call back whenever the view is of a newer epoch, even if only times of heartbeats have changed."""
        self._epoch_followers.append(moved)

    def move(self, view: RouteView, offset: int) -> None:
        """Replace the view by a newer one that shows all results of the log up to an offset."""
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
        """Note that the view shows all changes of the log up to an offset, and wake the requests that wait for it."""
        self.offset = offset
        while self._waiters and (self._waiters[0].offset <= offset or self._waiters[0].future.done()):
            waiter = heapq.heappop(self._waiters)
            waiter.late.pop(waiter.future, None)
            if not waiter.future.done():
                waiter.future.set_result(waiter.shown)

    def end_reads(self) -> None:
        """End all waits of reads, and let none begin, because the server stops. Writers still get their outcomes."""
        self._reads_end = True
        for future in self._reads:
            if not future.done():
                future.set_result(False)

    async def wait_for(self, offset: int, timeout_s: float, *, is_read: bool = False) -> bool:
        """Wait until the view shows the event log up to an offset. Return False if that takes too long.

        Args:
            offset: Offset of the event log.
            timeout_s: Maximum wait, in seconds.
            is_read: Whether the caller is a read, which may be repeated later or elsewhere. `end_reads` ends its wait.
        """
        if self.offset >= offset:
            return True
        if is_read and self._reads_end:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.finish(future, offset, timeout_s, shown=True, late=False)
        if not is_read:
            return await future
        self._reads.add(future)
        try:
            return await future
        finally:
            self._reads.discard(future)

    def finish(self, future: asyncio.Future[T], offset: int, timeout_s: float, *, shown: T, late: T) -> None:
        """Complete a future when the view shows the event log up to an offset, or when that takes too long.

        Args:
            future: The future.
            offset: Offset of the event log.
            timeout_s: Maximum wait, in seconds.
            shown: Result of the future if the view shows the offset.
            late: Result of the future if the wait took too long.
        """
        if self.offset >= offset:
            future.set_result(shown)
            return
        if len(self._waiters) >= max(_PRUNE_WAITERS, self._prune_at):
            self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]
            heapq.heapify(self._waiters)
            self._prune_at = 2 * len(self._waiters)
        tick = self._tick_after(future.get_loop(), timeout_s)
        tick[future] = late
        heapq.heappush(self._waiters, _Waiter(offset, next(self._serial), future, shown, tick))

    def _tick_after(self, loop: asyncio.AbstractEventLoop, timeout_s: float) -> dict[asyncio.Future[Any], object]:
        """Waiters that give up together. A timer for each would cost more than the rest of its wait."""
        tick = math.ceil((loop.time() + timeout_s) / _TICK_S)
        late = self._ticks.get(tick)
        if late is None:
            late = self._ticks[tick] = {}
            loop.call_at(tick * _TICK_S, self._give_up, tick)
        return late

    def _give_up(self, tick: int) -> None:
        for future, late in self._ticks.pop(tick).items():
            if not future.done():
                future.set_result(late)
