# SPDX-License-Identifier: Apache-2.0
"""Values: what some keys were at each log offset, for as long as somebody may still ask."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, KeysView
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_FORGOTTEN: Final[Any] = object()
_offset_of = itemgetter(0)


class Values(Generic[K, V]):
    """Every value that a key had since it was last settled.

    Bounded by ``most`` values and three for each key: beyond that the values between a key's first and its newest are
    forgotten.
    """

    def __init__(self, most: int) -> None:
        """Nothing yet."""
        self._most = self._bound = most
        self._kept = 0
        self._of: dict[K, list[tuple[int, V]]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._of

    def keys(self) -> KeysView[K]:
        """What has changed since it was settled."""
        return self._of.keys()

    def begin(self, key: K, value: V) -> None:
        """What a key is, before its first change."""
        self._of[key] = [(-1, value)]
        self._kept += 1

    def note(self, key: K, offset: int, value: V) -> None:
        """A key's value changed at an offset, which is never less than one already noted."""
        self._of[key].append((offset, value))
        self._kept += 1
        if self._kept > self._bound:
            self._thin()

    def first(self, key: K) -> V:
        """A key's value when it was settled."""
        return self._of[key][0][1]

    def at(self, key: K, offset: int) -> V | None:
        """A key's value at an offset; None where it was forgotten."""
        entries = self._of[key]
        value = entries[bisect_right(entries, offset, key=_offset_of) - 1][1]
        return None if value is _FORGOTTEN else value

    def settle(self, keys: Iterable[K], offset: int) -> None:
        """Nobody asks for what keys were before an offset any more."""
        for key in keys:
            entries = self._of[key]
            index = bisect_right(entries, offset, key=_offset_of) - 1
            if index == len(entries) - 1:
                self._kept -= len(entries)
                del self._of[key]
            else:
                self._kept -= index
                del entries[:index]

    def _thin(self) -> None:
        for entries in self._of.values():
            if len(entries) > 2:
                entries[1:-1] = [(entries[1][0], _FORGOTTEN)]
        self._kept = sum(map(len, self._of.values()))
        self._bound = max(self._most, 2 * self._kept)
