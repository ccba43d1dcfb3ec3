"""Waiting for the next view: what long polls stand on.

The gateway swaps its view on the event loop. While anybody waits, one task looks every few milliseconds whether it
did, and wakes everybody; each then looks at its own topic, in the cache of encoded answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_LOOK_S: Final = 0.02


class ViewWatch:
    """Wakes waiters when a view's serial has changed.

    Args:
        serial: Gives the serial of the current view.
        max_waiting: One more is not taken in.
    """

    def __init__(self, serial: Callable[[], int], max_waiting: int) -> None:
        """Nobody waits yet."""
        self._serial = serial
        self._max_waiting = max_waiting
        self._waiting: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def next_view(self, seen: int, timeout_s: float) -> bool:
        """Wait for a view other than the one with this serial.

        Returns:
            False when the time is over, too many wait already, or the door closes.
        """
        if self._serial() != seen:
            return True
        if self._closed or len(self._waiting) >= self._max_waiting:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(seen))
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(future)
        return not self._closed

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
                future.set_result(None)
