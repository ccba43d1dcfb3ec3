# SPDX-License-Identifier: Apache-2.0
"""Memory that all connections of a server hold together; choice of those to evict and of the next to read.

Four sums: of frames that have begun, of requests that wait, of requests being handled, and of answers that nobody
reads. The first three share one bound; `FairQueue` keeps large frames within it. `remoting.codec.bounds` chooses the
connections to evict.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from remoting.codec.bounds import Holding, is_far_over, over_limit, to_evict
from remoting.server.settings import RemotingSettings

LARGE_BYTES: Final = 128 * 1024
"""Size of a frame, in bytes, from which on its sender takes turns."""

_AT_A_TIME: Final = 8
"""A piece has up to 256 KB and takes some 100 us."""

_TRIES: Final = 16
"""Peers looked at in one turn of the loop while memory is short."""

SLICE_S: Final = 0.25
"""While memory is short: how long one may be read while others wait ..."""
SLICE_BYTES: Final = 64 * 1024
"""... and what has to arrive in that time."""

_LOOK_S: Final = 0.25
"""Seconds until the next look for a connection to evict, where there was none."""


class Peer(Protocol):
    """A connection in the middle of a large frame."""

    @property
    def missing_bytes(self) -> int:
        """Number of bytes still to come of the peer's frame."""
        ...

    def read_on(self) -> None:
        """Be read: the next piece may come."""
        ...

    def read_later(self) -> None:
        """Be read no more, for now."""
        ...


class Holder(Protocol):
    """A connection."""

    @property
    def held(self) -> Holding[Self]:
        """Return the bytes that have come and are not being handled."""

    @property
    def unread(self) -> Holding[Self]:
        """Answers that wait for the peer."""

    def go_on(self) -> None:
        """Take up what was postponed."""

    def __hash__(self) -> int: ...


class FairQueue:
    """A queue of peers that send large frames and are not read at the moment. Lives on one event loop.

    An event loop reads a socket until it is empty. When hundreds of brokers register ten thousand topics each, one
    round over their sockets would take most of a second, and everybody else's small request would wait for it. So a
    peer in the middle of a large frame is read a piece at a time, and a few of them in each turn of the loop.

    They would also be half read all at the same time. So while memory is short (`ConnectionMemory.is_short`), only as
    many are read as may become whole in what is left, each until its frame is whole; the others wait in the kernel's
    buffers, as TCP has it. A peer that is read and sends little for a slice of time goes behind all that have not had
    theirs: a peer that lets its frame starve costs the others nothing.
    """

    def __init__(self, memory: ConnectionMemory[Any]) -> None:
        """Create an empty queue of the server with this memory."""
        self._memory = memory
        self._waiting: deque[Peer] = deque()
        self._stalled: deque[Peer] = deque()
        self._queued: set[Peer] = set()
        self._reading: dict[Peer, tuple[float, int]] = {}
        """Peers being read while memory is short: since when (time.monotonic), and bytes missing then."""
        self._next_is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, peer: Peer) -> None:
        """Call its `read_on` when it is its turn, not in this turn of the loop."""
        if peer in self._queued:
            return
        if peer not in self._reading:
            self._queued.add(peer)
            self._waiting.append(peer)
        elif not self._end_slice(peer):
            self._queued.add(peer)
            self._waiting.appendleft(peer)
        self.go_on()

    def leave(self, peer: Peer) -> None:
        """Stop queueing a peer: its frame is whole, or it is gone."""
        if self._reading.pop(peer, None) is not None:
            self.go_on()

    def go_on(self) -> None:
        """Schedule the next round: a peer waits, or memory has become free."""
        if not self._next_is_due and self._queued:
            self._next_is_due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._next_is_due = False
        if not self._memory.is_short():
            self._reading.clear()
            for _ in range(min(_AT_A_TIME, len(self._queued))):
                self._read(self._waiting or self._stalled)
            self.go_on()
            return
        for _ in range(min(_TRIES, len(self._queued))):
            queue = self._waiting or self._stalled
            peer = queue[0]
            if peer in self._reading or not peer.missing_bytes:
                self._read(queue)
            elif len(self._reading) >= _AT_A_TIME:
                break
            elif self._has_room(peer):
                self._reading[peer] = time.monotonic(), peer.missing_bytes
                self._read(queue)
            else:
                queue.rotate(-1)
        if self._queued and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SLICE_S, self._end_slices)

    def _read(self, queue: deque[Peer]) -> None:
        peer = queue.popleft()
        self._queued.discard(peer)
        peer.read_on()

    def _has_room(self, peer: Peer) -> bool:
        """Return whether the peer's frame may become whole beside those that are being read."""
        if not self._reading:
            return self._memory.is_idle() or self._memory.has_room(peer.missing_bytes)
        promised = sum(other.missing_bytes for other in self._reading)
        return self._memory.has_room(promised + peer.missing_bytes)

    def _end_slices(self) -> None:
        self._timer = None
        for peer in list(self._reading):
            if peer not in self._queued:
                self._end_slice(peer)
        self.go_on()

    def _end_slice(self, peer: Peer) -> bool:
        """Let others have their turn, if this one has had its slice. Returns whether it has, and waits again."""
        since_s, missing = self._reading[peer]
        if time.monotonic() - since_s < SLICE_S:
            return False
        del self._reading[peer]
        if not peer.missing_bytes:
            return True
        peer.read_later()
        self._queued.add(peer)
        (self._waiting if missing - peer.missing_bytes >= SLICE_BYTES else self._stalled).append(peer)
        return True


_C = TypeVar("_C", bound=Holder)


class ConnectionMemory(Generic[_C]):
    """The sums of one server. Lives on its event loop; connections report whatever changes.

    Attributes:
        unfinished_bytes: Held of frames that have begun but not ended.
        in_flight_bytes: Held of requests that are being handled.
        backlog_bytes: Held of requests that wait to be handled.
        unread_bytes: Held of answers that peers do not read, when they stopped.
        fair_queue: Queue of the connections in the middle of a large frame.
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
        """Return whether large frames have to become whole one after the other."""
        return self.received_bytes > self._settings.max_received_bytes // 2

    def has_room(self, size_bytes: int) -> bool:
        """Return whether ``size_bytes`` more may be received."""
        return self.received_bytes + size_bytes <= self._settings.max_received_bytes

    def is_idle(self) -> bool:
        """Return whether no large request is being handled, the end of which would make room."""
        return self.in_flight_bytes < LARGE_BYTES

    # --- for connections ---

    def must_queue(self, unfinished_bytes: int) -> bool:
        """Return whether the sender of a large frame has to wait after its first ``unfinished_bytes``."""
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
        """Return whether a large request may be handled now; if not, the connection is called when it may."""
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
