# SPDX-License-Identifier: Apache-2.0
"""What all connections of a server hold together, and which of them go when it is too much.

Four sums: of frames that have begun, of requests that wait, of requests being handled, and of answers that nobody
reads. The first three share one bound; `FairQueue` keeps large frames within it. `remoting.codec.bounds`
chooses the connections to evict.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, Self, TypeVar

from remoting.codec.bounds import Holding, is_far_over, over_limit, to_evict
from remoting.server.fair_queue import LARGE_BYTES, FairQueue
from remoting.server.settings import RemotingSettings

_LOOK_S: Final = 0.25
"""Seconds until the next look for a connection to evict, where there was none."""


class Holder(Protocol):
    """A connection."""

    @property
    def held(self) -> Holding[Self]:
        """What has come and is not being handled."""

    @property
    def unread(self) -> Holding[Self]:
        """Answers that wait for the peer."""

    def go_on(self) -> None:
        """Take up what was postponed."""

    def __hash__(self) -> int: ...


_C = TypeVar("_C", bound=Holder)


class ConnectionMemory(Generic[_C]):
    """The sums of one server. Lives on its event loop; connections report whatever changes.

    Attributes:
        unfinished_bytes: Held of frames that have begun but not ended.
        in_flight_bytes: Held of requests that are being handled.
        backlog_bytes: Held of requests that wait to be handled.
        unread_bytes: Held of answers that peers do not read, when they stopped.
        fair_queue: Of the connections in the middle of a large frame.
    """

    def __init__(
        self, settings: RemotingSettings, connections: Mapping[str, _C], evict: Callable[[_C, str, str], None]
    ) -> None:
        """Nothing is held yet.

        Args:
            settings: `max_received_bytes`, `max_unread_bytes`, `evict_after_s`.
            connections: The open ones, at any time.
            evict: Drops one at once; gets the reason (a metric's label) and a detail for a person.
        """
        self.unfinished_bytes = self.in_flight_bytes = self.backlog_bytes = self.unread_bytes = 0
        self.fair_queue = FairQueue(self)
        self._settings = settings
        self._connections = connections
        self._evict = evict
        self._postponed: dict[_C, None] = {}
        """Connections with a large request that waits for memory, in order."""
        self._unread: dict[_C, int] = {}
        """Connections that do not read their answers: bytes unread when each stopped."""
        self._next_look_s = 0.0

    @property
    def received_bytes(self) -> int:
        """Held of what peers have sent."""
        return self.unfinished_bytes + self.in_flight_bytes + self.backlog_bytes

    # --- for FairQueue ---

    def is_short(self) -> bool:
        """Whether large frames have to become whole one after the other."""
        return self.received_bytes > self._settings.max_received_bytes // 2

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much more may be received."""
        return self.received_bytes + size_bytes <= self._settings.max_received_bytes

    def is_idle(self) -> bool:
        """Whether no large request is being handled, whose end would make room."""
        return self.in_flight_bytes < LARGE_BYTES

    # --- for connections ---

    def must_queue(self, unfinished_bytes: int) -> bool:
        """Whether the sender of a large frame, of which so much is here, has to wait before it goes on."""
        return unfinished_bytes >= LARGE_BYTES or self.is_short()

    def unfinished_grew(self) -> None:
        """More of an unfinished frame has come: if all hold too much now, somebody goes."""
        limit = self._settings.max_received_bytes
        if self.received_bytes <= limit:
            return
        now_s = time.monotonic()
        if now_s < self._next_look_s and not is_far_over(self.received_bytes, limit):
            return
        holdings = [held for held in (each.held for each in self._connections.values()) if held.size_bytes]
        chosen = over_limit(holdings, self.received_bytes, limit, now_s, self._settings.evict_after_s)
        if not chosen:
            self._next_look_s = now_s + _LOOK_S
        for connection in chosen:
            detail = f"{connection.held.size_bytes} bytes of {self.received_bytes} that wait"
            self._evict(connection, "evicted-unfinished", detail)

    def stopped_reading(self, connection: _C) -> None:
        """A connection does not read its answers: if all leave too much unread now, somebody goes."""
        self.reads_again(connection)
        size = self._unread[connection] = connection.unread.size_bytes
        self.unread_bytes += size
        limit = self._settings.max_unread_bytes
        if self.unread_bytes > limit:
            holdings = [each.unread for each in self._unread]
            excess = sum(holding.size_bytes for holding in holdings) - limit * 3 // 4
            for other in to_evict(holdings, excess, time.monotonic()):
                self._evict(other, "evicted-unread", f"{other.unread.size_bytes} bytes of {self.unread_bytes}")

    def reads_again(self, connection: _C) -> None:
        """A connection reads its answers again, or is gone."""
        self.unread_bytes -= self._unread.pop(connection, 0)

    def may_start(self, size_bytes: int, connection: _C) -> bool:
        """Whether a large request may be handled now; if not, the connection is called when it may."""
        if not self.in_flight_bytes or self.in_flight_bytes + size_bytes <= self._settings.max_received_bytes // 2:
            return True
        self._postponed[connection] = None
        return False

    def account_in_flight(self, size_bytes: int) -> None:
        """Add to the bytes being handled; a negative size takes away."""
        self.in_flight_bytes += size_bytes
        if size_bytes <= -LARGE_BYTES:
            self.fair_queue.go_on()
            if self._postponed:
                asyncio.get_running_loop().call_soon(self._go_on_with_postponed)

    def forget(self, connection: _C) -> None:
        """Drop a closed connection, which has given back what it held."""
        self._postponed.pop(connection, None)

    def _go_on_with_postponed(self) -> None:
        for connection in list(self._postponed):
            if self.in_flight_bytes > self._settings.max_received_bytes // 2:
                break
            del self._postponed[connection]
            connection.go_on()
