# SPDX-License-Identifier: Apache-2.0
"""Waiting until what was appended is visible in this gateway's view."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Final

from api.view.snapshot import RouteView
from lake.commits import CommandOutcome

_OUTCOMES_KEPT: Final = 20_000
_PRUNE_WAITERS: Final = 1_000
"""From here on, waiters that have given up are dropped before another is added."""


class Visibility:
    """Who waits for which log offset, and what the fold said of the newest ones. Lives on one event loop.

    Attributes:
        awaited: Set while somebody waits.
    """

    def __init__(self) -> None:
        """Nobody waits."""
        self.awaited = asyncio.Event()
        self._outcomes: OrderedDict[int, CommandOutcome] = OrderedDict()
        self._waiters: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._predicates: dict[int, tuple[Callable[[RouteView], bool], asyncio.Future[bool]]] = {}
        self._serial = count()

    def outcome(self, offset: int) -> CommandOutcome | None:
        """The fold's word on an event, if it had one, and lately."""
        return self._outcomes.get(offset)

    async def wait(self, offset: int, timeout_s: float, shows: Callable[[RouteView], bool] | None = None) -> bool:
        """Wait until everything up to a log offset is visible.

        Args:
            offset: One that is not visible yet.
            timeout_s: At most so long.
            shows: Of a view: whether it shows already what is waited for.

        Returns:
            False when it was not in time.
        """
        serial = next(self._serial)
        future = self._waiter(offset, serial)
        if shows is not None:
            self._predicates[serial] = (shows, future)
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._predicates.pop(serial, None)

    def view_moved(self, view: RouteView, outcomes: list[CommandOutcome], folded_offset: int) -> None:
        """There is a newer view.

        Args:
            view: It.
            outcomes: Of the epochs that are new in it.
            folded_offset: Everything up to here is visible.
        """
        for outcome in outcomes:
            self._outcomes[outcome.offset] = outcome
        while len(self._outcomes) > _OUTCOMES_KEPT:
            self._outcomes.popitem(last=False)
        self.folded(folded_offset)
        for shows, future in list(self._predicates.values()):
            if not future.done() and shows(view):
                future.set_result(True)

    def folded(self, offset: int) -> None:
        """Everything up to a log offset is visible."""
        while self._waiters and (self._waiters[0][0] <= offset or self._waiters[0][2].done()):
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(True)
        if not self._waiters:
            self.awaited.clear()

    def _waiter(self, offset: int, serial: int) -> asyncio.Future[bool]:
        if len(self._waiters) >= _PRUNE_WAITERS:
            self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]
            heapq.heapify(self._waiters)
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (offset, serial, future))
        self.awaited.set()
        return future
