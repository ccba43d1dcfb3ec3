# SPDX-License-Identifier: Apache-2.0
"""Waiting for the next view: what long polls stand on.

The gateway swaps its view on the event loop. While anybody waits, one task looks every few milliseconds whether it
did, and wakes everybody; each then looks at its own topic, in the cache of encoded answers.

Where too many wait, one of the address that has most waiting is sent home; that may be the one that has just come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final

_LOOK_S: Final = 0.02


class Woken(Enum):
    """Why a wait has ended."""

    CHANGED = 1
    OVER = 2
    """The time, or the server's life."""
    CROWDED = 3
    """Too many wait."""


class ViewWatch:
    """Wakes waiters when a view's serial has changed.

    Args:
        serial: Gives the serial of the current view.
        max_waiting: One more, and one has to go.
        on_crowded: Told the address of whoever goes.
    """

    def __init__(
        self, serial: Callable[[], int], max_waiting: int, on_crowded: Callable[[str], None] = lambda _: None
    ) -> None:
        """Nobody waits yet."""
        self._serial = serial
        self._max_waiting = max_waiting
        self._on_crowded = on_crowded
        self._waiting: dict[asyncio.Future[Woken], str] = {}
        self._per_address: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def next_view(self, seen: int, timeout_s: float, address: str) -> Woken:
        """Wait for a view other than the one with this serial.

        Args:
            seen: That serial.
            timeout_s: For how long.
            address: Of whoever waits (`remoting.bounds.address_of`).
        """
        if self._serial() != seen:
            return Woken.CHANGED
        if self._closed:
            return Woken.OVER
        if len(self._waiting) >= self._max_waiting and not self._make_room(address):
            return Woken.CROWDED
        future: asyncio.Future[Woken] = asyncio.get_running_loop().create_future()
        self._waiting[future] = address
        self._per_address[address] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(seen))
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return Woken.OVER
        finally:
            self._forget(future)

    def _make_room(self, address: str) -> bool:
        """Send one of the address with most home; False if that is the one that comes."""
        most, count = max(self._per_address.items(), key=lambda entry: entry[1], default=(address, 0))
        if count <= self._per_address[address] + 1:
            self._on_crowded(address)
            return False
        future = next(future for future, other in self._waiting.items() if other == most)
        self._forget(future)
        if not future.done():
            future.set_result(Woken.CROWDED)
        self._on_crowded(most)
        return True

    def _forget(self, future: asyncio.Future[Woken]) -> None:
        address = self._waiting.pop(future, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    def close(self) -> None:
        """Send everybody home, now and from now on: the server stops."""
        self._closed = True
        self._wake()

    async def _look(self, seen: int) -> None:
        while self._waiting:
            await asyncio.sleep(_LOOK_S)
            if self._serial() != seen:
                seen = self._serial()
                self._wake()

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(Woken.OVER if self._closed else Woken.CHANGED)
