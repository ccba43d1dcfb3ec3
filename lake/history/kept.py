# SPDX-License-Identifier: Apache-2.0
"""Thread-safe caches of history, limited in bytes.

`Answers` caches answers for a while, longer if they took longer to compute. So a client that repeats an expensive query
uses only a share of one processor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from runtime.bounded import BoundedCache, K, T
from schemas.route_commit import RouteCommit

REST: Final = 20
"""Factor of the time to compute an answer. For that duration, the answer is reused."""


class Recent(Generic[K, T]):
    """A thread-safe `BoundedCache`."""

    def __init__(self, max_bytes: int) -> None:
        """Create an empty cache."""
        self._cache: BoundedCache[K, T] = BoundedCache(max_bytes)
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes in the cache."""
        return self._cache.bytes

    def get(self, key: K) -> T | None:
        """Return a cached result, which becomes the most recent one."""
        with self._lock:
            return self._cache.get(key)

    def put(self, key: K, value: T, size_bytes: int) -> None:
        """Cache a result of this size, including its key. The oldest results are removed if needed."""
        with self._lock:
            self._cache.put(key, value, size_bytes)

    def clear(self) -> None:
        """Remove all results."""
        with self._lock:
            self._cache.clear()


class _Answer(Protocol):
    @property
    def commit(self) -> RouteCommit:
        """The newest epoch at the time of the query."""


A = TypeVar("A", bound=_Answer)


class _Kept(msgspec.Struct, frozen=True):
    answer: Any
    until_s: float


class Answers(Recent[Hashable, _Kept]):
    """Cached answers by query."""

    def ask(
        self,
        question: Hashable,
        newest: RouteCommit,
        compute: Callable[[], A],
        size_bytes: Callable[[A], int],
        *,
        is_fresh: bool = False,
    ) -> A:
        """Return a cached answer, or compute one and cache it.

        Args:
            question: Parameters of the query, as cache key.
            newest: The newest epoch. An answer from this epoch is always current.
            compute: Function that computes the answer.
            size_bytes: Function that returns the assumed size of an answer.
            is_fresh: Do not return an answer from an earlier epoch.
        """
        known = self.get(question)
        if known is not None and (known.answer.commit == newest or (not is_fresh and time.monotonic() < known.until_s)):
            kept: A = known.answer
            return kept
        began_s = time.monotonic()
        found = compute()
        done_s = time.monotonic()
        self.put(question, _Kept(found, done_s + REST * (done_s - began_s)), size_bytes(found))
        return found
