# SPDX-License-Identifier: Apache-2.0
"""A shard's topics between the state store and its groups: loaded when a rule asks, written back where they changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from nameserver.state_machine.codec import decode_topics, encode_topics
from nameserver.state_machine.state import BrokerGroup, TopicRows, TopicTable, replace

HELD_ROWS: Final = 200_000
"""A shard that has met more topics than this spills them: they take 40 MB. A batch from Kafka is bounded in records
only, and a record may be a registration of ten thousand topics."""


@dataclass(slots=True)
class TopicStore:
    """Storage of a shard's topics between batches (Spark's MapState, or a dict in tests)."""

    get: Callable[[str], bytes | None]
    put: Callable[[str, bytes], None]
    remove: Callable[[str], None]


class ShardTopics:
    """The topics of one shard in one micro-batch."""

    def __init__(self, store: TopicStore) -> None:
        self._store = store
        self._stored: dict[str, TopicTable] = {}
        self._held_rows = 0

    def table(self, name: str) -> TopicTable:
        """Return a group's table as the store has it now. Later writes of this batch do not change it."""
        stored: bytes | None = None

        def load() -> TopicRows:
            nonlocal stored
            if stored is None:
                stored = self._store.get(name) or encode_topics({})
            rows = decode_topics(stored)
            self._held_rows += len(rows)
            return rows

        table = self._stored[name] = TopicTable(load=load)
        return table

    def met(self, rows: int) -> None:
        """Count rows that have come into memory by an event."""
        self._held_rows += rows

    @property
    def are_many(self) -> bool:
        """Return True if so many rows are held that `spill` is due."""
        return self._held_rows > HELD_ROWS

    def spill(self, groups: dict[str, BrokerGroup], start: Iterable[BrokerGroup]) -> None:
        """Keep rows that are in memory as bytes from here on; changed ones go into the store.

        Args:
            groups: by name, as they are now; those that are spilled change places with equal ones.
            start: as they were when the batch began.
        """
        for name, group in groups.items():
            if self._stored.get(name) is not group.topics and group.topics.rows:
                data = encode_topics(group.topics.rows)
                self._store.put(name, data)
                self._stored[name] = TopicTable(load=partial(decode_topics, data))
                groups[name] = replace(group, topics=self._stored[name])
        for group in (*start, *groups.values()):
            group.topics.unload()
        self._held_rows = 0

    def write_back(self, groups: Mapping[str, BrokerGroup]) -> None:
        """Bring the store up to date at the end of the batch, writing only what changed."""
        for name, group in groups.items():
            if self._stored.get(name) is not group.topics:
                if group.topics.rows:
                    self._store.put(name, encode_topics(group.topics.rows))
                elif name in self._stored:
                    self._store.remove(name)
        for name in self._stored.keys() - groups.keys():
            self._store.remove(name)
