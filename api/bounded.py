# SPDX-License-Identifier: Apache-2.0
"""A cache that is bounded by what its entries really hold."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

ENTRY_BYTES: Final = 400
"""What an entry costs beside its bytes, roughly."""


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
        self.bytes = 0

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._entries)

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
            may_go: Whether a value may be forgotten for this one, asked from the one not used for longest on; None:
                each may.

        Returns:
            Whether it is kept: not where there is no room, for what is in the way may not go.
        """
        size_bytes += ENTRY_BYTES
        self.pop(key)
        while self._entries and self.bytes + size_bytes > self._max_bytes:
            oldest, (old, _) = next(iter(self._entries.items()))
            if may_go is not None and not may_go(old):
                return False
            self.pop(oldest)
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
