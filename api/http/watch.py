# SPDX-License-Identifier: Apache-2.0
"""Waiting for the next view: what long polls stand on.

The gateway says when one of its views has moved (`WatchedView.follow`), and whoever waits for a topic that may have
another route is woken; each then looks at it, in the cache of encoded answers.

Where too many wait, one of the address that has most waiting is answered early: `remoting.codec.bounds.FairLimit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from typing import Any, Final

from nameserver.view.snapshot import RouteView
from remoting.codec.bounds import FairLimit

_AT_ONCE: Final = 50
"""Each takes some 40 us."""


class Woken(Enum):
    """Reason why a wait has ended."""

    CHANGED = 1
    OVER = 2
    """The time is over, the client has gone, or the server stops."""
    CROWDED = 3
    """Too many wait."""


class _Wait:
    """A wait for another route of a topic."""

    __slots__ = ("topic", "woken")

    def __init__(self, topic: str, woken: asyncio.Future[Woken]) -> None:
        self.topic = topic
        self.woken = woken

    def end(self, why: Woken) -> None:
        if not self.woken.done():
            self.woken.set_result(why)


def _crowded(wait: _Wait) -> None:
    wait.end(Woken.CROWDED)


class ViewWatch:
    """Wakes waiters when the view has moved. Lives on the gateway's event loop.

    Args:
        max_waiting: The most that wait at a time.
        on_evicted: Gets the address of each that is answered early.
    """

    def __init__(self, max_waiting: int, on_evicted: Callable[[str], None] = lambda _: None) -> None:
        """Start without waits."""
        self._waiting: FairLimit[_Wait] = FairLimit(max_waiting, _crowded, on_evicted)
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of waits."""
        return len(self._waiting)

    async def next_view(self, topic: str, timeout_s: float, address: str, gone: asyncio.Future[Any]) -> Woken:
        """Wait until a topic's route may have changed; between a look at it and this call nothing may be awaited.

        Args:
            topic: Topic whose route is waited for.
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
        """Wake those whose topic may have another route, `_AT_ONCE` before anybody else's request is looked at."""
        if not self._waiting:
            return
        # What else a route is made of: settings are in the KV configuration, too.
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
        """Wake everybody, now and from now on: the server stops."""
        self._closed = True
        for wait in self._waiting:
            wait.end(Woken.OVER)
