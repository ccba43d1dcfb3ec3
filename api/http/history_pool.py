# SPDX-License-Identifier: Apache-2.0
"""Reads of history, off the event loop.

`lake.history.history.History` blocks while it reads Delta tables. Here its reads run in a few threads of their own; a
bounded number waits for them. Addresses take turns, and so do the kinds of question of one address: nobody waits behind
all that another address has asked. Where there is no room, the address with most waiting loses a read, the newest of
its most frequent kind; of several such addresses, the one that was served last.

A read ends when its asker has gone, or when its time is over (`lake.delta.query.Interrupt`). Its thread may need some
time to notice. The next read does not wait for that: there are twice as many threads as reads at a time, so that each
read may be followed by another while it ends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar

from api.http.problems import busy
from lake.delta.query import Interrupt
from lake.history.history import History
from remoting.codec.bounds import largest_address
from schemas.errors import UnavailableError

_T = TypeVar("_T")

Asker = tuple[str, str]
"""An address and the kind of its question."""

DEADLINE_S: Final = 30.0
"""Maximum duration of a read, in seconds."""
_REMEMBERED: Final = 1024
"""Addresses of which it is known when they were served last."""
_STOPPING = "this gateway is stopping"


class _Read:
    """A question and its answer."""

    __slots__ = ("address", "answer", "counts", "interrupt", "kind", "query", "timer")

    def __init__(self, asker: Asker, query: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        self.address, self.kind = asker
        self.query = query
        self.answer = answer
        self.interrupt = Interrupt()
        self.counts = False
        """Flag of a read that counts against the number of reads at a time."""
        self.timer: asyncio.TimerHandle | None = None

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class HistoryPool:
    """A `History`, asked from the event loop; a fair queue of askers, bounded.

    Args:
        history: History to read.
        threads: Reads at a time.
        queue: Reads that may wait for a thread.
        deadline_s: Maximum duration of a read, in seconds.
        on_evicted: Called with the address whenever a read is refused for want of room.
    """

    def __init__(
        self,
        history: History,
        *,
        threads: int,
        queue: int,
        deadline_s: float = DEADLINE_S,
        on_evicted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Threads are started when they are needed."""
        self._history = history
        self._pool = ThreadPoolExecutor(2 * threads, "http-history")
        self._free = threads
        """Reads that may start."""
        self._may_be_ending = threads
        """Reads that may still run though no client waits for them."""
        self._max_waiting = queue
        self._deadline_s = deadline_s
        self._waiting: OrderedDict[str, OrderedDict[str, deque[_Read]]] = OrderedDict()
        self._serial = count(1)
        self._served: OrderedDict[str, int] = OrderedDict()
        self._on_evicted = on_evicted

    async def read(self, query: Callable[[History], _T], asker: Asker, gone: asyncio.Future[Any] | None = None) -> _T:
        """Run a query in a thread.

        Args:
            query: Query, called with the history.
            asker: Address and kind of request, whose turn the query takes.
            gone: Future that is done when the client has gone.

        Raises:
            RoutelakeError: The query has raised it.
            Problem: Too many reads at once, or the query took too long, or ``gone``.
        """
        loop = asyncio.get_running_loop()
        read = _Read(asker, partial(query, self._history), loop.create_future())
        if self._free <= 0 and self.waiting >= self._max_waiting:
            self._make_room(read)
        self._waiting.setdefault(read.address, OrderedDict()).setdefault(read.kind, deque()).append(read)
        self._run()
        try:
            if gone is not None:
                await asyncio.wait((read.answer, gone), return_when=asyncio.FIRST_COMPLETED)
                read.refuse(busy("the connection ended before the answer"))
            answer: _T = await read.answer
            return answer
        finally:
            read.answer.cancel()  # where this task was cancelled
            self._end(read)

    @property
    def waiting(self) -> int:
        """Reads that wait for a thread."""
        return sum(map(_count, self._waiting.values()))

    def close(self) -> None:
        """Take no more, and end what runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._max_waiting = 0
        for kinds in self._waiting.values():
            for reads in kinds.values():
                for read in reads:
                    read.refuse(UnavailableError(_STOPPING))
        self._waiting.clear()

    def _make_room(self, coming: _Read) -> None:
        """Refuse a read of the address with most; that may be the one to come."""
        address = coming.address
        counts = {other: _count(kinds) for other, kinds in self._waiting.items()}
        most = largest_address(counts, address, tie=lambda other: self._served.get(other, 0))
        self._on_evicted(most)
        refusal = busy("too many requests for history at once: try again")
        kinds = self._waiting.get(most, OrderedDict())
        kind = max(kinds, key=lambda each: len(kinds[each]), default=coming.kind)
        if most == address and len(kinds.get(kind, ())) <= len(kinds.get(coming.kind, ())) + 1:
            raise refusal
        read = kinds[kind][-1]
        self._take_out(read)
        read.refuse(refusal)

    def _take_out(self, read: _Read) -> None:
        """Out of the queue, if it is there."""
        kinds = self._waiting.get(read.address, OrderedDict())
        reads = kinds.get(read.kind, deque())
        if read in reads:
            reads.remove(read)
        if not reads:
            kinds.pop(read.kind, None)
        if not kinds:
            self._waiting.pop(read.address, None)

    def _next(self) -> _Read:
        address, kinds = next(iter(self._waiting.items()))
        kind, reads = next(iter(kinds.items()))
        self._waiting.move_to_end(address)
        kinds.move_to_end(kind)
        read = reads[0]
        self._take_out(read)
        self._served[address] = next(self._serial)
        self._served.move_to_end(address)
        if len(self._served) > _REMEMBERED:
            self._served.popitem(last=False)
        return read

    def _run(self) -> None:
        """Start what may start."""
        loop = asyncio.get_running_loop()
        while self._free > 0 and self._waiting:
            read = self._next()
            try:
                running = loop.run_in_executor(self._pool, partial(read.interrupt.run, read.query))
            except RuntimeError:  # the pool was shut down
                read.refuse(UnavailableError(_STOPPING))
                continue
            self._free -= 1
            read.counts = True
            read.timer = loop.call_later(self._deadline_s, self._overdue, read)
            running.add_done_callback(partial(self._done, read))

    def _overdue(self, read: _Read) -> None:
        what = f"the past was read for {self._deadline_s:g} s without an end: ask for less of it, a shorter time say"
        read.refuse(busy(what))
        self._end(read)

    def _end(self, read: _Read) -> None:
        """Take out a read that no client waits for any more."""
        self._take_out(read)
        read.interrupt.set()
        if read.timer is not None:
            read.timer.cancel()
        if read.counts and self._may_be_ending > 0:
            read.counts = False
            self._may_be_ending -= 1
            self._free += 1
            self._run()

    def _done(self, read: _Read, running: asyncio.Future[Any]) -> None:
        if read.timer is not None:
            read.timer.cancel()
        if read.counts:
            read.counts = False
            self._free += 1
        else:
            self._may_be_ending += 1
        if running.cancelled():  # by `close`, before a thread had taken it
            read.refuse(UnavailableError(_STOPPING))
        elif (error := running.exception()) is not None:
            if not read.answer.done():  # else nobody waits
                read.answer.set_exception(error)
        elif not read.answer.done():
            read.answer.set_result(running.result())
        self._run()


def _count(kinds: OrderedDict[str, deque[_Read]]) -> int:
    return sum(map(len, kinds.values()))
