# SPDX-License-Identifier: Apache-2.0
"""State of the state machine.

Nearly every NameServer rule reads and writes one broker group, so state is kept per brokerName. `BrokerGroup` has the
part of RouteInfoManager's six tables that belongs to one name. Its topics are by far the largest part, and most events
do not need them. So they are in a `TopicTable`, which loads them when a rule first needs them.

Groups are immutable: a rule returns a new one. A `RouteState` has one owner, which stores new groups (`step.apply`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo
from schemas.outcomes import APPLIED, UNCHANGED

BrokerKey = tuple[str, str]
"""(clusterName, brokerAddr): the key of brokerLiveTable and filterServerTable (BrokerAddrInfo)."""

LiveKey = tuple[str, str, str]
"""(brokerName, clusterName, brokerAddr) of a live row."""

TopicRows = Mapping[str, QueueRow]
"""topic -> QueueRow of one broker group."""


class At(msgspec.Struct, frozen=True, gc=False):
    """Place of an event on the event log: its offset and its event time."""

    offset: int
    now_ms: int


class HeardChannel(msgspec.Struct, frozen=True, array_like=True):
    """A connection that registered this broker at one gateway, and the last time that the broker was heard there.

    Every later RESUME moves the time, as it moves deadlines.
    """

    connection: str
    heard_ms: int


class LiveInfo(msgspec.Struct, frozen=True, array_like=True):
    """BrokerLiveInfo. ``expire_ms`` is the last millisecond in which the broker still counts as alive.

    ``topic_config_digest`` names a registered topic table if all its rows are present. None if that is unknown.
    """

    last_update_ms: int
    last_update_offset: int
    heartbeat_timeout_ms: int
    expire_ms: int
    data_version: DataVersion
    ha_server_addr: str | None = None
    topic_config_digest: str | None = None
    channels: dict[str, HeardChannel] = {}


class RegisteredMapping(msgspec.Struct, frozen=True, array_like=True):
    """A static-topic mapping and the log offset that wrote it. If bnames are equal, the later mapping counts."""

    mapping: TopicQueueMappingInfo
    offset: int


def each_row(rows: TopicRows, rule: Callable[[QueueRow], QueueRow]) -> dict[str, QueueRow]:
    """Return the same topics with other rows. The rule is called once for each distinct row, and there are few."""
    made = {row: rule(row) for row in set(rows.values())}
    return {topic: made[row] for topic, row in rows.items()}


class TopicTable:
    """Topic rows of one group. They are loaded when they are first needed, and kept until `unload`.

    A table from `changed` knows the changed topics. So no caller has to compare ten thousand rows to find one change.

    Args:
        rows: Rows, if they are available.
        load: Returns the rows otherwise.
        find: Returns whether a topic has a row, at lower cost than `load`.
    """

    __slots__ = ("__weakref__", "_changed", "_find", "_load", "_rows")

    def __init__(
        self,
        rows: TopicRows | None = None,
        load: Callable[[], TopicRows] | None = None,
        find: Callable[[str], bool] | None = None,
    ) -> None:
        self._rows = rows if rows is not None or load is not None else {}
        self._load = load
        self._find = find
        self._changed: tuple[weakref.ref[TopicTable], Collection[str]] | None = None

    def changed(self, updates: TopicRows, removed: Collection[str] = ()) -> TopicTable:
        """Make a table with some rows replaced, added and removed.

        Args:
            updates: New rows. Each differs from the present row of its topic, if there is one.
            removed: Topics that have a row now, and have none afterwards.
        """
        rows = self.rows
        kept = {topic: row for topic, row in rows.items() if topic not in removed} if removed else rows
        table = TopicTable({**kept, **updates})
        if rows:
            # A weak reference, because otherwise each table would keep all earlier tables.
            table._changed = weakref.ref(self), (*updates, *removed)
        return table

    def changed_since(self, before: TopicTable) -> Collection[str] | None:
        """Return the topics with other rows than an earlier table, in any order. None if that is unknown."""
        if self._changed is not None and self._changed[0]() is before:
            return self._changed[1]
        return None

    @property
    def rows(self) -> TopicRows:
        """Row by topic."""
        if self._rows is None:
            assert self._load is not None
            self._rows = self._load()
        return self._rows

    def __contains__(self, topic: str) -> bool:
        if self._rows is None and self._find is not None:
            return self._find(topic)
        return topic in self.rows

    def unload(self) -> None:
        """Drop rows that can be loaded again."""
        if self._load is not None:
            self._rows = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicTable) and (self is other or self.rows == other.rows)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicTable({self._rows!r})"


class BrokerGroup(msgspec.Struct, frozen=True, array_like=True):
    """All state of one brokerName.

    ``known`` is True if brokerAddrTable has an entry. An entry may have no address: a refused first registration leaves
    such an entry, as in RocketMQ. ``clusters`` are the clusters that list the name.
    """

    broker_name: str
    known: bool = False
    cluster: str | None = None
    clusters: frozenset[str] = frozenset()
    broker_addrs: Mapping[int, str] = msgspec.field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False
    live: Mapping[BrokerKey, LiveInfo] = msgspec.field(default_factory=dict)
    filter_servers: Mapping[BrokerKey, tuple[str, ...]] = msgspec.field(default_factory=dict)
    mappings: Mapping[tuple[str, str], RegisteredMapping] = msgspec.field(default_factory=dict)
    topics: TopicTable = msgspec.field(default_factory=TopicTable)

    @property
    def empty(self) -> bool:
        """Return whether nothing is left to store."""
        return not (
            self.known or self.clusters or self.live or self.filter_servers or self.mappings or self.topics.rows
        )


FOR_EVER_MS: Final = 253_402_300_799_999
"""End of the year 9999. No deadline is later (heartbeatTimeoutMillis may be the greatest long)."""


def deadline_ms(from_ms: int, timeout_ms: int) -> int:
    """Return the time at which a broker heard at ``from_ms`` expires, limited to the range of a timestamp."""
    return max(0, min(from_ms + timeout_ms, FOR_EVER_MS))


def alive_until_ms(heard_ms: int, timeout_ms: int) -> int:
    """Return the deadline of a broker that was heard just now. It is in the future, also for a timeout of 0 or less."""
    return deadline_ms(heard_ms, max(1, timeout_ms))


KvTable = Mapping[str, Mapping[str, str | None]]
"""Value by namespace and key. If the last key of a namespace is deleted, the namespace keeps that key with None."""


class RouteState(msgspec.Struct):
    """State of the whole NameServer, or of one shard: groups by name, and KV configuration.

    ``now_ms`` is the greatest event time on the log so far, also of records for other shards; 0 before the first.
    ``preserved_ms`` is the event time of the PRESERVE in force, moved by every later RESUME; 0 without a PRESERVE.
    ``watermark_ms`` is the event time of the last CLOCK. Every broker with an earlier deadline has expired, unless a
    PRESERVE was in force.
    """

    groups: dict[str, BrokerGroup] = msgspec.field(default_factory=dict)
    kv: KvTable = msgspec.field(default_factory=dict)
    now_ms: int = 0
    preserved_ms: int = 0
    watermark_ms: int = 0


Verdict = Literal["applied", "unchanged", "rejected"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an event. ``result`` has the values that its answer needs, for example wipeTopicCount."""

    verdict: Verdict
    reason: str | None = None
    result: Mapping[str, Any] | None = None


OUTCOME_UNCHANGED: Final = Outcome(UNCHANGED)
OUTCOME_APPLIED: Final = Outcome(APPLIED)


def without(mapping: Mapping[Any, Any], key: object) -> dict[Any, Any]:
    """Return the mapping without one key, which may be absent."""
    return {k: v for k, v in mapping.items() if k != key}
