# SPDX-License-Identifier: Apache-2.0
"""What a write adds to event log and tables, bytes: rough, and rather too much.

Measured with 40 groups of 1,000 topics and 5 of 20,000 (`tests/e2e/test_quotas.py` measures again, with all of it): a
payload is on the log once, and what it says stands in a table and in the history, twice where it replaces something. A
row with a name that is like its neighbours' takes 7 bytes; what the names differ in is in the payload. A partition of
topicQueueTable is written anew with the first change of an epoch, and each epoch has its commits, whatever is in it.
Whoever comes first in a second is charged for both; what others change in the same second is written along.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from nameserver.view.snapshot import RouteView
from schemas.events import (
    KEY_KV,
    AnyEvent,
    ChannelClosed,
    DeleteKvConfig,
    DeleteTopic,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    UnregisterBroker,
    routing_key,
)

LOG_ROW_BYTES: Final = 60
"""Of a record on the log beside its payload."""
COPIES: Final = 4
"""Of a payload in log, table and history."""
KV_COPIES: Final = 8
"""The history has the value before and the value after, and tables are compressed less than the log."""
COMMAND_BYTES: Final = 500
"""Of a command in the history, whatever it did."""
ROW_BYTES: Final = 10
"""Of a row beside its name."""
HISTORY_ROW_BYTES: Final = 40
"""Of a single row of history."""
NEW_GROUP_BYTES: Final = 6_000
"""Of a brokerName that was not there: a folder, and rows of four tables."""
PARTITION_BYTES: Final = 4_000
"""Of a file of a partition beside its rows."""
EPOCH_BYTES: Final = 40_000
"""Of an epoch's commits."""
LIVE_ROW_BYTES: Final = 80
"""Of a row of brokerLiveTable, which an epoch writes anew."""
KV_ENTRY_BYTES: Final = 40

_REWRITTEN_KEPT: Final = 100_000


class Size(NamedTuple):
    """What a broker group has.

    Attributes:
        rows: Its topics.
        name_bytes: What their names take, compressed.
    """

    rows: int = 0
    name_bytes: int = 0

    @property
    def rewrite_bytes(self) -> int:
        """What it takes to write its partition anew."""
        return PARTITION_BYTES + ROW_BYTES * self.rows + self.name_bytes


def epoch_bytes(view: RouteView) -> int:
    """Of an epoch, beside what changes in it."""
    return EPOCH_BYTES + LIVE_ROW_BYTES * len(view.groups)


def log_bytes(payload_bytes: int) -> int:
    """What a record takes on the log."""
    return LOG_ROW_BYTES + payload_bytes


def mapping_rows(event: RegisterBroker) -> int:
    """Static topic mappings and filter servers that a registration brings, as rows; a mapping has queue ids, too."""
    mappings = event.topic_queue_mapping_info_map.values()
    return sum(1 + len(found.curr_id_map or ()) for found in mappings) + len(event.filter_server_list or ())


def registration_bytes(payload_bytes: int, rows: int) -> int:
    """Of a registration with topics, what it makes of its group's partition not counted.

    Args:
        payload_bytes: Of its event.
        rows: The topics that it brings, and `mapping_rows`.
    """
    return log_bytes(COPIES * payload_bytes) + ROW_BYTES * rows


def command_bytes(event: AnyEvent, payload_bytes: int) -> int:
    """Of any other event, what it makes of a group's partition not counted."""
    copies = KV_COPIES if isinstance(event, PutKvConfig | DeleteKvConfig) else COPIES
    return log_bytes(copies * payload_bytes) + COMMAND_BYTES


def groups_of(event: AnyEvent, view: RouteView) -> tuple[str, ...]:
    """The groups whose partition an event has written anew."""
    if isinstance(event, DeleteTopic):
        rows = view.topics.get(event.topic)
        return () if rows is None else rows.brokers
    if isinstance(event, RegisterTopic):
        return (event.queue_data.broker_name,)
    name: str | None = getattr(event, "broker_name", None)
    return () if name is None or name not in view.groups else (name,)


def history_bytes(event: AnyEvent, sizes: tuple[Size, ...]) -> int:
    """What the history tells of the rows that an event changes."""
    if isinstance(event, DeleteTopic | RegisterTopic):
        return HISTORY_ROW_BYTES * len(sizes)
    return sum(ROW_BYTES * size.rows + size.name_bytes for size in sizes)


def removes_group(event: AnyEvent) -> bool:
    """Whether it writes no partition anew: rows that go all at once leave nothing behind."""
    return isinstance(event, UnregisterBroker | ChannelClosed)


def kv_bytes(view: RouteView) -> int:
    """Of the table of all KV entries, which a change writes anew."""
    return sum(
        KV_ENTRY_BYTES + len(key) + len(value or "") for table in view.kv.values() for key, value in table.items()
    )


def has_new_name(event: AnyEvent, view: RouteView) -> bool:
    """Whether it brings a name that was not there."""
    if isinstance(event, PutKvConfig):
        return event.key not in view.kv.get(event.namespace, ())
    return isinstance(event, RegisterTopic) and event.topic not in view.topics


class WriteAmplification:
    """What this second's epoch was charged for. One thread at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Nobody has been charged.

        Args:
            clock: Seconds; never goes back.
        """
        self._clock = clock
        self._second = -1
        self._rewritten: set[str] = set()

    def commits_bytes(self, view: RouteView) -> int:
        """Of an epoch's commits, for the first change of a second; for others 0."""
        return 0 if self._is_this_second() else epoch_bytes(view)

    def has_paid(self, partition: str) -> bool:
        """Whether somebody was charged for a partition in this second."""
        return self._is_this_second() and partition in self._rewritten

    def rewrite_bytes(
        self, event: AnyEvent, view: RouteView, size_of: Callable[[str, RouteView], Size]
    ) -> tuple[int, tuple[str, ...]]:
        """What an event has written anew that nothing in this second had yet, and what history tells of it.

        Args:
            event: Any but a registration.
            view: At the head.
            size_of: What a broker group has.

        Returns:
            Bytes, and the partitions.
        """
        if routing_key(event) == KEY_KV:
            return (0, ()) if self.has_paid(KEY_KV) else (kv_bytes(view), (KEY_KV,))
        names = groups_of(event, view)
        sizes = tuple(size_of(name, view) for name in names)
        if removes_group(event):
            return PARTITION_BYTES + history_bytes(event, sizes), ()
        anew = sum(size.rewrite_bytes for name, size in zip(names, sizes, strict=True) if not self.has_paid(name))
        return anew + history_bytes(event, sizes), names

    def paid(self, partitions: tuple[str, ...]) -> None:
        """A change was charged for its epoch and these partitions."""
        if not self._is_this_second():
            self._second = int(self._clock())
            self._rewritten.clear()
        if len(self._rewritten) < _REWRITTEN_KEPT:
            self._rewritten.update(partitions)

    def refund(self) -> None:
        """What was charged is given back: whoever comes next pays for the epoch."""
        self._second = -1

    def _is_this_second(self) -> bool:
        return int(self._clock()) == self._second
