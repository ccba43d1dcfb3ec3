# SPDX-License-Identifier: Apache-2.0
"""The tables of the next `RouteView`: pure functions that copy only changed parts.

An unchanged table is returned as the same object, so that readers can detect changes by identity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar, cast

from nameserver.state_machine.state import LiveInfo, LiveKey, RegisteredMapping
from nameserver.view.model import (
    BrokerRow,
    Changes,
    RouteBroker,
    Row,
    TopicMapping,
    TopicQueues,
)

_POOL_SLACK: Final = 4096
_FEW: Final = 8
"""Number of rows up to which single look-ups are faster than a dict of all rows."""

Topics = Mapping[str, TopicQueues]
Groups = Mapping[str, RouteBroker]
Clusters = Mapping[str, tuple[str, ...]]
LiveRows = Mapping[str, Mapping[tuple[str, str], LiveInfo]]
Filters = Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]]
Mappings = Mapping[str, TopicMapping]
KvTables = Mapping[str, Mapping[str, str | None]]

Outer = TypeVar("Outer")
Inner = TypeVar("Inner")
Value = TypeVar("Value")


class Pool:
    """Pool that makes equal tuples of consecutive views one object. Used by one thread at a time."""

    def __init__(self) -> None:
        """Start empty."""
        self._brokers: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._rows: dict[tuple[tuple[str, ...], tuple[Row, ...]], TopicQueues] = {}

    def topic_rows(self, brokers: tuple[str, ...], rows: tuple[Row, ...]) -> TopicQueues:
        """Return the one object with these contents."""
        brokers = self._brokers.setdefault(brokers, brokers)
        key = (brokers, rows)
        found = self._rows.get(key)
        if found is None:
            found = self._rows[key] = TopicQueues(brokers, rows)
        return found

    def copy(self) -> Pool:
        """Return another pool with the same objects, for another line of views."""
        copy = Pool()
        copy._brokers, copy._rows = dict(self._brokers), dict(self._rows)
        return copy

    def prune(self, topics: Topics, pause: Callable[[], None]) -> None:
        """Forget objects that no topic uses any more, if they are most of the pool."""
        if len(self._rows) <= 2 * len(topics) + _POOL_SLACK:
            return
        used = set(map(id, topics.values()))
        for key, value in list(self._rows.items()):
            pause()
            if id(value) not in used:
                del self._rows[key]
        self._brokers = {value.brokers: value.brokers for value in self._rows.values()}


def apply_topics(before: Topics, changes: Changes, pool: Pool, pause: Callable[[], None]) -> Topics:
    """Apply changes of topicQueueTable. Equal (old rows, delta) pairs are merged once, since topics are alike."""
    topics: dict[str, TopicQueues] | None = None
    note = changes.topics.append
    seen: dict[tuple[int, int, int], tuple[TopicQueues | None, object]] = {}
    for topic, brokers, rows in changes.topic_rows:
        pause()
        note(topic)
        old = (before if topics is None else topics).get(topic)
        key = (id(old), id(brokers), id(rows))
        known = seen.get(key)
        if known is None:
            # The second item keeps the objects alive, because their ids are in the key.
            known = seen[key] = (_merge(old, brokers, rows, pool), (old, brokers, rows))
        new = known[0]
        if new is old:
            continue
        if topics is None:
            topics = dict(before)
        if new is None:
            del topics[topic]
        else:
            topics[topic] = new
    if topics is None:
        return before
    pool.prune(topics, pause)
    return topics


def _merge(
    old: TopicQueues | None, brokers: tuple[str, ...], rows: tuple[Row | None, ...], pool: Pool
) -> TopicQueues | None:
    """Return a topic's rows after a delta. None if no row is left."""
    if old is None and None not in rows:
        return pool.topic_rows(brokers, cast("tuple[Row, ...]", rows))
    if old is not None and len(brokers) <= _FEW:
        replaced = _replace(old, brokers, rows)
        if replaced is not None:
            return pool.topic_rows(old.brokers, replaced)
    merged: dict[str, Row] = {} if old is None else dict(zip(old.brokers, old.rows, strict=True))
    for broker, row in zip(brokers, rows, strict=True):
        if row is None:
            merged.pop(broker, None)
        else:
            merged[broker] = row
    if not merged:
        return None
    if old is not None and len(merged) == len(old.brokers) and all(map(merged.__contains__, old.brokers)):
        return pool.topic_rows(old.brokers, tuple(map(merged.__getitem__, old.brokers)))
    names = tuple(sorted(merged))
    return pool.topic_rows(names, tuple(map(merged.__getitem__, names)))


def _replace(old: TopicQueues, brokers: tuple[str, ...], rows: tuple[Row | None, ...]) -> tuple[Row, ...] | None:
    """Return the rows if only existing brokers' rows were replaced. None if rows were added or removed."""
    found = list(old.rows)
    for broker, row in zip(brokers, rows, strict=True):
        index = bisect_left(old.brokers, broker)
        if row is None or index == len(old.brokers) or old.brokers[index] != broker:
            return None
        found[index] = row
    return tuple(found)


def _touched(
    before: Mapping[Outer, Mapping[Inner, Value]], changed: Iterable[tuple[Outer, Inner, Value | None]]
) -> dict[Outer, dict[Inner, Value]]:
    """Return changed copies of the inner mappings that changes touch. None as value removes a key."""
    touched: dict[Outer, dict[Inner, Value]] = {}
    for outer, inner, value in changed:
        rows = touched.get(outer)
        if rows is None:
            rows = touched[outer] = dict(before.get(outer, {}))
        if value is None:
            rows.pop(inner, None)
        else:
            rows[inner] = value
    return touched


def _merged(
    before: Mapping[Outer, Mapping[Inner, Value]], touched: Mapping[Outer, Mapping[Inner, Value]]
) -> dict[Outer, Mapping[Inner, Value]]:
    """Return the mapping with other inner mappings. Empty inner mappings are removed."""
    merged = {**before, **touched}
    for outer, rows in touched.items():
        if not rows:
            del merged[outer]
    return merged


def apply_filters(before: Filters, changed: Mapping[LiveKey, tuple[str, ...] | None]) -> tuple[Filters, set[str]]:
    """Apply changes of filterServerTable. Return the groups with changed filter servers, too."""
    moved = [
        ((cluster, addr), name, servers)
        for (name, cluster, addr), servers in changed.items()
        if before.get((cluster, addr), {}).get(name) != servers
    ]
    if not moved:
        return before, set()
    return _merged(before, _touched(before, moved)), {name for _, name, _ in moved}


def apply_groups(before: Groups, changed: Mapping[str, BrokerRow | None], filters: Filters, moved: set[str]) -> Groups:
    """Apply changes of brokerAddrTable, with the filter servers of each group's addresses."""
    rows: dict[str, BrokerRow | None] = dict(changed)
    for name in moved:
        if name in before:
            rows.setdefault(name, before[name].row)
    groups: dict[str, RouteBroker] | None = None
    for name, row in rows.items():
        new = None if row is None else RouteBroker(name, row, _filter_servers_of(name, row, filters))
        if new == before.get(name):
            continue
        if groups is None:
            groups = dict(before)
        if new is None:
            del groups[name]
        else:
            groups[name] = new
    return before if groups is None else groups


def _filter_servers_of(name: str, row: BrokerRow, filters: Filters) -> dict[str, tuple[str, ...]]:
    """Return a group's own filter servers by address. Other groups may be registered at the same addresses."""
    found = {}
    for addr in row.broker_addrs.values():
        servers = filters.get((row.cluster, addr), {}).get(name)
        if servers is not None:
            found[addr] = servers
    return found


def apply_clusters(before: Clusters, changed: Mapping[tuple[str, str], bool]) -> Clusters:
    """Apply changes of clusterAddrTable. A cluster without members is removed."""
    if not changed:
        return before
    sets: dict[str, set[str]] = {}
    for (cluster, broker_name), member in changed.items():
        names = sets.setdefault(cluster, set(before.get(cluster, ())))
        if member:
            names.add(broker_name)
        else:
            names.discard(broker_name)
    clusters = {**before, **{cluster: tuple(sorted(names)) for cluster, names in sets.items()}}
    return {cluster: names for cluster, names in clusters.items() if names}


def apply_live(before: LiveRows, changed: Mapping[LiveKey, LiveInfo | None]) -> LiveRows:
    """Apply changes of brokerLiveTable."""
    if not changed:
        return before
    rows = ((name, (cluster, addr), row) for (name, cluster, addr), row in changed.items())
    return _merged(before, _touched(before, rows))


def apply_mappings(before: Mappings, changed: Mapping[tuple[str, str, str], RegisteredMapping | None]) -> Mappings:
    """Apply changes of topicQueueMappingInfoTable."""
    if not changed:
        return before
    rows_before = {topic: before[topic].rows for _, topic, _ in changed if topic in before}
    mappings = dict(before)
    for topic, rows in _touched(
        rows_before, ((topic, (bname, name), row) for (name, topic, bname), row in changed.items())
    ).items():
        if not rows:
            mappings.pop(topic, None)
        elif rows != rows_before.get(topic):
            by_offset = sorted(rows, key=lambda key: (rows[key].offset, key))
            winners = {bname: rows[bname, broker_name].mapping for bname, broker_name in by_offset}
            mappings[topic] = TopicMapping(rows, dict(sorted(winners.items())))
    return mappings


def apply_kv(before: KvTables, changed: Mapping[tuple[str, str], tuple[str | None] | None]) -> KvTables:
    """Apply changes of kvConfigTable. A namespace exists while it has a row. A deleted key may stay as a null row."""
    if not changed:
        return before
    touched: dict[str, dict[str, str | None]] = {}
    for (namespace, key), value in changed.items():
        table = touched.get(namespace)
        if table is None:
            table = touched[namespace] = dict(before.get(namespace, {}))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value[0]
    return _merged(before, touched)
