# SPDX-License-Identifier: Apache-2.0
"""Bounds on the connections of the HTTP listener and the bytes that they hold, with the choice of those to evict.

The number of connections is bounded, and so are the bytes that the gateway holds for clients. These are incomplete
heads, bodies that are not read yet, pipelined requests that wait, and answers that are not fetched. A connection that
crosses a bound is accepted. To make room, the gateway takes the address that holds most for longest, and evicts the
connection of that address that holds most for longest (`remoting.codec.bounds`). Other modules have bounds of their own
with the same rule: `api.http.body` for bodies in progress, `api.http.watch` for long polls, and
`api.http.history_pool` for reads of history.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from api.http.settings import HttpSettings
from remoting.codec.bounds import SEARCH_PAUSE_S, FairLimit, Holding, to_evict

OF_ADDRESS: Final = "quota-connections"
"""Reason to refuse a connection: its address has too many."""

_SHARE: Final = 64
"""One in this many connections is evicted at a time, because the search looks at all of them."""


class EvictableConnection(Protocol):
    """A connection."""

    address: str
    """As `remoting.codec.bounds.address_of` makes it."""
    active_s: float
    """Time at which the connection last completed a request, or was opened, by `time.monotonic`."""
    held_bytes: int
    held_since_s: float

    @property
    def is_busy(self) -> bool:
        """Return whether a request of the connection is being answered."""
        ...

    def evict(self, reason: str) -> None:
        """Close."""
        ...

    def __hash__(self) -> int: ...


class ConnectionBounds:
    """Bounds of one listener. Used on its event loop."""

    def __init__(self, settings: HttpSettings, clock: Callable[[], float] = time.monotonic) -> None:
        """Create bounds without connections.

        Args:
            settings: Settings with `max_connections` and `max_held_bytes`.
            clock: Clock in seconds.
        """
        self._settings = settings
        self._clock = clock
        self._connections: FairLimit[EvictableConnection] = FairLimit(settings.max_connections)
        self._holding: dict[EvictableConnection, None] = {}
        self._refused = "", -SEARCH_PAUSE_S
        """Address that holds most and is busy, and the time at which this was found."""
        self.held_bytes = 0

    def admit(self, newcomer: EvictableConnection) -> bool:
        """Admit a connection. If there are too many, those that have been idle for longest are evicted.

        Returns:
            False if the new connection must be closed instead. Either its address has the maximum number of
            connections, or its address holds most, and of its connections the one to evict first is busy.
        """
        if self.has_too_many(newcomer.address):
            return False
        now = self._clock()
        if len(self._connections) >= self._connections.limit:
            address, since_s = self._refused
            if newcomer.address == address and now < since_s + SEARCH_PAUSE_S:
                return False
            idle = [Holding(one, one.address, 1, one.active_s) for one in self._connections]
            for one in to_evict(idle, max(1, len(idle) // _SHARE), now):
                if one.address == newcomer.address and one.is_busy:
                    break
                self.release(one)
                one.evict("evicted-idle")
            if len(self._connections) >= self._connections.limit:
                self._refused = newcomer.address, now
                return False
        self._connections.add(newcomer, newcomer.address)
        return True

    def release(self, connection: EvictableConnection) -> None:
        """Release a connection that has ended, and the bytes that it held."""
        self._connections.discard(connection)
        self._set(connection, 0)

    def has_too_many(self, address: str) -> bool:
        """Return whether an address has as many connections as one may have."""
        limit = self._settings.max_connections_per_address
        return limit is not None and self._connections.count(address) >= limit

    def hold(self, connection: EvictableConnection, size_bytes: int) -> None:
        """Set a connection's held bytes. If all together hold too much, evict the one that holds most for longest."""
        if connection not in self._connections:
            return
        self._set(connection, size_bytes)
        excess = self.held_bytes - self._settings.max_held_bytes
        if excess > 0:
            held = [Holding(one, one.address, one.held_bytes, one.held_since_s) for one in self._holding]
            for one in to_evict(held, excess + self._settings.max_held_bytes // _SHARE, self._clock()):
                self.release(one)
                one.evict("evicted-memory")

    def _set(self, connection: EvictableConnection, size_bytes: int) -> None:
        if not connection.held_bytes and size_bytes:
            connection.held_since_s = self._clock()
            self._holding[connection] = None
        elif not size_bytes:
            self._holding.pop(connection, None)
        self.held_bytes += size_bytes - connection.held_bytes
        connection.held_bytes = size_bytes
