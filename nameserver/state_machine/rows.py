# SPDX-License-Identifier: Apache-2.0
"""Rows of the state tables from a broker group, and back. Rows are plain tuples in the column order of schemas.tables.

`rows_of` gives a group's rows of one table as ``{key tuple: value tuple}``; `group_from_rows` is its inverse, which
seeds the fold from the tables when a checkpoint is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from nameserver.state_machine.state import BrokerGroup, HeardChannel, KvTable, LiveInfo, RegisteredMapping, TopicTable
from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo
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
    """Standard JSON, the same for equal mappings."""
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
    """This group's rows of one state table: key tuple -> value tuple, columns as declared in schemas.tables."""
    return _ROWS[table.name](group)


def kv_rows(kv: KvTable) -> Rows:
    """kvConfigTable: (namespace, key) -> (value,)."""
    return {(namespace, key): (value,) for namespace, entries in kv.items() for key, value in entries.items()}


def kv_from_rows(rows: Iterable[Mapping[str, Any]]) -> KvTable:
    """Inverse of `kv_rows`, from rows as dictionaries."""
    kv: dict[str, dict[str, str | None]] = {}
    for row in rows:
        kv.setdefault(row["namespace"], {})[row["key"]] = row["value"]
    return kv


def group_from_rows(broker_name: str, tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> BrokerGroup:
    """Inverse of `rows_of`: the group from its rows in the six route tables, each row a dictionary by column name."""
    addr = next(iter(tables.get(BROKER_ADDR_TABLE.name, ())), None)
    return BrokerGroup(
        broker_name,
        known=addr is not None,
        cluster=addr["cluster"] if addr else None,
        clusters=frozenset(row["cluster"] for row in tables.get(CLUSTER_ADDR_TABLE.name, ())),
        broker_addrs=dict(addr["brokerAddrs"]) if addr else {},
        zone_name=addr["zoneName"] if addr else None,
        enable_acting_master=bool(addr["enableActingMaster"]) if addr else False,
        live={(row["clusterName"], row["brokerAddr"]): _live(row) for row in tables.get(BROKER_LIVE_TABLE.name, ())},
        filter_servers={
            (row["clusterName"], row["brokerAddr"]): tuple(row["filterServerList"])
            for row in tables.get(FILTER_SERVER_TABLE.name, ())
        },
        mappings={
            (row["topic"], row["bname"]): RegisteredMapping(
                msgspec.json.decode(row["mapping"], type=TopicQueueMappingInfo), row["registeredOffset"]
            )
            for row in tables.get(TOPIC_QUEUE_MAPPING_INFO_TABLE.name, ())
        },
        topics=TopicTable(
            {
                row["topic"]: QueueRow(row["readQueueNums"], row["writeQueueNums"], row["perm"], row["topicSysFlag"])
                for row in tables.get(TOPIC_QUEUE_TABLE.name, ())
            }
        ),
    )


def _live(row: Mapping[str, Any]) -> LiveInfo:
    return LiveInfo(
        last_update_ms=row["lastUpdateTimestamp"],
        last_update_offset=row["lastUpdateOffset"],
        heartbeat_timeout_ms=row["heartbeatTimeoutMillis"],
        expire_ms=row["expireTimestamp"],
        data_version=DataVersion(
            row["dataVersionStateVersion"], row["dataVersionTimestamp"], row["dataVersionCounter"]
        ),
        ha_server_addr=row["haServerAddr"],
        topic_config_digest=row["topicConfigDigest"],
        channels=msgspec.json.decode(row["channels"], type=dict[str, HeardChannel]),
    )
