# SPDX-License-Identifier: Apache-2.0
"""A broker group without its topics, and its rows by their keys, on the head's side and on the tables'.

A row is named by its table and its key as a view has it. There is one way from either side to the value of a key, so
that two sides can be compared row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from nameserver.state_machine.state import BrokerGroup, BrokerKey, LiveInfo, RegisteredMapping
from nameserver.view.model import BrokerRow, Changes, LiveRow, MappingRow
from nameserver.view.snapshot import RouteView
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
)

ADDR: Final = BROKER_ADDR_TABLE.name
CLUSTER: Final = CLUSTER_ADDR_TABLE.name
LIVE: Final = BROKER_LIVE_TABLE.name
FILTER: Final = FILTER_SERVER_TABLE.name
MAPPING: Final = TOPIC_QUEUE_MAPPING_INFO_TABLE.name

RowKey = tuple[str, tuple[str, ...]]
"""Table, and the row's key in the order of the table's key columns."""

_json = msgspec.json.Encoder(order="sorted")


class Shape(NamedTuple):
    """What a `BrokerGroup` is besides its topics; it shares the group's parts."""

    broker_name: str
    known: bool
    cluster: str | None
    zone_name: str | None
    enable_acting_master: bool
    broker_addrs: Mapping[int, str]
    clusters: frozenset[str]
    live: Mapping[BrokerKey, LiveInfo]
    filter_servers: Mapping[BrokerKey, tuple[str, ...]]
    mappings: Mapping[tuple[str, str], RegisteredMapping]


def shape_of(group: BrokerGroup) -> Shape:
    """A group without its topics."""
    return Shape(
        group.broker_name,
        group.known,
        group.cluster,
        group.zone_name,
        group.enable_acting_master,
        group.broker_addrs,
        group.clusters,
        group.live,
        group.filter_servers,
        group.mappings,
    )


def no_shape(name: str) -> Shape:
    """A group of which nothing is known."""
    return shape_of(BrokerGroup(name))


def broker_row(group: BrokerGroup | Shape) -> BrokerRow | None:
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


def keys_between(before: Shape, after: Shape) -> Iterator[RowKey]:
    """The rows in which two states of one group may differ."""
    name = after.broker_name
    if before[:6] != after[:6]:
        yield ADDR, (name,)
    if before.clusters is not after.clusters:
        yield from ((CLUSTER, (cluster, name)) for cluster in before.clusters | after.clusters)
    for table, old, new in (
        (LIVE, before.live, after.live),
        (FILTER, before.filter_servers, after.filter_servers),
        (MAPPING, before.mappings, after.mappings),
    ):
        if old is not new:
            yield from ((table, (name, *key)) for key in {**old, **new})


def keys_in(changes: Changes) -> Iterator[tuple[str, RowKey]]:
    """The rows that a step of the tables moved, each with its broker group; not those of topics and KV."""
    yield from ((name, (ADDR, (name,))) for name in changes.brokers)
    yield from ((key[1], (CLUSTER, key)) for key in changes.clusters)
    for table, keys in ((LIVE, changes.live), (FILTER, changes.filter_servers), (MAPPING, changes.mappings)):
        yield from ((key[0], (table, key)) for key in keys)


def keys_of(view: RouteView) -> Iterator[tuple[str, RowKey]]:
    """All rows of a view, each with its broker group; not those of topics and KV."""
    yield from ((name, (ADDR, (name,))) for name in view.groups)
    yield from ((name, (CLUSTER, (cluster, name))) for cluster, names in view.clusters.items() for name in names)
    for row in view.all_live_rows():
        yield row.broker_name, (LIVE, (row.broker_name, row.cluster_name, row.broker_addr))
    yield from ((name, (FILTER, (name, *place))) for place, names in view.filter_tables.items() for name in names)
    for topic, found in view.mapping_tables.items():
        yield from ((name, (MAPPING, (name, topic, bname))) for bname, name in found.rows)


def row_of_group(group: Shape, row: RowKey) -> object:
    """A row as the head has it; None, or False of a cluster's member, where it is not there."""
    return _OF_GROUP[row[0]](group, row[1])


def row_of_view(view: RouteView, row: RowKey) -> object:
    """The same as a view has it."""
    return _OF_VIEW[row[0]](view, row[1])


def _group_live(group: Shape, key: tuple[str, ...]) -> object:
    place = (key[1], key[2])
    info = group.live.get(place)
    return None if info is None else live_row(key[0], place, info)


def _group_mapping(group: Shape, key: tuple[str, ...]) -> object:
    entry = group.mappings.get((key[1], key[2]))
    return None if entry is None else MappingRow(entry.mapping, entry.offset)


def _view_broker(view: RouteView, key: tuple[str, ...]) -> object:
    group = view.groups.get(key[0])
    return None if group is None else group.row


def _view_mapping(view: RouteView, key: tuple[str, ...]) -> object:
    found = view.mapping_tables.get(key[1])
    return None if found is None else found.rows.get((key[2], key[0]))


_OF_GROUP: Final[dict[str, Callable[[Shape, Any], object]]] = {
    ADDR: lambda group, key: broker_row(group),
    CLUSTER: lambda group, key: key[0] in group.clusters,
    LIVE: _group_live,
    FILTER: lambda group, key: group.filter_servers.get((key[1], key[2])),
    MAPPING: _group_mapping,
}

_OF_VIEW: Final[dict[str, Callable[[RouteView, Any], object]]] = {
    ADDR: _view_broker,
    CLUSTER: lambda view, key: key[1] in view.clusters.get(key[0], ()),
    LIVE: lambda view, key: view.live_row(*key),
    FILTER: lambda view, key: view.filter_tables.get((key[1], key[2]), {}).get(key[0]),
    MAPPING: _view_mapping,
}
