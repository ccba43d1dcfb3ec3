# SPDX-License-Identifier: Apache-2.0
"""A cache that is bounded by what its entries really hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

ENTRY_BYTES: Final = 400
"""Memory of an entry without its bytes, roughly, in bytes."""

_MAX_SPARED: Final = 8
"""Entries that may be looked at in vain for one new."""


class BoundedCache(Generic[K, T]):
    """A dict that forgets what was not used for longest, once it holds too many bytes. One thread at a time.

    Attributes:
        bytes: How much it holds.
    """

    def __init__(self, max_bytes: int) -> None:
        """Start empty.

        Args:
            max_bytes: Bound of what is kept. A single entry beyond it is kept nevertheless.
        """
        self._entries: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._max_bytes = max_bytes
        self.peek = self._entries.get
        """The value and its size, or None; its entry is used no later than before."""
        self.bytes = 0

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._entries)

    def values(self) -> Iterator[T]:
        """All of them."""
        return (value for value, _ in self._entries.values())

    def get(self, key: K) -> T | None:
        """The value, whose entry then is the one used last."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: T, size_bytes: int, may_go: Callable[[T], bool] | None = None) -> bool:
        """Put or replace.

        Args:
            key: Counted with the value.
            value: What is kept.
            size_bytes: Of both, but for the `ENTRY_BYTES` that each entry costs.
            may_go: Asked of a few that were not used for longest, whether this one is to be forgotten; otherwise it
                counts as used just now. None: each is.

        Returns:
            Whether there is room for it; where not, it is not kept.
        """
        size_bytes += ENTRY_BYTES
        self.pop(key)
        spared = 0
        while self._entries and self.bytes + size_bytes > self._max_bytes:
            if spared == _MAX_SPARED:
                return False
            oldest, (old, _) = next(iter(self._entries.items()))
            if may_go is None or may_go(old):
                self.pop(oldest)
            else:
                self._entries.move_to_end(oldest)
                spared += 1
        self._entries[key] = (value, size_bytes)
        self.bytes += size_bytes
        return True

    def pop(self, key: K) -> None:
        """Forget one, if it is there."""
        found = self._entries.pop(key, None)
        if found is not None:
            self.bytes -= found[1]

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self.bytes = 0
