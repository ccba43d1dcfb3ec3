# SPDX-License-Identifier: Apache-2.0
"""Comparison of the live view at an epoch's offset with the tables of that epoch. No I/O, no clock, no thread.

Both are made by the same rules from the same event log, so only a defect makes them differ. `Check` compares the rows
that either side changed since the last epoch that was compared. A row is named by its table and its key. These rows
wait for a later epoch:

- Topics of a group whose topics changed after the epoch, and such a KV entry: only their newest value is known.
- Rows of a group whose value at the epoch's offset is forgotten, because too much changed since (`_Groups`).

The times of heartbeats are compared at epochs whose brokerLiveTable lacks no heartbeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

import msgspec

from api.live_view.conversions import broker_row, differences, live_row
from nameserver.state_machine.state import BrokerGroup, KvTable, RouteState, TopicTable, replace
from nameserver.state_machine.step import GroupChange
from nameserver.view.model import Changes, LiveRow, MappingRow, TopicDelta, TopicQueues
from nameserver.view.snapshot import RouteView, no_pause
from schemas.events import BrokerHeartbeat
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
)

_MOST_GROUPS: Final = 50_000
"""States of groups, kept between epochs, about a kilobyte each: five seconds of 10,000 heartbeats a second."""
_MOST_ENTRIES: Final = 100_000
"""Names of changed KV entries; beyond that they are not compared."""
_MOST_TOPICS: Final = 500_000
"""Names of changed topics; beyond that all topics are compared."""
_EXAMPLES: Final = 20

_NO_TOPICS: Final = TopicTable()
_FORGOTTEN: Final = BrokerGroup("")
"""Stands for a state that was not kept. As the first state of a group it makes every row of the group differ."""
_offset_of = itemgetter(0)

RowKey = tuple[str, tuple[str, ...]]
"""Table, and the row's key as a view has it."""

_ADDR: Final = BROKER_ADDR_TABLE.name
_CLUSTER: Final = CLUSTER_ADDR_TABLE.name
_LIVE: Final = BROKER_LIVE_TABLE.name
_FILTER: Final = FILTER_SERVER_TABLE.name
_MAPPING: Final = TOPIC_QUEUE_MAPPING_INFO_TABLE.name


class Difference(msgspec.Struct, frozen=True):
    """One row that differs between the live view (``live``) and the tables. None: no such row."""

    table: str
    key: tuple[str, ...]
    live: object
    tables: object


class Comparison:
    """The result of comparing one epoch.

    Attributes:
        counts: Rows that differ, by table.
        examples: Some of them.
        is_whole: Whether nothing was forgotten that should have been compared.
    """

    def __init__(self) -> None:
        """No difference yet."""
        self.counts: Counter[str] = Counter()
        self.examples: list[Difference] = []
        self.is_whole = True

    def add(self, table: str, key: tuple[str, ...], live: object, tables: object) -> None:
        """Count a row if its two sides differ."""
        if live != tables:
            self.counts[table] += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(Difference(table, key, live, tables))


class Moved:
    """The rows that the tables changed in one step or more.

    Attributes:
        everything: The changes are unknown, so all rows are compared.
        rows: Rows by broker group.
        topics: Topics in any order.
        entries: Entries of the KV configuration.
    """

    def __init__(self, changes: Changes | None = None) -> None:
        """Note the rows of a step; None for a view that was loaded as a whole.

        The step's topics are noted while its changes are applied.
        """
        self.everything = changes is None
        self.rows: dict[str, set[RowKey]] = {}
        self.topics: list[str] = []
        self.entries: set[tuple[str, str]] = set()
        if changes is not None:
            self._add(_keys_in(changes))
            self.entries.update(changes.kv)
            changes.topic_rows = noting(changes.topic_rows, self.topics)

    def add(self, other: Moved) -> None:
        """Add the rows of a later step."""
        self.everything |= other.everything
        self.topics += other.topics
        self.entries |= other.entries
        for name, rows in other.rows.items():
            self.rows.setdefault(name, set()).update(rows)

    def add_all(self, view: RouteView) -> None:
        """Add every row of a view but those of topics."""
        self._add(_keys_of(view))
        self.entries.update(_entries_of(view.kv))

    def _add(self, keys: Iterable[tuple[str, RowKey]]) -> None:
        for name, row in keys:
            self.rows.setdefault(name, set()).add(row)


class Check:
    """The rows that are compared with the next epoch. For one thread."""

    def __init__(self, *, everything: bool) -> None:
        """Begin where a live view begins.

        Args:
            everything: The live view did not begin from the tables, so no row is known to be equal.
        """
        self._moved = Moved()
        self._moved.everything = everything
        self._groups = _Groups(_MOST_GROUPS)
        self._touched: dict[str, int] = {}
        """Groups that were changed by more than heartbeats, and where they last were."""
        self._entries: dict[tuple[str, str], int] = {}
        """KV entries, and where they last changed."""
        self._is_whole = True
        self._heard: set[str] = set()
        """Groups compared since the last epoch in which brokerLiveTable was whole."""
        self._topics: list[str] = []
        self._all_topics = False
        self._changed: dict[str, int] = {}
        """Groups with changed topics -> offset of the last change."""

    # --- noted ---

    def took(self, change: GroupChange, offset: int) -> None:
        """Note a change of a group in the live view."""
        name = change.after.broker_name
        self._groups.note(offset, change.before, change.after)
        if isinstance(change.event, BrokerHeartbeat):
            return  # which moves nothing else
        self._touched[name] = offset
        if change.after.topics is not change.before.topics:
            self._changed[name] = offset

    def took_entries(self, entries: Iterable[tuple[str, str]], offset: int) -> None:
        """Note changes of KV entries in the live view."""
        self._entries.update(dict.fromkeys(entries, offset))
        if len(self._entries) > _MOST_ENTRIES:
            self._entries.clear()
            self._is_whole = False

    def showed(self, topics: Sequence[str]) -> None:
        """Note changed topics that the live view shows."""
        self._topics += topics
        if len(self._topics) > _MOST_TOPICS:
            self._topics = [*set(self._topics)]
            if len(self._topics) > _MOST_TOPICS // 2:
                self._topics, self._all_topics = [], True

    def moved(self, moved: Moved) -> None:
        """Note a step of the tables."""
        self._moved.add(moved)
        if len(self._moved.topics) > _MOST_TOPICS:
            self._moved.topics, self._all_topics = [], True

    # --- compared ---

    def compare(
        self, tables: RouteView, state: RouteState, view: RouteView, pause: Callable[[], None] = no_pause
    ) -> Comparison:
        """Compare an epoch that the live view has passed. A row that differs is reported once, until it changes again.

        Args:
            tables: The view of the epoch.
            state: The newest state of the live view.
            view: The live view; it shows all but heartbeats.
            pause: Called often.
        """
        offset, found, moved = tables.log_offset, Comparison(), self._moved
        if moved.everything:
            moved.everything = False
            moved.add_all(tables)
            moved.entries.update(_entries_of(state.kv))
            self._all_topics = True
            for name in {*state.groups, *self._groups.keys()}:
                nothing = BrokerGroup(name, topics=_NO_TOPICS)
                for group in (self._first(name, state), self._last(name, state)):
                    moved.rows.setdefault(name, set()).update(_keys_between(nothing, group))
        is_exact = tables.commit.liveness_offset == offset
        self._heard |= self._groups.keys() | moved.rows.keys()
        names = {*self._touched, *moved.rows, *(self._heard if is_exact else ())}
        waiting: set[str] = set()
        for name in names:
            pause()
            if not self._compare_group(name, tables, state, found, is_exact=is_exact):
                waiting.add(name)
        if is_exact:
            self._heard &= waiting
        for name in names - waiting:
            moved.rows.pop(name, None)
        self._touched = {name: at for name, at in self._touched.items() if at > offset or name in waiting}
        self._groups.settle(self._groups.keys() - waiting, offset)
        self._compare_entries(tables, state.kv, found)
        self._compare_topics(tables, state, view, found, pause)
        return found

    def _at(self, name: str, offset: int, state: RouteState) -> BrokerGroup | None:
        """A group at an offset; None where it was forgotten."""
        return self._groups.at(name, offset) if name in self._groups else self._last(name, state)

    def _first(self, name: str, state: RouteState) -> BrokerGroup:
        """A group as it was when it was compared last."""
        return self._groups.first(name) if name in self._groups else self._last(name, state)

    def _last(self, name: str, state: RouteState) -> BrokerGroup:
        return _without_topics(state.groups.get(name) or BrokerGroup(name))

    def _compare_group(
        self, name: str, tables: RouteView, state: RouteState, found: Comparison, *, is_exact: bool
    ) -> bool:
        """Compare the rows of a group; False if its state at the epoch is forgotten."""
        group = self._at(name, tables.log_offset, state)
        if group is None:
            found.is_whole = False
            return False
        rows = {*self._moved.rows.get(name, ()), *_keys_between(self._first(name, state), group)}
        if is_exact:
            rows.update((_LIVE, (name, *key)) for key in group.live)
        for row in rows:
            mine, theirs = _row_of_group(group, *row), _row_of_view(tables, *row)
            if not is_exact and isinstance(mine, LiveRow) and isinstance(theirs, LiveRow):
                mine = msgspec.structs.replace(_as_heard(mine, theirs), topic_config_digest=theirs.topic_config_digest)
            found.add(row[0], row[1], mine, theirs)
        return True

    def _compare_entries(self, tables: RouteView, kv: KvTable, found: Comparison) -> None:
        again = {entry: offset for entry, offset in self._entries.items() if offset > tables.log_offset}
        for entry in (self._moved.entries | self._entries.keys()) - again.keys():
            found.add(KV_CONFIG_TABLE.name, entry, _find(kv, entry), _find(tables.kv, entry))
        self._entries, self._moved.entries = again, set()
        found.is_whole, self._is_whole = found.is_whole and self._is_whole, True

    def _compare_topics(
        self, tables: RouteView, state: RouteState, view: RouteView, found: Comparison, pause: Callable[[], None]
    ) -> None:
        if self._all_topics:
            topics: Iterable[str] = chain(view.topics, (topic for topic in tables.topics if topic not in view.topics))
        else:
            topics = {*self._topics, *self._moved.topics}
        waiting: list[str] = []
        could: dict[tuple[int, int], bool] = {}
        """Result for two sides, which many topics share: True if they could be compared, and did not differ."""
        for topic in topics:
            pause()
            mine, theirs = view.topics.get(topic), tables.topics.get(topic)
            pair = (id(mine), id(theirs))
            known = could.get(pair)
            if known is None:
                differences = found.counts[TOPIC_QUEUE_TABLE.name]
                known = _are_equal(mine, theirs) or self._compare_topic(topic, mine, theirs, tables, state, found)
                if found.counts[TOPIC_QUEUE_TABLE.name] == differences:
                    could[pair] = known
            if not known:
                waiting.append(topic)
        self._topics, self._moved.topics, self._all_topics = waiting, [], False
        self._changed = {name: at for name, at in self._changed.items() if at > tables.log_offset}

    def _compare_topic(
        self,
        topic: str,
        mine: TopicQueues | None,
        theirs: TopicQueues | None,
        tables: RouteView,
        state: RouteState,
        found: Comparison,
    ) -> bool:
        """Compare the rows of a topic; False if one must wait, since its group has changed again."""
        could = True
        for name in {*(mine.brokers if mine else ()), *(theirs.brokers if theirs else ())}:
            rows = tuple(None if side is None else side.find(name) for side in (mine, theirs))
            if rows[0] == rows[1]:
                continue
            has_changed = self._changed.get(name, -1) > tables.log_offset
            if has_changed or self._at(name, tables.log_offset, state) is None:
                could = False
            else:
                found.add(TOPIC_QUEUE_TABLE.name, (name, topic), *rows)
        return could


def noting(rows: Iterable[TopicDelta], topics: list[str]) -> Iterator[TopicDelta]:
    """Give the same rows, and note their topics while they are read."""
    for row in rows:
        topics.append(row[0])
        yield row


def _entries_of(kv: Mapping[str, Mapping[str, str | None]]) -> Iterator[tuple[str, str]]:
    """(namespace, key) of every row of kvConfigTable."""
    return ((namespace, key) for namespace, entries in kv.items() for key in entries)


def _are_equal(one: TopicQueues | None, other: TopicQueues | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.brokers == other.brokers and one.rows == other.rows


def _find(kv: Mapping[str, Mapping[str, str | None]], entry: tuple[str, str]) -> tuple[str | None] | None:
    entries = kv.get(entry[0], {})
    return (entries[entry[1]],) if entry[1] in entries else None


def _as_heard(row: LiveRow, heard: LiveRow) -> LiveRow:
    """A live row, with the columns of another that every heartbeat moves."""
    return msgspec.structs.replace(
        row,
        last_update_timestamp=heard.last_update_timestamp,
        last_update_offset=heard.last_update_offset,
        expire_timestamp=heard.expire_timestamp,
        channels=heard.channels,
    )


def _without_topics(group: BrokerGroup) -> BrokerGroup:
    return replace(group, topics=_NO_TOPICS)


def _keys_between(before: BrokerGroup, after: BrokerGroup) -> Iterator[RowKey]:
    """The rows that differ between two states of one group, but for those of topics."""
    name = after.broker_name
    if broker_row(before) != broker_row(after):
        yield _ADDR, (name,)
    yield from ((_CLUSTER, (cluster, name)) for cluster in before.clusters ^ after.clusters)
    for table, old, new in (
        (_LIVE, before.live, after.live),
        (_FILTER, before.filter_servers, after.filter_servers),
        (_MAPPING, before.mappings, after.mappings),
    ):
        yield from ((table, (name, *key)) for key, _ in differences(old, new))


def _keys_in(changes: Changes) -> Iterator[tuple[str, RowKey]]:
    """The rows that a step moves, each with its broker group; not those of topics and KV."""
    yield from ((name, (_ADDR, (name,))) for name in changes.brokers)
    yield from ((key[1], (_CLUSTER, key)) for key in changes.clusters)
    for table, keys in ((_LIVE, changes.live), (_FILTER, changes.filter_servers), (_MAPPING, changes.mappings)):
        yield from ((key[0], (table, key)) for key in keys)


def _keys_of(view: RouteView) -> Iterator[tuple[str, RowKey]]:
    """All rows of a view, each with its broker group; not those of topics and KV."""
    yield from ((name, (_ADDR, (name,))) for name in view.groups)
    yield from ((name, (_CLUSTER, (cluster, name))) for cluster, names in view.clusters.items() for name in names)
    for row in view.all_live_rows():
        yield row.broker_name, (_LIVE, (row.broker_name, row.cluster_name, row.broker_addr))
    yield from ((name, (_FILTER, (name, *place))) for place, names in view.filter_tables.items() for name in names)
    for topic, found in view.mapping_tables.items():
        yield from ((name, (_MAPPING, (name, topic, bname))) for bname, name in found.rows)


def _row_of_group(group: BrokerGroup, table: str, key: tuple[str, ...]) -> object:
    """A row as the live view has it; None, or False of a cluster's member, where it is not there."""
    if table == _ADDR:
        return broker_row(group)
    if table == _CLUSTER:
        return key[0] in group.clusters
    place = (key[1], key[2])
    if table == _LIVE:
        info = group.live.get(place)
        return None if info is None else live_row(key[0], place, info)
    if table == _FILTER:
        return group.filter_servers.get(place)
    entry = group.mappings.get(place)
    return None if entry is None else MappingRow(entry.mapping, entry.offset)


def _row_of_view(view: RouteView, table: str, key: tuple[str, ...]) -> object:
    """The same row as the tables have it."""
    if table == _ADDR:
        group = view.groups.get(key[0])
        return None if group is None else group.row
    if table == _CLUSTER:
        return key[1] in view.clusters.get(key[0], ())
    if table == _LIVE:
        return view.live_row(key[0], key[1], key[2])
    if table == _FILTER:
        return view.filter_tables.get((key[1], key[2]), {}).get(key[0])
    found = view.mapping_tables.get(key[1])
    return None if found is None else found.rows.get((key[2], key[0]))


class _Groups:
    """Groups without their topics, at each offset of the event log since a group was last settled.

    Bounded by ``most`` states and three for each group: beyond that the states between a group's first and its newest
    are forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most = self._bound = most
        self._kept = 0
        self._of: dict[str, list[tuple[int, BrokerGroup]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def keys(self) -> KeysView[str]:
        """Names of groups that have changed since they were settled."""
        return self._of.keys()

    def note(self, offset: int, before: BrokerGroup, after: BrokerGroup) -> None:
        """A group changed at an offset, which is never less than one already noted."""
        entries = self._of.get(after.broker_name)
        if entries is None:
            entries = self._of[after.broker_name] = [(-1, _without_topics(before))]
            self._kept += 1
        entries.append((offset, _without_topics(after)))
        self._kept += 1
        if self._kept > self._bound:
            self._thin()

    def first(self, name: str) -> BrokerGroup:
        """A group when it was settled."""
        return self._of[name][0][1]

    def at(self, name: str, offset: int) -> BrokerGroup | None:
        """A group at an offset; None where it was forgotten."""
        entries = self._of[name]
        group = entries[bisect_right(entries, offset, key=_offset_of) - 1][1]
        return None if group is _FORGOTTEN else group

    def settle(self, names: Iterable[str], offset: int) -> None:
        """Forget what groups were before an offset."""
        for name in names:
            entries = self._of[name]
            index = bisect_right(entries, offset, key=_offset_of) - 1
            if index == len(entries) - 1:
                self._kept -= len(entries)
                del self._of[name]
            else:
                self._kept -= index
                del entries[:index]

    def _thin(self) -> None:
        for entries in self._of.values():
            if len(entries) > 2:
                entries[1:-1] = [(entries[1][0], _FORGOTTEN)]
        self._kept = sum(map(len, self._of.values()))
        self._bound = max(self._most, 2 * self._kept)
