"""Who is read next, when many peers send large frames at once.

An event loop reads a socket until it is empty. When hundreds of brokers register ten thousand topics each, one round
over their sockets would take most of a second, and everybody else's small request would wait for it. So a peer in the
middle of a large frame is read a piece at a time, and a few of them in each turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

LARGE_BYTES: Final = 128 * 1024
"""Of an unfinished frame: from here on its sender takes turns."""

_AT_A_TIME: Final = 8
"""A piece has up to 256 KB and takes some 100 us."""


class Turns:
    """A queue of peers who are not read at the moment. Lives on one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call back when it is this peer's turn, not in this turn of the loop."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(go_on)

    def _next(self) -> None:
        for _ in range(min(_AT_A_TIME, len(self._waiting))):
            self._waiting.popleft()()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
