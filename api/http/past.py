"""Questions about the past, off the event loop.

`api.view.history.History` blocks while it reads Delta tables. Here its reads run in a few threads of their own; a
bounded number waits for them, and more are told to come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from api.http.problems import busy
from api.view.history import History
from schemas.errors import UnavailableError

_T = TypeVar("_T")


class Past:
    """A `History`, asked from the event loop.

    Args:
        history: None where a gateway serves none.
        threads: Reads at a time.
        queue: Reads that may wait for a thread.
    """

    def __init__(self, history: History | None, *, threads: int, queue: int) -> None:
        """Threads are started when they are needed."""
        self._history = history
        self._pool = ThreadPoolExecutor(threads, "http-history")
        self._free = threads + queue

    async def ask(self, question: Callable[[History], _T]) -> _T:
        """Run a question in a thread.

        Raises:
            RoutelakeError: whatever the question raises; UnavailableError without a history.
            Problem: too many questions at once.
        """
        history = self._history
        if history is None:
            raise UnavailableError("this gateway serves no history")
        if self._free <= 0:
            raise busy("too many questions about the past at once; try again")
        self._free -= 1
        try:
            # Shielded: a caller that goes away does not free the thread.
            running = asyncio.get_running_loop().run_in_executor(self._pool, lambda: question(history))
            running.add_done_callback(self._done)
        except RuntimeError as error:  # the pool was shut down
            self._free += 1
            raise UnavailableError("this gateway is stopping") from error
        return await asyncio.shield(running)

    def close(self) -> None:
        """Take no more questions."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, running: asyncio.Future[_T]) -> None:
        self._free += 1
        if not running.cancelled():
            running.exception()  # looked at, so that nobody complains when the caller has gone
