# SPDX-License-Identifier: Apache-2.0
"""State of the state machine.

Nearly every NameServer rule reads and writes one broker group, so state is kept per brokerName: `BrokerGroup` holds
the slice of RouteInfoManager's six tables that belongs to one name. Its topics are by far the largest part and most
events do not need them, so they sit behind `TopicTable`, which loads them when a rule first asks.

Groups are immutable: a rule returns a new one. A `RouteState` has one owner, which puts them in place (`step.apply`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec

from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo
from schemas.outcomes import APPLIED, UNCHANGED

BrokerKey = tuple[str, str]
"""(clusterName, brokerAddr): the key of brokerLiveTable and filterServerTable (BrokerAddrInfo)."""

LiveKey = tuple[str, str, str]
"""(brokerName, clusterName, brokerAddr) of a live row."""

TopicRows = Mapping[str, QueueRow]
"""topic -> QueueRow of one broker group."""


class At(NamedTuple):
    """Place of an event on the event log: its offset and its event time."""

    offset: int
    now_ms: int


class HeardChannel(msgspec.Struct, frozen=True, array_like=True):
    """A connection that registered this broker at one gateway, and when the broker was last heard there."""

    connection: str
    heard_ms: int


class LiveInfo(msgspec.Struct, frozen=True, array_like=True):
    """BrokerLiveInfo. ``expire_ms`` is the last instant at which the broker still counts as alive.

    ``topic_config_digest`` names a registered topic table all of whose rows are present; None when unknown.
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
    """A static-topic mapping and the log offset that wrote it (of equal ones the later counts)."""

    mapping: TopicQueueMappingInfo
    offset: int


def each_row(rows: TopicRows, rule: Callable[[QueueRow], QueueRow]) -> dict[str, QueueRow]:
    """The same topics with other rows; the rule is asked once for each distinct row, of which there are few."""
    made = {row: rule(row) for row in set(rows.values())}
    return {topic: made[row] for topic, row in rows.items()}


class TopicTable:
    """The topic rows of one group; loaded when first needed, and kept until `unload`.

    A table that a rule made by `changed` remembers the changed topics, so that nobody has to compare ten thousand rows
    again to find one.

    Args:
        rows: They, if they are at hand.
        load: Gives them otherwise.
        find: Tells whether there is a row of a topic, for less than `load`.
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
            updates: New rows. Each differs from the row of its topic, if there is one.
            removed: Topics that have a row, and have none afterwards.
        """
        rows = self.rows
        kept = {topic: row for topic, row in rows.items() if topic not in removed} if removed else rows
        table = TopicTable({**kept, **updates})
        if rows:
            # Weak: otherwise each table would keep all tables before it.
            table._changed = weakref.ref(self), (*updates, *removed)
        return table

    def changed_since(self, before: TopicTable) -> Collection[str] | None:
        """Topics whose rows differ from an earlier table, in any order; None if they have to be looked for."""
        if self._changed is not None and self._changed[0]() is before:
            return self._changed[1]
        return None

    @property
    def rows(self) -> TopicRows:
        """topic -> QueueRow."""
        if self._rows is None:
            assert self._load is not None
            self._rows = self._load()
        return self._rows

    def __contains__(self, topic: str) -> bool:
        if self._rows is None and self._find is not None:
            return self._find(topic)
        return topic in self.rows

    def unload(self) -> None:
        """Forget rows that can be loaded again."""
        if self._load is not None:
            self._rows = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicTable) and (self is other or self.rows == other.rows)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TopicTable({self._rows!r})"


class BrokerGroup(msgspec.Struct, frozen=True, array_like=True):
    """Everything known under one brokerName.

    ``known`` tells whether brokerAddrTable has an entry, which may be one without any address (a refused first
    registration leaves that behind, as in RocketMQ). ``clusters`` are the clusters whose set lists the name.
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
        """Nothing left to remember."""
        return not (
            self.known or self.clusters or self.live or self.filter_servers or self.mappings or self.topics.rows
        )


FOR_EVER_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no deadline lies beyond it (heartbeatTimeoutMillis may be the greatest long)."""


def deadline_ms(from_ms: int, timeout_ms: int) -> int:
    """Return the time at which a broker heard at ``from_ms`` expires, limited to the range of a timestamp."""
    return max(0, min(from_ms + timeout_ms, FOR_EVER_MS))


def alive_until_ms(heard_ms: int, timeout_ms: int) -> int:
    """The deadline of a broker that was heard just now. It lies after that, be its timeout 0, or less."""
    return deadline_ms(heard_ms, max(1, timeout_ms))


KvTable = Mapping[str, Mapping[str, str | None]]
"""namespace -> key -> value. If the last key of a namespace is deleted, the namespace keeps that key with None."""


class RouteState(msgspec.Struct):
    """The whole NameServer, or one shard of it: groups by name, and KV configuration.

    ``now_ms`` is the greatest event time on the log so far, records for other shards included; 0 before the first.
    ``preserved_ms`` is the event time of the PRESERVE in force, moved by every RESUME since; 0 while there is none.
    ``watermark_ms`` is the event time of the last CLOCK: every broker whose deadline lies before it has expired, unless
    a PRESERVE was in force.
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
    """The mapping less one key, which may be absent."""
    return {k: v for k, v in mapping.items() if k != key}
