# SPDX-License-Identifier: Apache-2.0
"""Waits for the next view, for long polls.

The gateway reports when one of its views has moved (`WatchedView.follow`). Then every wait for a topic is woken if the
topic's route may differ. Each woken long poll looks at the route, in the cache of encoded answers.

If too many clients wait, one of the address with most waits is answered early: `remoting.codec.bounds.FairLimit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final

from nameserver.view.snapshot import RouteView
from remoting.codec.bounds import FairLimit

_AT_ONCE: Final = 50
"""Maximum number of waits that are woken at once. Each takes some 40 us."""


class Woken(Enum):
    """Reason why a wait has ended."""

    CHANGED = 1
    OVER = 2
    """The time is over, the client has gone, or the server stops."""
    CROWDED = 3
    """There are too many waits."""


@dataclass(slots=True, eq=False)
class _Wait:
    """A wait for another route of a topic."""

    topic: str
    woken: asyncio.Future[Woken]

    def end(self, why: Woken) -> None:
        if not self.woken.done():
            self.woken.set_result(why)


class ViewWatch:
    """Wakes waits when the view has moved. Used on the gateway's event loop.

    Args:
        max_waiting: Maximum number of waits at a time.
        on_evicted: Callback that gets the address of each client that is answered early.
    """

    def __init__(self, max_waiting: int, on_evicted: Callable[[str], None] = lambda _: None) -> None:
        """Start without waits."""
        self._waiting: FairLimit[_Wait] = FairLimit(max_waiting, lambda wait: wait.end(Woken.CROWDED), on_evicted)
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of waits."""
        return len(self._waiting)

    async def next_view(self, topic: str, timeout_s: float, address: str, gone: asyncio.Future[Any]) -> Woken:
        """Wait until a topic's route may have changed. Between the read of the route and this call, await nothing.

        Args:
            topic: Topic of the route.
            timeout_s: Maximum wait, in seconds.
            address: Address of the client (`remoting.codec.bounds.address_of`).
            gone: Future that is done when the client has gone.
        """
        if self._closed:
            return Woken.OVER
        wait = _Wait(topic, asyncio.get_running_loop().create_future())
        if not self._waiting.admit(wait, address):
            return Woken.CROWDED
        try:
            await asyncio.wait((wait.woken, gone), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return wait.woken.result() if wait.woken.done() else Woken.OVER
        finally:
            self._waiting.discard(wait)

    def view_moved(self, before: RouteView, after: RouteView) -> None:
        """Wake the waits for topics that may have another route, `_AT_ONCE` before other requests get their turn."""
        if not self._waiting:
            return
        # The other parts of a route. Settings are in the KV configuration, too.
        is_rest_same = (
            before.groups is after.groups and before.mapping_tables is after.mapping_tables and before.kv is after.kv
        )
        was, now = before.topics.get, after.topics.get
        self._wake_some(
            iter([each for each in self._waiting if not is_rest_same or was(each.topic) is not now(each.topic)])
        )

    def _wake_some(self, rest: Iterator[_Wait]) -> None:
        some = list(islice(rest, _AT_ONCE))
        for wait in some:
            wait.end(Woken.CHANGED)
        if len(some) == _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._wake_some, rest)

    def close(self) -> None:
        """End all waits, and refuse new ones, because the server stops."""
        self._closed = True
        for wait in self._waiting:
            wait.end(Woken.OVER)
