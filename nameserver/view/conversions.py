# SPDX-License-Identifier: Apache-2.0
"""Conversions between a `RouteView` and the state of the state machine, in both directions.

A view is by topic, because clients ask for topics. The state machine is by broker group. Topics are by far the largest
part, and few events need them. So a group's topics are read from the view when a rule first needs them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import is_
from typing import Any

from nameserver.state_machine.changes import TopicChanges, topic_changes
from nameserver.state_machine.registration import is_unchanged
from nameserver.state_machine.state import (
    At,
    BrokerGroup,
    RegisteredMapping,
    RouteState,
    TopicRows,
    TopicTable,
)
from nameserver.view.model import BrokerRow, Changes, Row, TopicDelta
from nameserver.view.snapshot import RouteView, no_pause
from schemas.broker import QueueRow
from schemas.events import RegisterBroker
from schemas.route_commit import RouteCommit, to_ms


def state_of(view: RouteView, topics: Callable[[str], TopicTable], names: Iterable[str] = ()) -> RouteState:
    """Return the state that the fold had at a view with complete liveness (livenessOffset is its logOffset).

    Args:
        view: View to begin at.
        topics: Returns the topics of a group, by its name.
        names: Groups with topics that the view lacks.
    """
    index = GroupIndex(view)
    with_topics = {name for rows in {id(rows): rows for rows in view.topics.values()}.values() for name in rows.brokers}
    return RouteState(
        {name: index.group(view, name, topics=topics(name)) for name in index.names(view).union(with_topics, names)},
        view.kv,
        to_ms(view.event_time),
        preserved_ms=view.commit.preserved_ms,
        watermark_ms=to_ms(view.watermark),
    )


def whole_state_of(view: RouteView) -> RouteState:
    """Return the same state with the topics of all groups, read in one pass through the view."""
    topics: dict[str, dict[str, QueueRow]] = defaultdict(dict)
    made: dict[Row, QueueRow] = {}
    for topic, queues in view.topics.items():
        for name, row in zip(queues.brokers, queues.rows, strict=True):
            topics[name][topic] = made.get(row) or made.setdefault(row, QueueRow._make(row))
    return state_of(view, lambda name: TopicTable(topics.get(name, {})))


class GroupIndex:
    """Index by broker group of the tables of a view that have another key.

    Args:
        view: View to index.
        pause: Called often.
    """

    def __init__(self, view: RouteView, pause: Callable[[], None] = no_pause) -> None:
        self._tables = (view.clusters, view.filter_tables, view.mapping_tables)
        self._clusters: dict[str, set[str]] = defaultdict(set)
        self._filters: dict[str, dict[tuple[str, str], tuple[str, ...]]] = defaultdict(dict)
        self._mappings: dict[str, dict[tuple[str, str], RegisteredMapping]] = defaultdict(dict)
        for cluster, names in view.clusters.items():
            pause()
            for name in names:
                self._clusters[name].add(cluster)
        for place, by_name in view.filter_tables.items():
            pause()
            for name, servers in by_name.items():
                self._filters[name][place] = servers
        for topic, found in view.mapping_tables.items():
            pause()
            for (bname, name), entry in found.rows.items():
                self._mappings[name][topic, bname] = entry

    def is_of(self, view: RouteView) -> bool:
        """Return whether these tables of a view are the indexed ones."""
        return all(map(is_, self._tables, (view.clusters, view.filter_tables, view.mapping_tables)))

    def names(self, view: RouteView) -> set[str]:
        """Return the names of all groups of a view, except those that only have topics."""
        return {*view.groups, *view.live_names(), *self._clusters, *self._filters, *self._mappings}

    def group(self, view: RouteView, name: str, **more: Any) -> BrokerGroup:  # noqa: ANN401 (fields of a group)
        """Return a group of a view without its topics, or with the given ones."""
        return _group(
            view,
            name,
            clusters=frozenset(self._clusters.get(name, ())),
            live=view.live_rows(name),
            filter_servers=self._filters.get(name, {}),
            mappings=self._mappings.get(name, {}),
            **more,
        )


def changes_nothing(view: RouteView, event: RegisterBroker) -> bool:
    """Return whether the state machine calls a registration unchanged at a view.

    Args:
        view: View that the registration would follow.
        event: Registration without its topics.
    """
    key = (event.cluster_name, event.broker_addr)
    live = view.live_row(event.broker_name, *key)
    if live is None:
        return False
    is_member = event.broker_name in view.clusters.get(event.cluster_name, ())
    servers = view.filter_servers(*key).get(event.broker_name)
    group = _group(  # other addresses of the group matter only if this one changes something
        view,
        event.broker_name,
        clusters=frozenset((event.cluster_name,)) if is_member else frozenset(),
        live={key: live},
        filter_servers={} if servers is None else {key: servers},
    )
    at = At(live.last_update_offset, live.last_update_ms)
    return is_unchanged(group, event, at)


def _group(view: RouteView, name: str, **more: Any) -> BrokerGroup:  # noqa: ANN401 (fields of a group)
    known = view.groups.get(name)
    if known is None:
        return BrokerGroup(name, **more)
    row = known.row
    return BrokerGroup(
        name,
        known=True,
        cluster=row.cluster,
        broker_addrs=row.broker_addrs,
        zone_name=row.zone_name,
        enable_acting_master=row.enable_acting_master,
        **more,
    )


def topics_of(view: RouteView, broker_name: str) -> TopicRows:
    """Return a broker group's rows by topic. It reads all topics, and equal ones only once."""
    rows: dict[int, QueueRow | None] = {}
    found: dict[str, QueueRow] = {}
    for topic, all_rows in view.topics.items():
        key = id(all_rows)
        if key in rows:
            row = rows[key]
        else:
            one = all_rows.find(broker_name)
            row = rows[key] = None if one is None else QueueRow._make(one)
        if row is not None:
            found[topic] = row
    return found


def changes_to(
    commit: RouteCommit,
    groups: Iterable[tuple[BrokerGroup, BrokerGroup]],
    kv: dict[tuple[str, str], tuple[str | None] | None],
) -> Changes:
    """Compute the difference between a view and the later state of the fold.

    Args:
        commit: Commit of the view that the changes lead to.
        groups: Every touched group, before (as the view shows it) and after.
        kv: Every touched entry: (namespace, key) -> the row after, or None without a row.
    """
    changes = Changes(commit, brokers={}, clusters={}, live={}, filter_servers={}, mappings={}, kv=kv)
    moved: list[TopicChanges] = []
    for before, after in groups:
        name = after.broker_name
        row = _broker_row(after)
        if row != _broker_row(before):
            changes.brokers[name] = row
        for cluster in before.clusters ^ after.clusters:
            changes.clusters[cluster, name] = cluster in after.clusters
        for place, live in _differences(before.live, after.live):
            changes.live[name, *place] = live
        for place, servers in _differences(before.filter_servers, after.filter_servers):
            changes.filter_servers[name, *place] = servers
        for (topic, bname), entry in _differences(before.mappings, after.mappings):
            changes.mappings[name, topic, bname] = entry
        rows = topic_changes(before, after)
        if rows is not None:
            moved.append(rows)
    # Group by group. A topic of several groups comes several times, which costs less than joining its rows.
    changes.topic_rows = chain.from_iterable(map(_deltas, moved))
    return changes


def _broker_row(group: BrokerGroup) -> BrokerRow | None:
    """Return a group's row of brokerAddrTable."""
    if not group.known:
        return None
    addrs = dict(sorted(group.broker_addrs.items()))
    return BrokerRow(group.cluster or "", addrs, group.zone_name, group.enable_acting_master)


def _deltas(moved: TopicChanges) -> Iterator[TopicDelta]:
    """Yield the deltas. Equal parts are one object, so that `advance.apply_topics` merges each only once."""
    brokers = (moved.broker_name,)
    values: dict[QueueRow | None, tuple[Row | None]] = {}
    for topic, row in zip(moved.topics, moved.after, strict=True):
        value = values.get(row)
        if value is None:
            value = values[row] = (_plain(row),)
        yield topic, brokers, value


def _plain(row: QueueRow | None) -> Row | None:
    return None if row is None else (row[0], row[1], row[2], row[3])


def _differences(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the changed keys with the new value, or None for a removed key."""
    if before is after:
        return
    for key, value in after.items():
        if before.get(key) != value:
            yield key, value
    for key in before:
        if key not in after:
            yield key, None
