# SPDX-License-Identifier: Apache-2.0
"""Object stores in memory, and one that can stop its writer before each step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from obstore.store import MemoryStore

from lake.store import Store, StoreError, Tag


class SteppingStore(Store):
    """The same objects as others over ``memory`` see.

    Attributes:
        before: Called with the number of each PUT, from 1 on, and its path, before it is done.
        lose_answer_of: Paths that are put, whereupon the answer is lost.
    """

    def __init__(self, memory: MemoryStore) -> None:
        super().__init__("memory://lake", memory)
        self.before: Callable[[int, str], None] = lambda number, path: None
        self.lose_answer_of: set[str] = set()
        self.steps = 0
        self._counting = threading.Lock()

    def _step(self, path: str) -> None:
        with self._counting:
            self.steps += 1
            number = self.steps
        self.before(number, path)

    def _answer(self, path: str) -> None:
        if path in self.lose_answer_of:
            self.lose_answer_of.remove(path)
            raise StoreError(f"PUT {path}: the answer is lost")

    def put(self, path: str, data: bytes | Path) -> None:
        self._step(path)
        super().put(path, data)
        self._answer(path)

    def put_new(self, path: str, data: bytes | Path) -> Tag:
        self._step(path)
        tag = super().put_new(path, data)
        self._answer(path)
        return tag

    def replace(self, path: str, data: bytes, tag: Tag) -> Tag:
        self._step(path)
        tag = super().replace(path, data, tag)
        self._answer(path)
        return tag


def store(memory: MemoryStore) -> Store:
    return Store("memory://lake", memory)


def objects(memory: MemoryStore) -> dict[str, bytes]:
    """Everything that is there."""
    there = store(memory)
    return {found.path: there.get(found.path) for found in there.listed("")}
