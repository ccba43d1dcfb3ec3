# SPDX-License-Identifier: Apache-2.0
"""A cache with a bound on the memory of its entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

ENTRY_BYTES: Final = 400
"""Approximate memory of an entry in addition to its own size, in bytes."""

_MAX_SPARED: Final = 8
"""Maximum number of entries that one `put` checks and keeps."""


class BoundedCache(Generic[K, T]):
    """A dict with a bound on its memory. It drops the least recently used entries first. For one thread at a time.

    Attributes:
        bytes: Memory of all entries, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        """Start empty.

        Args:
            max_bytes: Maximum memory of all entries, in bytes. A single entry above it is kept.
        """
        self._entries: OrderedDict[K, tuple[T, int]] = OrderedDict()
        self._max_bytes = max_bytes
        self.peek = self._entries.get
        """Return the value and its size, or None. The call does not count as a use of the entry."""
        self.bytes = 0

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._entries)

    def values(self) -> Iterator[T]:
        """Iterate over all values."""
        return (value for value, _ in self._entries.values())

    def get(self, key: K) -> T | None:
        """Return a value, or None. The call counts as a use of the entry."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: K, value: T, size_bytes: int, may_go: Callable[[T], bool] | None = None) -> bool:
        """Add or replace an entry.

        Args:
            key: Key of the entry.
            value: Value of the entry.
            size_bytes: Size of key and value, without `ENTRY_BYTES`, in bytes.
            may_go: Function that decides whether an old value may be dropped. It is asked for at most `_MAX_SPARED`
                values that stay. A value that stays counts as just used. None: every value may be dropped.

        Returns:
            True if the entry was added. False if there was no room.
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
        """Remove an entry if it exists."""
        found = self._entries.pop(key, None)
        if found is not None:
            self.bytes -= found[1]

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self.bytes = 0
