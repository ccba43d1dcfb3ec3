# SPDX-License-Identifier: Apache-2.0
"""Comparison of the live view at an epoch's offset with the tables of that epoch. No I/O, no clock, no thread.

The same rules make both from the same event log, so only a defect makes them differ. `Check` compares, row by row, the
broker groups and topics that either side changed since the last compared epoch. These wait for a later epoch:

- Topics of a group with topic changes after the epoch, because only their newest value is known.
- Groups, and the KV configuration, if their state at the epoch's offset was forgotten because too much changed
  (`_History`).

Times of heartbeats are compared at epochs in which brokerLiveTable lacks no heartbeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, KeysView
from itertools import chain
from operator import itemgetter
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from nameserver.state_machine.changes import RowChange, row_changes, row_differences
from nameserver.state_machine.rows import kv_rows
from nameserver.state_machine.state import BrokerGroup, KvTable, RouteState, TopicTable
from nameserver.state_machine.step import GroupChange, KvChange
from nameserver.view.conversions import GroupIndex
from nameserver.view.model import Changes, TopicQueues
from nameserver.view.snapshot import RouteView, no_pause
from schemas.events import BrokerHeartbeat
from schemas.tables import KV_CONFIG_TABLE, TOPIC_QUEUE_TABLE

_MOST_GROUPS: Final = 50_000
"""Maximum number of states of groups between epochs, about a kilobyte each: 5 s of 10,000 heartbeats a second."""
_MOST_KV: Final = 100
"""Maximum number of states of the KV configuration between epochs. Each has its own copy of one namespace."""
_MOST_TOPICS: Final = 500_000
"""Maximum number of names of changed topics. With more, all topics are compared."""
_EXAMPLES: Final = 20

_KV: Final = ""
"""Key of the KV configuration among names of broker groups, which are never empty."""
_NO_TOPICS: Final = TopicTable()
_offset_of = itemgetter(0)

State = TypeVar("State")


class Comparison:
    """Result of comparing one epoch.

    Attributes:
        counts: Number of rows that differ, by table.
        examples: Some of these rows. ``before`` is the row of the tables, ``after`` that of the live view.
        is_whole: Whether nothing was forgotten that should have been compared.
    """

    def __init__(self) -> None:
        """Start without differences."""
        self.counts: Counter[str] = Counter()
        self.examples: list[RowChange] = []
        self.is_whole = True

    def add(self, difference: RowChange) -> None:
        """Count a row that differs."""
        self.counts[difference.table.name] += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(difference)


class Check:
    """Selection of the rows that are compared with the next epoch. For one thread."""

    def __init__(self, *, everything: bool) -> None:
        """Start at the view at which a live view begins.

        Args:
            everything: The live view did not begin from the tables, so no row is known to be equal.
        """
        self._everything = self._all_topics = everything
        self._groups: _History[BrokerGroup] = _History(_MOST_GROUPS, _without_topics)
        self._touched: dict[str, int] = {}
        """Groups that either side changed by more than heartbeats -> offset of the live view's last change."""
        self._heard: set[str] = set()
        """Groups that changed since the last epoch with a complete brokerLiveTable."""
        self._kv: _History[KvTable] = _History(_MOST_KV, lambda kv: kv)
        self._kv_tables: KvTable | None = None
        """KV configuration of the tables at the last comparison."""
        self._topics: list[str] = []
        self._changed: dict[str, int] = {}
        """Groups with changed topics -> offset of the last change."""
        self._told: dict[str, dict[tuple[str, tuple[str, ...]], RowChange]] = {}
        """Rows that differed last, by group, and by table and key. A row is reported once, until it changes again."""
        self._index = GroupIndex(RouteView.empty())

    # --- noted ---

    def took(self, change: GroupChange | KvChange, offset: int) -> None:
        """Note a change in the live view."""
        if isinstance(change, KvChange):
            self._kv.note(_KV, offset, change.before, change.after)
            return
        name = change.after.broker_name
        self._groups.note(name, offset, change.before, change.after)
        if isinstance(change.event, BrokerHeartbeat):
            return  # a heartbeat changes nothing else
        self._touched[name] = offset
        if change.after.topics is not change.before.topics:
            self._changed[name] = offset

    def showed(self, topics: Iterable[str]) -> None:
        """Note changed topics that the live view or the tables show."""
        self._topics += topics
        if len(self._topics) > _MOST_TOPICS:
            self._topics, self._all_topics = [], True

    def moved(self, changes: Changes | None) -> None:
        """Note a step of the tables. None: their view was loaded as a whole."""
        if changes is None:
            self._everything = self._all_topics = True
            return
        of_group = (name for name, *_ in chain(changes.live, changes.filter_servers, changes.mappings))
        for name in chain(changes.brokers, (name for _, name in changes.clusters), of_group):
            self._touched.setdefault(name, -1)
        self.showed(changes.topics)

    # --- compared ---

    def compare(
        self, tables: RouteView, state: RouteState, view: RouteView, pause: Callable[[], None] = no_pause
    ) -> Comparison:
        """Compare an epoch that the live view has passed. A row that differs is reported once, until it changes again.

        Args:
            tables: View of the epoch.
            state: Newest state of the live view.
            view: Live view, which shows everything except heartbeats.
            pause: Called often.
        """
        offset, found = tables.log_offset, Comparison()
        if not self._index.is_of(tables):
            self._index = GroupIndex(tables, pause)
        is_exact = tables.commit.is_exact
        self._heard |= self._groups.keys()
        names = self._touched.keys() | (self._heard if is_exact else set())
        if self._everything:
            names |= self._index.names(tables) | state.groups.keys() | self._groups.keys()
        forgotten: set[str] = set()
        for name in names:
            pause()
            mine = self._groups.at(name, offset, state.groups.get(name) or BrokerGroup(name))
            if mine is None:
                forgotten.add(name)
            else:
                theirs = self._index.group(tables, name)
                self._tell(found, name, row_changes(theirs, mine, with_liveness=is_exact))
        found.is_whole = not forgotten
        if is_exact:
            self._heard = set(forgotten)
        self._touched = {name: at for name, at in self._touched.items() if at > offset} | dict.fromkeys(forgotten, -1)
        self._groups.settle(self._groups.keys() - forgotten, offset)
        self._compare_kv(tables, state.kv, found)
        self._compare_topics(tables, view, found, pause)
        self._everything = False
        return found

    def _tell(self, found: Comparison, name: str, differences: Iterable[RowChange]) -> None:
        """Add the differences of a group that were not reported yet."""
        told = self._told.pop(name, {})
        now = {(difference.table.name, difference.key): difference for difference in differences}
        if now:
            self._told[name] = now
        for row, difference in now.items():
            if told.get(row) != difference:
                found.add(difference)

    def _compare_kv(self, tables: RouteView, newest: KvTable, found: Comparison) -> None:
        if not self._kv.keys() and tables.kv is self._kv_tables:
            return
        mine = self._kv.at(_KV, tables.log_offset, newest)
        if mine is None:
            found.is_whole = False
            return
        is_equal = mine == tables.kv
        self._tell(found, _KV, () if is_equal else row_differences(KV_CONFIG_TABLE, kv_rows(tables.kv), kv_rows(mine)))
        self._kv_tables = tables.kv
        self._kv.settle({*self._kv.keys()}, tables.log_offset)

    def _compare_topics(self, tables: RouteView, view: RouteView, found: Comparison, pause: Callable[[], None]) -> None:
        """Compare the topics. A topic waits if one of its groups has changed again."""
        topics: Iterable[str] = {*self._topics}
        if self._all_topics:
            topics = chain(view.topics, (topic for topic in tables.topics if topic not in view.topics))
        self._topics, self._all_topics = [], False
        known: dict[tuple[int, int], list[str]] = {}
        """Groups with rows that differ, by the objects of both sides, which many topics share."""
        for topic in topics:
            pause()
            mine, theirs = view.topics.get(topic), tables.topics.get(topic)
            names = known.get((id(mine), id(theirs)))
            if names is None:
                names = known[id(mine), id(theirs)] = _groups_that_differ(mine, theirs)
            for name in names:
                if self._changed.get(name, -1) > tables.log_offset:
                    self._topics.append(topic)
                else:
                    found.add(RowChange(TOPIC_QUEUE_TABLE, (name, topic), _row(theirs, name), _row(mine, name)))
        self._changed = {name: at for name, at in self._changed.items() if at > tables.log_offset}


def _groups_that_differ(one: TopicQueues | None, other: TopicQueues | None) -> list[str]:
    if one is not None and other is not None and one.brokers == other.brokers and one.rows == other.rows:
        return []
    names = {*(one.brokers if one else ()), *(other.brokers if other else ())}
    return [name for name in names if _row(one, name) != _row(other, name)]


def _row(queues: TopicQueues | None, name: str) -> tuple[int, ...] | None:
    return None if queues is None else queues.find(name)


def _without_topics(group: BrokerGroup) -> BrokerGroup:
    return replace(group, topics=_NO_TOPICS)


class _History(Generic[State]):
    """States by name, at each offset of the event log since a name was last settled.

    Bounded by ``most`` states and three for each name. Beyond the bound, only the first and the newest state of each
    name are kept.
    """

    def __init__(self, most: int, part: Callable[[State], State]) -> None:
        self._most = self._bound = most
        self._part = part
        """Returns the part of a state that is kept."""
        self._kept = 0
        self._of: dict[str, list[tuple[int, State | None]]] = {}
        """Offsets by name, with the state from each offset on. None means forgotten."""

    def keys(self) -> KeysView[str]:
        """Return the names that have changed since they were settled."""
        return self._of.keys()

    def note(self, name: str, offset: int, before: State, after: State) -> None:
        """Note a change at an offset, which is never less than an earlier one."""
        entries = self._of.get(name)
        if entries is None:
            entries = self._of[name] = [(-1, self._part(before))]
            self._kept += 1
        entries.append((offset, self._part(after)))
        self._kept += 1
        if self._kept > self._bound:
            self._thin()

    def at(self, name: str, offset: int, newest: State) -> State | None:
        """Return the state at an offset. None if it was forgotten.

        Args:
            name: Name of the state.
            offset: Offset of the event log.
            newest: State that holds if the name has not changed since it was settled.
        """
        entries = self._of.get(name)
        return newest if entries is None else entries[bisect_right(entries, offset, key=_offset_of) - 1][1]

    def settle(self, names: Iterable[str], offset: int) -> None:
        """Forget the states before an offset."""
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
                entries[1:-1] = [(entries[1][0], None)]
        self._kept = sum(map(len, self._of.values()))
        self._bound = max(self._most, 2 * self._kept)
