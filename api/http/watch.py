# SPDX-License-Identifier: Apache-2.0
"""Waiting for the next view: what long polls stand on.

The gateway says when one of its views has moved (`WatchedView.follow`), and whoever waits for a topic that may have
another route is woken; each then looks at it, in the cache of encoded answers.

Where too many wait, one of the address that has most waiting is answered early; that may be the one that has just come.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from typing import Any, Final

from nameserver.view.snapshot import RouteView

_AT_ONCE: Final = 50
"""Each takes some 40 us."""


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
        self._waiting: dict[asyncio.Future[Woken], tuple[str, str]] = {}
        """Address and topic of each."""
        self._per_address: Counter[str] = Counter()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def next_view(self, topic: str, timeout_s: float, address: str, gone: asyncio.Future[Any]) -> Woken:
        """Wait until a topic's route may be another one; between a look at it and this call nothing may be awaited.

        Args:
            topic: Whose route is waited for.
            timeout_s: For how long.
            address: Of whoever waits (`remoting.codec.bounds.address_of`).
            gone: Done when the client has gone.
        """
        if self._closed:
            return Woken.OVER
        if len(self._waiting) >= self._max_waiting and not self._make_room(address):
            return Woken.CROWDED
        woken: asyncio.Future[Woken] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = address, topic
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
        woken = next(woken for woken, (other, _) in self._waiting.items() if other == most)
        self._forget(woken)
        if not woken.done():
            woken.set_result(Woken.CROWDED)
        self._on_crowded(most)
        return True

    def _forget(self, woken: asyncio.Future[Woken]) -> None:
        entry = self._waiting.pop(woken, None)
        if entry is not None:
            address, _ = entry
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]

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
            iter(
                [
                    woken
                    for woken, (_, topic) in self._waiting.items()
                    if not is_rest_same or was(topic) is not now(topic)
                ]
            )
        )

    def _wake_some(self, rest: Iterator[asyncio.Future[Woken]]) -> None:
        some = list(islice(rest, _AT_ONCE))
        for woken in some:
            if not woken.done():
                woken.set_result(Woken.CHANGED)
        if len(some) == _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._wake_some, rest)

    def close(self) -> None:
        """Wake everybody, now and from now on: the server stops."""
        self._closed = True
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(Woken.OVER)
