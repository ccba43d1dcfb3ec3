# SPDX-License-Identifier: Apache-2.0
"""Waiting for the next view: what long polls stand on.

The gateway says when one of its views has moved (`MovingView.follow`), and everybody who waits is woken; each then
looks at its own topic, in the cache of encoded answers.

Where too many wait, one of the address that has most waiting is answered early; that may be the one that has just come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any


class Woken(Enum):
    """Why a wait has ended."""

    CHANGED = 1
    OVER = 2
    """The time is over, the client has gone, or the server stops."""
    CROWDED = 3
    """Too many wait."""


class ViewWatch:
    """Wakes waiters when the view has moved. Lives on the gateway's event loop.

    Args:
        max_waiting: One more, and one has to go.
        on_crowded: Told the address of whoever goes.
    """

    def __init__(self, max_waiting: int, on_crowded: Callable[[str], None] = lambda _: None) -> None:
        """Nobody waits yet."""
        self._max_waiting = max_waiting
        self._on_crowded = on_crowded
        self._waiting: dict[asyncio.Future[Woken], str] = {}
        self._per_address: Counter[str] = Counter()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def next_view(self, timeout_s: float, address: str, gone: asyncio.Future[Any]) -> Woken:
        """Wait until the view moves; between a look at the view and this call nothing may be awaited.

        Args:
            timeout_s: For how long.
            address: Of whoever waits (`remoting.bounds.address_of`).
            gone: Done when the client has gone.
        """
        if self._closed:
            return Woken.OVER
        if len(self._waiting) >= self._max_waiting and not self._make_room(address):
            return Woken.CROWDED
        woken: asyncio.Future[Woken] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = address
        self._per_address[address] += 1
        try:
            await asyncio.wait((woken, gone), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return woken.result() if woken.done() else Woken.OVER
        finally:
            self._forget(woken)

    def _make_room(self, address: str) -> bool:
        """Wake one of the address with most; False if that is the one that comes."""
        most, count = max(self._per_address.items(), key=lambda entry: entry[1], default=(address, 0))
        if count <= self._per_address[address] + 1:
            self._on_crowded(address)
            return False
        woken = next(woken for woken, other in self._waiting.items() if other == most)
        self._forget(woken)
        if not woken.done():
            woken.set_result(Woken.CROWDED)
        self._on_crowded(most)
        return True

    def _forget(self, woken: asyncio.Future[Woken]) -> None:
        address = self._waiting.pop(woken, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

    def view_moved(self) -> None:
        """Wake everybody: there is another view."""
        self._wake(Woken.CHANGED)

    def close(self) -> None:
        """Wake everybody, now and from now on: the server stops."""
        self._closed = True
        self._wake(Woken.OVER)

    def _wake(self, reason: Woken) -> None:
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(reason)
