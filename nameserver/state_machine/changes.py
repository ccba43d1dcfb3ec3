# SPDX-License-Identifier: Apache-2.0
"""Differences between two states, as table rows.

A `RowChange` is one row of one state table before and after. Columns of brokerLiveTable that every heartbeat moves do
not count, so a heartbeat is not a change. A group's rows of topicQueueTable are `TopicChanges` instead, because ten
thousand may change at once: columns, without an object for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from nameserver.state_machine.rows import Rows, rows_of
from nameserver.state_machine.state import BrokerGroup, BrokerKey, LiveInfo
from nameserver.state_machine.step import BROKER_EXPIRED, GroupChange, KvChange
from schemas.broker import QueueRow
from schemas.events import (
    AccessRefused,
    AddWritePerm,
    AnyEvent,
    DeleteKvConfig,
    DeleteTopic,
    Preserve,
    PreserveEnd,
    PutKvConfig,
    RegisterTopic,
    Resume,
    UnregisterBroker,
    WipeWritePerm,
)
from schemas.outcomes import APPLIED, REJECTED
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    Table,
)

HEARTBEAT_COLUMNS: Final = frozenset({"lastUpdateTimestamp", "lastUpdateOffset", "expireTimestamp", "channels"})
"""Columns of brokerLiveTable that every heartbeat moves."""

LIVENESS_COLUMNS: Final = HEARTBEAT_COLUMNS | {"topicConfigDigest"}
"""Columns of brokerLiveTable that may move although nothing has changed."""


_without_heartbeat: Final[itemgetter[Any]] = itemgetter(
    *(at for at, name in enumerate(BROKER_LIVE_TABLE.value_columns) if name not in HEARTBEAT_COLUMNS)
)
"""Getter of a brokerLiveTable row's values without `HEARTBEAT_COLUMNS`."""

_registered: Final = attrgetter("heartbeat_timeout_ms", "data_version", "ha_server_addr")
"""Getter of the fields of a `LiveInfo` that are in columns outside `LIVENESS_COLUMNS`."""

_key_of = attrgetter("key")

_AUDITED_IF_APPLIED: Final = (UnregisterBroker, Resume, Preserve, PreserveEnd)
_ALWAYS_AUDITED: Final = (
    DeleteTopic,
    RegisterTopic,
    WipeWritePerm,
    AddWritePerm,
    PutKvConfig,
    DeleteKvConfig,
    AccessRefused,
)


class RowChange(NamedTuple):
    """One row before and after, or None without a row. Values are in the order of ``table.value_columns``."""

    table: Table
    key: tuple[Any, ...]
    before: tuple[Any, ...] | None
    after: tuple[Any, ...] | None


class TopicChanges(NamedTuple):
    """Changed rows of topicQueueTable of a group: topics, and the row of each before and after. None without a row."""

    broker_name: str
    topics: Sequence[str]
    before: Sequence[QueueRow | None]
    after: Sequence[QueueRow | None]


def is_liveness_only(before: tuple[Any, ...] | None, after: tuple[Any, ...]) -> bool:
    """Return True if a brokerLiveTable row differs from the one before only in its heartbeat columns."""
    return before is not None and bool(_without_heartbeat(before) == _without_heartbeat(after))


def topic_changes(before: BrokerGroup, after: BrokerGroup) -> TopicChanges | None:
    """Return every changed row of topicQueueTable, in the order of history. None if none changed."""
    if before.topics is after.topics:
        return None
    name, old, new = after.broker_name, before.topics.rows, after.topics.rows
    if not old:
        return TopicChanges(name, list(new), [None] * len(new), list(new.values())) if new else None
    was, now = old.get, new.get
    known = after.topics.changed_since(before.topics)
    if known is None:
        known = [topic for topic, row in new.items() if was(topic) != row]
        known += [topic for topic in old if topic not in new]
    # A state that was read from the tables has its rows in another order. History must not depend on that.
    changed = sorted(known)
    return TopicChanges(name, changed, list(map(was, changed)), list(map(now, changed))) if changed else None


def row_changes(before: BrokerGroup, after: BrokerGroup, *, with_liveness: bool = False) -> Iterator[RowChange]:
    """Yield every changed row of one group except its topics', table by table in commit order.

    Args:
        before: Group before.
        after: Same group after.
        with_liveness: Whether to yield rows of brokerLiveTable that differ only in `LIVENESS_COLUMNS`, too.
    """
    if before is after:
        return
    if _addr_fields(before) != _addr_fields(after):
        yield from _diff(BROKER_ADDR_TABLE, before, after)
    if before.clusters != after.clusters:
        yield from _diff(CLUSTER_ADDR_TABLE, before, after)
    if before.live is not after.live:
        if with_liveness:
            yield from _diff(BROKER_LIVE_TABLE, before, after)
        elif changed := _changed_members(before.live, after.live):
            yield from _diff(BROKER_LIVE_TABLE, _with_members(before, changed), _with_members(after, changed))
    if before.filter_servers is not after.filter_servers:
        yield from _diff(FILTER_SERVER_TABLE, before, after)
    if before.mappings is not after.mappings:
        yield from _diff(TOPIC_QUEUE_MAPPING_INFO_TABLE, *_changed_mappings(before, after))


def kv_changes(change: KvChange) -> Iterator[RowChange]:
    """Yield every changed row of kvConfigTable: the command's own, and a null row that only kept its namespace."""
    namespace = change.event.namespace
    nothing: Mapping[str, str | None] = {}
    old, new = change.before.get(namespace, nothing), change.after.get(namespace, nothing)
    keys = {change.event.key}
    if None in old.values():
        keys.update(key for key, value in old.items() if value is None)
    for key in sorted(keys):
        was, now = ((entries[key],) if key in entries else None for entries in (old, new))
        if was != now:
            yield RowChange(KV_CONFIG_TABLE, (namespace, key), was, now)


def changes_of(change: GroupChange | KvChange) -> Iterator[RowChange]:
    """Yield the row changes of one change of a step, except its topics'."""
    if isinstance(change, KvChange):
        return kv_changes(change)
    return row_changes(change.before, change.after)


def command_of(change: GroupChange | KvChange) -> str:
    """Return the RequestCode name of the cause, or BROKER_EXPIRED."""
    return BROKER_EXPIRED if change.event is None else command_name(change.event)


def command_name(event: AnyEvent) -> str:
    """Return the tag of an event on the log."""
    return str(event.__struct_config__.tag)


def is_audited(event: AnyEvent, verdict: str) -> bool:
    """Return True if a command gets its own row in routeChangeTable and an entry in the epoch's outcomes.

    These are every refusal, every admin command with any result, and every unregistration that removed something. So
    are every RESUME (it shows when no gateway was listening), and the begin and end of a pause of expiry.
    """
    if verdict == REJECTED:
        return True
    if isinstance(event, _AUDITED_IF_APPLIED):
        return verdict == APPLIED
    return isinstance(event, _ALWAYS_AUDITED)


def _diff(table: Table, before: BrokerGroup, after: BrokerGroup) -> Iterable[RowChange]:
    return row_differences(table, rows_of(table, before), rows_of(table, after))


def _changed_members(old: Mapping[BrokerKey, LiveInfo], new: Mapping[BrokerKey, LiveInfo]) -> set[BrokerKey]:
    """Return the members that more than a heartbeat has changed, because rows of members are expensive to make."""
    changed = {key for key, live in new.items() if key not in old or _registered(old[key]) != _registered(live)}
    return changed.union(key for key in old if key not in new)


def _with_members(group: BrokerGroup, members: set[BrokerKey]) -> BrokerGroup:
    return replace(group, live={key: live for key, live in group.live.items() if key in members})


def _changed_mappings(before: BrokerGroup, after: BrokerGroup) -> tuple[BrokerGroup, BrokerGroup]:
    """Return the groups with only the static mappings that differ, because rows of mappings are expensive to make."""
    old, new = before.mappings, after.mappings
    changed = [key for key, entry in new.items() if old.get(key) != entry]
    changed += [key for key in old if key not in new]
    return (
        replace(before, mappings={key: old[key] for key in changed if key in old}),
        replace(after, mappings={key: new[key] for key in changed if key in new}),
    )


def row_differences(table: Table, old: Rows, new: Rows) -> Iterable[RowChange]:
    """Return the rows of one table that differ, in the order of their keys."""
    changes = [RowChange(table, key, old.get(key), values) for key, values in new.items() if old.get(key) != values]
    if old:
        changes += [RowChange(table, key, values, None) for key, values in old.items() if key not in new]
        changes.sort(key=_key_of)  # as in `topic_changes`
    return changes


def _addr_fields(group: BrokerGroup) -> tuple[object, ...]:
    return (group.known, group.cluster, group.broker_addrs, group.zone_name, group.enable_acting_master)
