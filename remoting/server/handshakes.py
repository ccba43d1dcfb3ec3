# SPDX-License-Identifier: Apache-2.0
"""Order of TLS handshakes, and the limit for addresses that have begun too many.

To sign for a handshake takes the event loop some 0.3 ms (P-256) or 0.5 ms (RSA of 2,048 bits). The client pays
nothing: its first message can be the same each time. So one handshake is begun in each turn of the loop, address after
address: a connected peer waits for at most one handshake, and an address does not wait for the queue of another.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol

OVER_QUOTA: Final = "quota-tls-handshakes"
"""Reason to close a connection: its address has begun too many handshakes of late."""


class Waiting(Protocol):
    """A connection whose first message has come."""

    def begin(self) -> None:
        """Begin the handshake: it is this connection's turn."""


class Handshakes:
    """The queue of one gateway, for all its ports. Lives on one event loop."""

    def __init__(self, refusal: Callable[[str], str | None] = lambda _address: None) -> None:
        """Create an empty queue.

        Args:
            refusal: Returns why an address gets no handshake now; None: it gets one.
        """
        self.refusal = refusal
        self._waiting: OrderedDict[str, deque[Waiting]] = OrderedDict()
        """Waiting connections by address, the next address first."""

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
