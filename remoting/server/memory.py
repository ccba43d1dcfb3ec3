# SPDX-License-Identifier: Apache-2.0
"""Memory that all connections of a server together hold: the sums, and the order in which large frames are read.

There are four sums of bytes: unfinished frames, waiting requests, requests being handled, and unread answers. The first
three share one bound, and `FairQueue` keeps large frames within it. `remoting.codec.bounds` chooses the connections to
evict.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from remoting.codec.bounds import SEARCH_PAUSE_S, Holding, is_far_over, over_limit, to_evict
from remoting.server.settings import RemotingSettings

LARGE_BYTES: Final = 128 * 1024
"""Size of a frame, in bytes, from which on its sender is read in turn with others."""

_AT_A_TIME: Final = 8
"""Maximum number of peers read in one turn of the loop. A piece has up to 256 KB and takes some 100 us."""

_TRIES: Final = 16
"""Maximum number of peers checked in one turn of the loop while memory is short."""

SLICE_S: Final = 0.25
"""Maximum time for which one peer is read while memory is short and others wait, in seconds."""
SLICE_BYTES: Final = 64 * 1024
"""Number of bytes that must arrive in `SLICE_S`. Otherwise the peer counts as stalled."""


class Peer(Protocol):
    """A connection in the middle of a large frame."""

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that are still missing from the peer's frame."""
        ...

    def read_on(self) -> None:
        """Resume reading, for the next piece of the frame."""
        ...

    def read_later(self) -> None:
        """Pause reading while others have their turn."""
        ...


class Holder(Protocol):
    """A connection that holds memory."""

    @property
    def held(self) -> Holding[Self]:
        """Received bytes of requests that are not yet being handled."""

    @property
    def unread(self) -> Holding[Self]:
        """Bytes of answers that wait for the peer."""

    def go_on(self) -> None:
        """Process the postponed requests."""

    def __hash__(self) -> int: ...


class FairQueue:
    """Queue of peers that send large frames and are paused at the moment. Belongs to one event loop.

    An event loop reads a socket until it is empty. If hundreds of brokers register ten thousand topics each, one round
    over their sockets takes most of a second. The small requests of all other peers would wait for this round. So a
    peer in the middle of a large frame is read one piece at a time, and few such peers in each turn of the loop.

    Then many frames would be half read at the same time. So while memory is short (`ConnectionMemory.is_short`), the
    queue reads only as many peers as can complete their frames in the free memory. The others wait in the kernel's TCP
    buffers. If a peer sends too little in its slice of time, it goes behind all peers that have not had a slice. So a
    peer that does not finish its frame does not delay the others.
    """

    def __init__(self, memory: ConnectionMemory[Any]) -> None:
        """Create an empty queue for the server that has this memory."""
        self._memory = memory
        self._waiting: deque[Peer] = deque()
        self._stalled: deque[Peer] = deque()
        self._queued: set[Peer] = set()
        self._reading: dict[Peer, tuple[float, int]] = {}
        """Peers being read while memory is short: start (time.monotonic), and number of missing bytes at the start."""
        self._next_is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, peer: Peer) -> None:
        """Queue a peer. Its `read_on` is called at its turn, never in this turn of the loop."""
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
        """Remove a peer, because its frame is complete or its connection is closed."""
        if self._reading.pop(peer, None) is not None:
            self.go_on()

    def go_on(self) -> None:
        """Schedule the next round, because a peer waits or memory has become free."""
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
        """Return whether the peer's frame fits into memory together with the frames that are being read."""
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
        """Pause a peer if its slice of time is over. Returns whether the slice is over."""
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
    """Memory sums of one server. Belongs to its event loop. Connections report each change.

    Attributes:
        unfinished_bytes: Memory of unfinished frames.
        in_flight_bytes: Memory of requests that are being handled.
        backlog_bytes: Memory of requests that wait to be handled.
        unread_bytes: Memory of unread answers, as measured when each peer stopped reading, or at a later search.
        fair_queue: Queue of the connections in the middle of a large frame.
    """

    def __init__(
        self, settings: RemotingSettings, connections: Mapping[str, _C], evict: Callable[[_C, str, str], None]
    ) -> None:
        """Create sums of zero.

        Args:
            settings: `max_received_bytes`, `max_unread_bytes`, `evict_after_s`.
            connections: Open connections by id, kept current by the server.
            evict: Function that closes a connection immediately. It gets the reason (a metric's label) and a detail
                for a person.
        """
        self.unfinished_bytes = self.in_flight_bytes = self.backlog_bytes = self.unread_bytes = 0
        self.fair_queue = FairQueue(self)
        self._settings = settings
        self._connections = connections
        self._evict = evict
        self._postponed: dict[_C, int] = {}
        """Connections with a large request that waits for memory, in the order of arrival, and the request's size."""
        self._wake_is_due = False
        self._unread: dict[_C, int] = {}
        """Connections that do not read their answers, with the unread bytes when last measured."""
        self._next_look_s = 0.0

    @property
    def received_bytes(self) -> int:
        """Memory of all received data."""
        return self.unfinished_bytes + self.in_flight_bytes + self.backlog_bytes

    # --- for FairQueue ---

    def is_short(self) -> bool:
        """Return whether memory is short, so that large frames have to be completed one after the other."""
        return self.received_bytes > self._settings.max_received_bytes // 2

    def has_room(self, size_bytes: int) -> bool:
        """Return whether ``size_bytes`` more may be received."""
        return self.received_bytes + size_bytes <= self._settings.max_received_bytes

    def is_idle(self) -> bool:
        """Return whether only small requests are being handled, so that their end will free little memory.

        Small requests of other peers are handled at all times. So a large frame or request must not wait for their end.
        """
        return self.in_flight_bytes <= self._settings.max_received_bytes // 8

    # --- for connections ---

    def must_queue(self, unfinished_bytes: int) -> bool:
        """Return whether the sender of a large frame has to wait after its first ``unfinished_bytes``."""
        return unfinished_bytes >= LARGE_BYTES or self.is_short()

    def unfinished_grew(self) -> None:
        """Called after an unfinished frame grew. If all connections hold too much, evict some.

        Requests in flight count at most half of the limit, because an eviction does not free their memory. Otherwise
        many of them would evict all that wait.
        """
        limit = self._settings.max_received_bytes
        if self.received_bytes <= limit:
            return
        counted = self.received_bytes - max(0, self.in_flight_bytes - limit // 2)
        if counted <= limit:
            return
        now_s = time.monotonic()
        if now_s < self._next_look_s and not is_far_over(counted, limit):
            return
        holdings = [held for held in (each.held for each in self._connections.values()) if held.size_bytes]
        chosen = over_limit(holdings, counted, limit, now_s, self._settings.evict_after_s)
        if not chosen:
            self._next_look_s = now_s + SEARCH_PAUSE_S
        for connection in chosen:
            detail = f"{connection.held.size_bytes} bytes of {self.received_bytes} that wait"
            self._evict(connection, "evicted-unfinished", detail)

    def stopped_reading(self, connection: _C) -> None:
        """Called after a connection stopped reading its answers. If too much is unread, evict some connections."""
        self.reads_again(connection)
        size = self._unread[connection] = connection.unread.size_bytes
        self.unread_bytes += size
        limit = self._settings.max_unread_bytes
        if self.unread_bytes > limit:
            holdings = [each.unread for each in self._unread]
            self._unread = {holding.connection: holding.size_bytes for holding in holdings}
            self.unread_bytes = sum(self._unread.values())
            for other in to_evict(holdings, self.unread_bytes - limit * 3 // 4, time.monotonic()):
                self._evict(other, "evicted-unread", f"{other.unread.size_bytes} bytes of {self.unread_bytes}")

    def reads_again(self, connection: _C) -> None:
        """Called after a connection reads its answers again, or is closed."""
        self.unread_bytes -= self._unread.pop(connection, 0)

    def may_start(self, size_bytes: int, connection: _C) -> bool:
        """Return whether a large request may be handled now. If not, `Holder.go_on` is called later."""
        if self._can_start(size_bytes):
            return True
        self._postponed[connection] = size_bytes
        return False

    def account_in_flight(self, size_bytes: int) -> None:
        """Add a size, which may be negative, to the bytes being handled."""
        self.in_flight_bytes += size_bytes
        if size_bytes <= -LARGE_BYTES:
            self.fair_queue.go_on()
        if self._postponed and size_bytes < 0 and not self._wake_is_due:
            self._wake_is_due = True
            asyncio.get_running_loop().call_soon(self._go_on_with_postponed)

    def forget(self, connection: _C) -> None:
        """Drop a closed connection that has already released its memory."""
        self._postponed.pop(connection, None)

    def _can_start(self, size_bytes: int) -> bool:
        return self.is_idle() or self.in_flight_bytes + size_bytes <= self._settings.max_received_bytes // 2

    def _go_on_with_postponed(self) -> None:
        self._wake_is_due = False
        for connection, size_bytes in list(self._postponed.items()):
            if self._can_start(size_bytes):
                del self._postponed[connection]
                connection.go_on()
