# SPDX-License-Identifier: Apache-2.0
"""Who is read next, when many peers send large frames at once.

An event loop reads a socket until it is empty. When hundreds of brokers register ten thousand topics each, one round
over their sockets would take most of a second, and everybody else's small request would wait for it. So a peer in the
middle of a large frame is read a piece at a time, and a few of them in each turn of the loop.

They would also be half read all at the same time. So while memory is short (`Memory.is_short`), only as many are read
as may become whole in what is left, each until its frame is whole; the others wait in the kernel's buffers, as TCP has
it. Whoever is read and sends little for a slice of time goes behind all that have not had theirs: a peer that lets its
frame starve costs the others nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final, Protocol

LARGE_BYTES: Final = 128 * 1024
"""Of a frame: from here on its sender takes turns."""

_AT_A_TIME: Final = 8
"""A piece has up to 256 KB and takes some 100 us."""

_TRIES: Final = 16
"""Peers looked at in one turn of the loop while memory is short."""

SLICE_S: Final = 0.25
"""While memory is short: how long one may be read while others wait ..."""
SLICE_BYTES: Final = 64 * 1024
"""... and what has to arrive in that time."""


class Peer(Protocol):
    """A connection in the middle of a large frame."""

    @property
    def missing_bytes(self) -> int:
        """What is still to come of its frame."""
        ...

    def read_on(self) -> None:
        """Be read: the next piece may come."""
        ...

    def read_later(self) -> None:
        """Be read no more, for now."""
        ...


class Memory(Protocol):
    """What there is for all frames together."""

    def is_short(self) -> bool:
        """Whether frames have to become whole one after the other."""
        ...

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much more may come."""
        ...

    def is_idle(self) -> bool:
        """Whether nothing that was received is being handled: then nothing becomes free by itself."""
        ...


class FairQueue:
    """A queue of peers who are not read at the moment. Lives on one event loop."""

    def __init__(self, memory: Memory | None = None) -> None:
        """Nobody waits yet.

        Args:
            memory: None: there is always enough.
        """
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
        if self._memory is None or not self._memory.is_short():
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
        """Whether its frame may become whole beside those that are being read."""
        assert self._memory is not None
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
