# SPDX-License-Identifier: Apache-2.0
"""Memory of what history has found: caches with a bound in bytes, for threads.

`Answers` keeps answers for a while: an answer that took long to compute is given again for longer. So a client that
asks the same again and again takes a share of one processor.
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
"""An answer is given again for so many times as long as it took to compute."""


class Recent(Generic[K, T]):
    """A `BoundedCache` for threads."""

    def __init__(self, max_bytes: int) -> None:
        """Start empty."""
        self._cache: BoundedCache[K, T] = BoundedCache(max_bytes)
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes in the cache."""
        return self._cache.bytes

    def get(self, key: K) -> T | None:
        """The result, which is then the most recent one."""
        with self._lock:
            return self._cache.get(key)

    def put(self, key: K, value: T, size_bytes: int) -> None:
        """Keep a result of so many bytes, key included; forget the oldest."""
        with self._lock:
            self._cache.put(key, value, size_bytes)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._cache.clear()


class _Answer(Protocol):
    @property
    def commit(self) -> RouteCommit:
        """The epoch that it is computed from."""


A = TypeVar("A", bound=_Answer)


class _Kept(msgspec.Struct, frozen=True):
    answer: Any
    until_s: float


class Answers(Recent[Hashable, _Kept]):
    """Answers by their questions."""

    def ask(
        self,
        question: Hashable,
        newest: RouteCommit,
        compute: Callable[[], A],
        size_bytes: Callable[[A], int],
        *,
        is_fresh: bool = False,
    ) -> A:
        """A kept answer, or a new one, which is then kept.

        Args:
            question: What is asked.
            newest: The newest epoch: an answer that is computed from it is as good as a new one.
            compute: Computes the answer.
            size_bytes: What an answer is counted as.
            is_fresh: Give no answer that is computed from an earlier epoch.
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
