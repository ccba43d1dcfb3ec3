# SPDX-License-Identifier: Apache-2.0
"""Reads of history, off the event loop.

`api.view.history.History` blocks while it reads Delta tables. Here its reads run in a few threads of their own; a
bounded number waits for them. Askers (an address and what it asks for) take turns, each in its own order, so that
nobody waits behind all that somebody else has asked. Where there is no room, the newest read of whoever has most
waiting is refused as busy.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from api.http.problems import busy
from api.view.history import History
from schemas.errors import UnavailableError

_T = TypeVar("_T")

_STOPPING = "this gateway is stopping"

_Read = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class HistoryPool:
    """A `History`, asked from the event loop; a fair queue of askers, bounded.

    Args:
        history: What is read.
        threads: Reads at a time.
        queue: Reads that may wait for a thread.
        on_refused: Called with the asker whenever a read is refused for want of room.
    """

    def __init__(
        self,
        history: History,
        *,
        threads: int,
        queue: int,
        on_refused: Callable[[Hashable], None] = lambda _: None,
    ) -> None:
        """Threads are started when they are needed."""
        self._history = history
        self._pool = ThreadPoolExecutor(threads, "http-history")
        self._free = threads
        self._max_waiting = queue
        self._waiting: OrderedDict[Hashable, deque[_Read]] = OrderedDict()
        self._on_refused = on_refused

    async def read(self, query: Callable[[History], _T], asker: Hashable) -> _T:
        """Run a query in a thread.

        Raises:
            RoutelakeError: whatever the query raises.
            Problem: too many reads at once.
        """
        answer: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if self._free <= 0 and self.waiting >= self._max_waiting:
            self._make_room(asker)
        self._waiting.setdefault(asker, deque()).append((partial(query, self._history), answer))
        self._run()
        return await answer

    @property
    def waiting(self) -> int:
        """Reads that wait for a thread."""
        return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Take no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._max_waiting = 0
        for reads in self._waiting.values():
            for _, answer in reads:
                if not answer.done():
                    answer.set_exception(UnavailableError(_STOPPING))
        self._waiting.clear()

    def _make_room(self, asker: Hashable) -> None:
        """Refuse the newest read of whoever has most waiting; that may be the one to come."""
        most = max(self._waiting, key=lambda other: len(self._waiting[other]), default=asker)
        refusal = busy("too many questions about the past at once; try again")
        if len(self._waiting.get(most, ())) <= len(self._waiting.get(asker, ())) + 1:
            self._on_refused(asker)
            raise refusal
        _, answer = self._waiting[most].pop()
        self._on_refused(most)
        if not answer.done():
            answer.set_exception(refusal)

    def _run(self) -> None:
        """Start what may start, one asker after the other."""
        while self._free > 0 and self._waiting:
            asker, reads = self._waiting.popitem(last=False)
            query, answer = reads.popleft()
            if reads:
                self._waiting[asker] = reads
            if answer.done():  # nobody waits for it any more
                continue
            try:
                running = asyncio.get_running_loop().run_in_executor(self._pool, query)
            except RuntimeError:  # the pool was shut down
                answer.set_exception(UnavailableError(_STOPPING))
                continue
            self._free -= 1
            running.add_done_callback(lambda done, answer=answer: self._done(done, answer))  # type: ignore[misc]

    def _done(self, running: asyncio.Future[Any], answer: asyncio.Future[Any]) -> None:
        self._free += 1
        if running.cancelled():  # by `close`, before a thread had taken it
            if not answer.done():
                answer.set_exception(UnavailableError(_STOPPING))
        elif answer.done():  # whoever asked has gone
            running.exception()
        elif (error := running.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(running.result())
        self._run()
