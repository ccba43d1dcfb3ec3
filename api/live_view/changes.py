# SPDX-License-Identifier: Apache-2.0
"""Results of the fold as changes to a view, equal to the tables' change data feed of a later time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import msgspec

from nameserver.state_machine.changes import TopicChanges, topic_changes
from nameserver.state_machine.state import BrokerGroup, BrokerKey, LiveInfo
from nameserver.view.model import BrokerRow, Changes, LiveKey, LiveRow, MappingRow, Row, TopicDelta
from schemas.broker import QueueRow
from schemas.route_commit import RouteCommit

_json: Final = msgspec.json.Encoder(order="sorted")


def changes_to(
    commit: RouteCommit,
    groups: Iterable[tuple[BrokerGroup, BrokerGroup]],
    kv: dict[tuple[str, str], tuple[str | None] | None],
) -> Changes:
    """Compute the difference between a view and the later state of the fold.

    Args:
        commit: Commit of the view that the changes lead to.
        groups: Every touched group, before (as the view shows it) and after.
        kv: Every touched entry: (namespace, key) -> the row after, None for no row.
    """
    changes = Changes(commit, brokers={}, clusters={}, live={}, filter_servers={}, mappings={}, kv=kv)
    moved: list[TopicChanges] = []
    for before, after in groups:
        name = after.broker_name
        row = broker_row(after)
        if row != broker_row(before):
            changes.brokers[name] = row
        for cluster in before.clusters ^ after.clusters:
            changes.clusters[cluster, name] = cluster in after.clusters
        if before.live is not after.live:
            changes.live.update(_live_changes(before, after))
        for place, servers in differences(before.filter_servers, after.filter_servers):
            changes.filter_servers[name, *place] = servers
        for (topic, bname), entry in differences(before.mappings, after.mappings):
            changes.mappings[name, topic, bname] = None if entry is None else MappingRow(entry.mapping, entry.offset)
        rows = topic_changes(before, after)
        if rows is not None:
            moved.append(rows)
    # Group by group: a topic of several groups comes several times, which costs less than to bring its rows together.
    changes.topic_rows = chain.from_iterable(map(_deltas, moved))
    return changes


def broker_row(group: BrokerGroup) -> BrokerRow | None:
    """A group's row of brokerAddrTable."""
    if not group.known:
        return None
    addrs = dict(sorted(group.broker_addrs.items()))
    return BrokerRow(group.cluster or "", addrs, group.zone_name, group.enable_acting_master)


def live_row(name: str, key: BrokerKey, info: LiveInfo) -> LiveRow:
    """A row of brokerLiveTable."""
    return LiveRow(
        name,
        *key,
        info.last_update_ms,
        info.last_update_offset,
        info.heartbeat_timeout_ms,
        info.expire_ms,
        info.data_version,
        info.ha_server_addr,
        info.topic_config_digest,
        _json.encode(info.channels).decode(),
    )


def _deltas(moved: TopicChanges) -> Iterator[TopicDelta]:
    """Equal parts are one object, by which `advance.apply_topics` works each out once."""
    brokers = (moved.broker_name,)
    values: dict[QueueRow | None, tuple[Row | None]] = {}
    for topic, row in zip(moved.topics, moved.after, strict=True):
        value = values.get(row)
        if value is None:
            value = values[row] = (_plain(row),)
        yield topic, brokers, value


def _plain(row: QueueRow | None) -> Row | None:
    return None if row is None else (row[0], row[1], row[2], row[3])


def _live_changes(before: BrokerGroup, after: BrokerGroup) -> Iterator[tuple[LiveKey, LiveRow | None]]:
    name = after.broker_name
    for (cluster, addr), info in differences(before.live, after.live):
        yield (name, cluster, addr), None if info is None else live_row(name, (cluster, addr), info)


def differences(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[tuple[Any, Any]]:
    """Keys whose value is another, with the new one; None where it went."""
    if before is after:
        return
    for key, value in after.items():
        if before.get(key) != value:
            yield key, value
    for key in before:
        if key not in after:
            yield key, None
