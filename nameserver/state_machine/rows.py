# SPDX-License-Identifier: Apache-2.0
"""Rows of the state tables from a broker group, as plain tuples in the column order of schemas.tables.

`lake.view_loader` and `nameserver.view.conversions` together are the inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from nameserver.state_machine.state import BrokerGroup, KvTable
from schemas.broker import TopicQueueMappingInfo
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

Rows = Mapping[tuple[Any, ...], tuple[Any, ...]]

_json = msgspec.json.Encoder(order="sorted")
_mapping_json = msgspec.json.Encoder()


def _topic_queue(group: BrokerGroup) -> Rows:
    name = group.broker_name
    return {(name, topic): row for topic, row in group.topics.rows.items()}


def _broker_addr(group: BrokerGroup) -> Rows:
    if not group.known:
        return {}
    addrs = tuple(sorted(group.broker_addrs.items()))
    return {(group.broker_name,): (group.cluster, addrs, group.zone_name, group.enable_acting_master)}


def _cluster_addr(group: BrokerGroup) -> Rows:
    return {(cluster, group.broker_name): () for cluster in sorted(group.clusters)}


def _broker_live(group: BrokerGroup) -> Rows:
    return {
        (group.broker_name, *key): (
            live.last_update_ms,
            live.last_update_offset,
            live.heartbeat_timeout_ms,
            live.expire_ms,
            live.data_version.state_version,
            live.data_version.timestamp,
            live.data_version.counter,
            live.ha_server_addr,
            live.topic_config_digest,
            _json.encode(live.channels).decode(),
        )
        for key, live in group.live.items()
    }


def _filter_server(group: BrokerGroup) -> Rows:
    return {(group.broker_name, *key): (servers,) for key, servers in group.filter_servers.items()}


def _mapping(group: BrokerGroup) -> Rows:
    return {
        (group.broker_name, topic, bname): (_mapping_text(entry.mapping), entry.offset)
        for (topic, bname), entry in group.mappings.items()
    }


def _mapping_text(mapping: TopicQueueMappingInfo) -> str:
    """Return standard JSON that is the same for equal mappings."""
    ids = mapping.curr_id_map
    ordered = None if ids is None else dict(sorted(ids.items()))
    return _mapping_json.encode(msgspec.structs.replace(mapping, curr_id_map=ordered)).decode()


_ROWS: Final[dict[str, Callable[[BrokerGroup], Rows]]] = {
    TOPIC_QUEUE_TABLE.name: _topic_queue,
    BROKER_ADDR_TABLE.name: _broker_addr,
    CLUSTER_ADDR_TABLE.name: _cluster_addr,
    BROKER_LIVE_TABLE.name: _broker_live,
    FILTER_SERVER_TABLE.name: _filter_server,
    TOPIC_QUEUE_MAPPING_INFO_TABLE.name: _mapping,
}


def rows_of(table: Table, group: BrokerGroup) -> Rows:
    """Return this group's rows of one state table: value tuple by key tuple, with columns as in schemas.tables."""
    return _ROWS[table.name](group)


def kv_rows(kv: KvTable) -> Rows:
    """Return the rows of kvConfigTable: (namespace, key) -> (value,)."""
    return {(namespace, key): (value,) for namespace, entries in kv.items() for key, value in entries.items()}
