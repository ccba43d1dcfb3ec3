# SPDX-License-Identifier: Apache-2.0
"""Whose TLS handshake is begun next, and who has begun too many.

To sign for one takes the event loop some 0.3 ms (P-256) or 0.5 ms (RSA of 2,048 bits), and whoever asks for it pays
nothing: the first message can be the same each time. So one is begun in each turn of the loop, address after address:
however many want one, whoever is connected waits for one at most, and an address waits for no other's queue.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol

OVER_QUOTA: Final = "quota-tls-handshakes"
"""Why a connection is closed: its address has begun too many of late."""


class Waiting(Protocol):
    """A connection whose first message has come."""

    def begin(self) -> None:
        """It is its turn."""


class Handshakes:
    """The queue of one gateway, for all its ports. Lives on one event loop."""

    def __init__(self, refusal: Callable[[str], str | None] = lambda _address: None) -> None:
        """Nobody waits.

        Args:
            refusal: Gets the address of one that wants a handshake, and says why there is none; None: there is one.
        """
        self.refusal = refusal
        self._waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()
        """By address, the next one first."""

    def wait(self, address: str, connection: Waiting) -> None:
        """Call its `begin` when it is its turn, not in this turn of the loop."""
        if not self._waiting:
            self._go_on()
        self._waiting.setdefault(address, deque()).append(connection)

    def _next(self) -> None:
        address, connections = self._waiting.popitem(last=False)
        connection = connections.popleft()
        if connections:
            self._waiting[address] = connections
        if self._waiting:
            self._go_on()
        connection.begin()

    def _go_on(self) -> None:
        asyncio.get_running_loop().call_soon(self._next)
