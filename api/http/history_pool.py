# SPDX-License-Identifier: Apache-2.0
"""Reads of history, off the event loop.

`lake.history.history.History` blocks while it reads Delta tables. So its reads run in a few threads of their own, and a
bounded number of reads waits for them. Addresses take turns, and so do the kinds of read of one address. No address
waits for all the reads of another one. If there is no room, the address with most waiting reads loses the newest read
of its most frequent kind. Of several such addresses, the one that was served last loses a read.

A read ends when its client has gone, or when its deadline has passed (`lake.delta.query.Interrupt`). Its thread may
need some time to notice. The next read does not wait for that, because there are twice as many threads as reads at a
time. So another read may follow each read while it ends.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
"""Address of a client and the kind of its read."""

DEADLINE_S: Final = 30.0
"""Maximum duration of a read, in seconds."""
_REMEMBERED: Final = 1024
"""Maximum number of addresses for which the pool knows when they were last served."""
_STOPPING = "this gateway is stopping"


@dataclass(slots=True, eq=False)
class _Read:
    """A query and its answer."""

    address: str
    kind: str
    query: Callable[[], Any]
    answer: asyncio.Future[Any]
    interrupt: Interrupt = field(default_factory=Interrupt)
    counts: bool = False
    """The read counts against the number of reads at a time."""
    timer: asyncio.TimerHandle | None = None

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class HistoryPool:
    """A `History` for callers on the event loop, with a fair and bounded queue.

    Args:
        history: History to read.
        threads: Maximum number of reads at a time.
        queue: Maximum number of reads that wait for a thread.
        deadline_s: Maximum duration of a read, in seconds.
        on_evicted: Callback that gets the address if a read is refused for lack of room.
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
        """Prepare without threads. They are started when they are needed."""
        self._history = history
        self._pool = ThreadPoolExecutor(2 * threads, "http-history")
        self._free = threads
        """Number of reads that may start."""
        self._may_be_ending = threads
        """Number of reads that may still run although no client waits for them."""
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
            asker: Address and kind of the read. Addresses and kinds take turns.
            gone: Future that is done when the client has gone.

        Raises:
            RoutelakeError: The query has raised it.
            Problem: There are too many reads, the query took too long, or ``gone`` is done.
        """
        loop = asyncio.get_running_loop()
        read = _Read(*asker, partial(query, self._history), loop.create_future())
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
            read.answer.cancel()  # if this task was cancelled
            self._end(read)

    @property
    def waiting(self) -> int:
        """Return the number of reads that wait for a thread."""
        return sum(map(_count, self._waiting.values()))

    def close(self) -> None:
        """Accept no more reads, and refuse those that wait."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._max_waiting = 0
        for kinds in self._waiting.values():
            for reads in kinds.values():
                for read in reads:
                    read.refuse(UnavailableError(_STOPPING))
        self._waiting.clear()

    def _make_room(self, coming: _Read) -> None:
        """Refuse a read of the address that has most. That may be the coming read."""
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
        """Remove a read from the queue, if it is there."""
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
        """Start as many waiting reads as may run."""
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
        """Remove a read that no client waits for any more."""
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
        if running.cancelled():  # by `close`, before a thread took it
            read.refuse(UnavailableError(_STOPPING))
        elif (error := running.exception()) is not None:
            read.refuse(error)
        elif not read.answer.done():  # otherwise no client waits
            read.answer.set_result(running.result())
        self._run()


def _count(kinds: OrderedDict[str, deque[_Read]]) -> int:
    return sum(map(len, kinds.values()))
