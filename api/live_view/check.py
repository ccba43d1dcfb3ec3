# SPDX-License-Identifier: Apache-2.0
"""Check: what the head had folded up to an epoch's offset, against what the tables say of it. No I/O, clock or thread.

The head and the tables are folded by the same rules from the same log, so they can only differ by a defect. Compared is
what either of them changed since the last epoch that was compared: of each broker group its rows as they were at the
epoch's offset, of the topics whole, of the KV configuration entry by entry. What cannot be told yet stays on the list
until a later epoch:

- Topics of a group whose topics have changed again since, and an entry that has: they are only known as they are now.
- A group whose value at the epoch's offset is forgotten, because too much changed since (`Values`).

When a broker was last heard, and its deadline by that, is compared at epochs whose brokerLiveTable lacks no heartbeat.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

import msgspec

from api.live_view.shape import (
    LIVE,
    RowKey,
    Shape,
    keys_between,
    keys_in,
    keys_of,
    no_shape,
    row_of_group,
    row_of_view,
    shape_of,
)
from nameserver.state_machine.state import BrokerKey, KvTable, LiveInfo, RouteState
from nameserver.state_machine.step import GroupChange
from nameserver.view.model import Changes, LiveRow, TopicDelta, TopicQueues
from nameserver.view.snapshot import RouteView, no_pause
from schemas.events import BrokerHeartbeat
from schemas.tables import KV_CONFIG_TABLE, TOPIC_QUEUE_TABLE

_MOST_LIVE: Final = 50_000
"""Live rows of groups, kept between epochs, half a kilobyte each: five seconds of 10,000 heartbeats a second."""
_MOST_GROUPS: Final = 10_000
"""Groups as they were after anything but heartbeats."""
_MOST_ENTRIES: Final = 100_000
"""Names of changed KV entries; beyond that they are not compared."""
_MOST_TOPICS: Final = 500_000
"""Names of changed topics; beyond that all topics are compared."""
_EXAMPLES: Final = 20

K = TypeVar("K")
V = TypeVar("V")
_FORGOTTEN: Final[Any] = object()
_offset_of = itemgetter(0)


class Difference(msgspec.Struct, frozen=True):
    """One row that the head and the tables tell differently. None: there is none."""

    table: str
    key: tuple[str, ...]
    head: object
    tables: object


class Comparison:
    """What came of comparing one epoch.

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

    def add(self, table: str, key: tuple[str, ...], head: object, tables: object) -> None:
        """Two sides of a row, which may be equal."""
        if head != tables:
            self.counts[table] += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(Difference(table, key, head, tables))


class Moved:
    """What the tables changed in one step, or in several.

    Attributes:
        everything: Nobody knows: all of it is to be compared.
        rows: By broker group.
        topics: In any order.
        entries: Of the KV configuration.
    """

    def __init__(self, changes: Changes | None = None) -> None:
        """What a step will change; None for a view that was loaded as a whole.

        The step's topics are noted as whoever applies the changes reads them.
        """
        self.everything = changes is None
        self.rows: dict[str, set[RowKey]] = {}
        self.topics: list[str] = []
        self.entries: set[tuple[str, str]] = set()
        if changes is not None:
            self._add(keys_in(changes))
            self.entries.update(changes.kv)
            changes.topic_rows = noting(changes.topic_rows, self.topics)

    def add(self, other: Moved) -> None:
        """And what was changed after that."""
        self.everything |= other.everything
        self.topics += other.topics
        self.entries |= other.entries
        for name, rows in other.rows.items():
            self.rows.setdefault(name, set()).update(rows)

    def add_all(self, view: RouteView) -> None:
        """Every row of a view but the topics'."""
        self._add(keys_of(view))
        self.entries.update(entries_of(view.kv))

    def _add(self, keys: Iterable[tuple[str, RowKey]]) -> None:
        for name, row in keys:
            self.rows.setdefault(name, set()).add(row)


class Check:
    """Holds what is to be compared with the next epoch. For one thread."""

    def __init__(self, *, everything: bool) -> None:
        """Begin where a head begins.

        Args:
            everything: It did not begin from the tables, so nothing is known to be equal.
        """
        self._moved = Moved()
        self._moved.everything = everything
        self._live: Values[str, Mapping[BrokerKey, LiveInfo]] = Values(_MOST_LIVE)
        self._groups: Values[str, Shape] = Values(_MOST_GROUPS)
        self._entries: dict[tuple[str, str], int] = {}
        """KV entries, and where they last changed."""
        self._is_whole = True
        self._heard: set[str] = set()
        """Groups compared since the last epoch in which brokerLiveTable was whole."""
        self._topics: list[str] = []
        self._all_topics = False
        self._changed: dict[str, int] = {}
        """Groups whose topics have changed, and where they last did."""

    # --- told by the head ---

    def took(self, change: GroupChange, offset: int) -> None:
        """The head took over a change of a group."""
        name, live = change.after.broker_name, change.after.live
        if live is not change.before.live:
            if name not in self._live:
                self._live.begin(name, change.before.live)
            self._live.note(name, offset, live)
        if isinstance(change.event, BrokerHeartbeat):
            return  # which moves nothing else
        if name not in self._groups:
            self._groups.begin(name, shape_of(change.before))
        self._groups.note(name, offset, shape_of(change.after))
        if change.after.topics is not change.before.topics:
            self._changed[name] = offset

    def took_entries(self, entries: Iterable[tuple[str, str]], offset: int) -> None:
        """The head took over changes of KV entries."""
        self._entries.update(dict.fromkeys(entries, offset))
        if len(self._entries) > _MOST_ENTRIES:
            self._entries.clear()
            self._is_whole = False

    def showed(self, topics: Sequence[str]) -> None:
        """The head's view shows topics that have changed."""
        self._topics += topics
        if len(self._topics) > _MOST_TOPICS:
            self._topics = [*set(self._topics)]
            if len(self._topics) > _MOST_TOPICS // 2:
                self._topics, self._all_topics = [], True

    def moved(self, moved: Moved) -> None:
        """The tables have taken a step; it is compared when `compare` is called next."""
        self._moved.add(moved)
        if len(self._moved.topics) > _MOST_TOPICS:
            self._moved.topics, self._all_topics = [], True

    # --- compared ---

    def compare(
        self, tables: RouteView, state: RouteState, view: RouteView, pause: Callable[[], None] = no_pause
    ) -> Comparison:
        """Compare an epoch, whose offset the head has folded. A row that differs is told once, until it changes again.

        Args:
            tables: The view of the epoch.
            state: Of the head, now.
            view: Of the head; it shows all but heartbeats.
            pause: Called often.
        """
        offset, found, moved = tables.log_offset, Comparison(), self._moved
        if moved.everything:
            moved.everything = False
            moved.add_all(tables)
            moved.entries.update(entries_of(state.kv))
            self._all_topics = True
            for name in {*state.groups, *self._groups.keys()}:
                for shape in (self._first(name, state), self._last(name, state)):
                    moved.rows.setdefault(name, set()).update(keys_between(no_shape(name), shape))
        is_exact = tables.commit.liveness_offset == offset
        self._heard |= self._live.keys() | moved.rows.keys()
        names = {*self._groups.keys(), *moved.rows, *(self._heard if is_exact else ())}
        waiting: set[str] = set()
        for name in names:
            pause()
            if not self._compare_group(name, tables, state, found, is_exact=is_exact):
                waiting.add(name)
        if is_exact:
            self._heard &= waiting
        for name in names - waiting:
            moved.rows.pop(name, None)
        self._groups.settle(self._groups.keys() - waiting, offset)
        self._live.settle(self._live.keys() - waiting, offset)
        self._compare_entries(tables, state.kv, found)
        self._compare_topics(tables, state, view, found, pause)
        return found

    def _shape(self, name: str, offset: int, state: RouteState) -> Shape | None:
        """A group at an offset; None where it was forgotten."""
        now = self._last(name, state)
        group = self._groups.at(name, offset) if name in self._groups else now
        live = self._live.at(name, offset) if name in self._live else now.live
        return None if group is None or live is None else group._replace(live=live)

    def _first(self, name: str, state: RouteState) -> Shape:
        """A group as it was when it was compared last."""
        now = self._last(name, state)
        group = self._groups.first(name) if name in self._groups else now
        return group._replace(live=self._live.first(name) if name in self._live else now.live)

    def _last(self, name: str, state: RouteState) -> Shape:
        group = state.groups.get(name)
        return no_shape(name) if group is None else shape_of(group)

    def _compare_group(
        self, name: str, tables: RouteView, state: RouteState, found: Comparison, *, is_exact: bool
    ) -> bool:
        """Whether it could be compared."""
        shape = self._shape(name, tables.log_offset, state)
        if shape is None:
            found.is_whole = False
            return False
        rows = {*self._moved.rows.get(name, ()), *keys_between(self._first(name, state), shape)}
        if is_exact:
            rows.update((LIVE, (name, *key)) for key in shape.live)
        for row in rows:
            mine, theirs = row_of_group(shape, row), row_of_view(tables, row)
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
        """Of two sides, which many topics share: whether they could be compared, and did not differ."""
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
        """Whether all rows of a topic could be compared: not those of a group that has changed since."""
        could = True
        for name in {*(mine.brokers if mine else ()), *(theirs.brokers if theirs else ())}:
            rows = tuple(None if side is None else side.find(name) for side in (mine, theirs))
            if rows[0] == rows[1]:
                continue
            has_changed = self._changed.get(name, -1) > tables.log_offset
            if has_changed or self._shape(name, tables.log_offset, state) is None:
                could = False
            else:
                found.add(TOPIC_QUEUE_TABLE.name, (name, topic), *rows)
        return could


def noting(rows: Iterable[TopicDelta], topics: list[str]) -> Iterator[TopicDelta]:
    """The same rows; their topics are written down as somebody reads them."""
    for row in rows:
        topics.append(row[0])
        yield row


def entries_of(kv: Mapping[str, Mapping[str, str | None]]) -> Iterator[tuple[str, str]]:
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


class Values(Generic[K, V]):
    """Values of keys at each offset of the event log since a key was last settled.

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
