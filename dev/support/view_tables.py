# SPDX-License-Identifier: Apache-2.0
"""The oracle of view tests: a view dumped as table rows, to be compared with a full scan, and random table changes."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from dev.support.expected import tables_of
from nameserver.state_machine.state import RouteState
from nameserver.view.snapshot import RouteView
from schemas.broker import QueueRow
from schemas.tables import (
    BROKER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    CLUSTER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    TOPIC_QUEUE_TABLE,
    Table,
)

Rows = dict[tuple[Any, ...], dict[str, Any]]
TableChanges = dict[str, dict[tuple[Any, ...], dict[str, Any] | None]]

_BY_NAME = {table.name: table for table in STATE_TABLES}


def queue_rows(view: RouteView, topic: str) -> dict[str, QueueRow]:
    """{brokerName: row} of a topic; empty if there is no such topic."""
    rows = view.topics.get(topic)
    return {} if rows is None else dict(zip(rows.brokers, map(QueueRow._make, rows.rows), strict=True))


def as_tables(view: RouteView) -> dict[str, Rows]:
    """Every row that a view holds, table by table, as a scan of the lake would give it."""
    found: dict[str, Rows] = {table.name: {} for table in STATE_TABLES}

    def add(table: Table, key: tuple[Any, ...], *values: Any) -> None:
        row = dict(zip(table.key, key, strict=True)) | dict(zip(table.value_columns, values, strict=True))
        found[table.name][key] = {name: row[name] for name in table.column_names}

    for topic, rows in view.topics.items():
        assert rows.brokers == tuple(sorted(rows.brokers)) and rows.brokers
        for broker, row in zip(rows.brokers, rows.rows, strict=True):
            add(TOPIC_QUEUE_TABLE, (broker, topic), *row)
    for name, group in view.groups.items():
        data = group.row
        add(
            BROKER_ADDR_TABLE, (name,), data.cluster, dict(data.broker_addrs), data.zone_name, data.enable_acting_master
        )
        for addr, servers in group.filter_servers.items():
            assert servers == view.filter_servers(data.cluster, addr)[name]
    for cluster, members in view.clusters.items():
        for member in members:
            add(CLUSTER_ADDR_TABLE, (cluster, member))
    for broker_key, live in view.all_live_rows():
        assert view.live_row(*broker_key) is live
        version = live.data_version
        add(
            BROKER_LIVE_TABLE,
            broker_key,
            *(live.last_update_ms, live.last_update_offset, live.heartbeat_timeout_ms),
            *(live.expire_ms, version.state_version, version.timestamp, version.counter),
            *(
                live.ha_server_addr,
                live.topic_config_digest,
                msgspec.json.encode(live.channels, order="sorted").decode(),
            ),
        )
    for (cluster, addr), rows_of_addr in view.filter_tables.items():
        for broker, servers in rows_of_addr.items():
            add(FILTER_SERVER_TABLE, (broker, cluster, addr), list(servers))
    for topic, mapping in view.mapping_tables.items():
        for (bname, broker), mapping_row in mapping.rows.items():
            text = msgspec.json.encode(mapping_row.mapping).decode()
            add(TOPIC_QUEUE_MAPPING_INFO_TABLE, (broker, topic, bname), text, mapping_row.offset)
    for namespace, table in view.kv.items():
        for key, value in table.items():
            add(KV_CONFIG_TABLE, (namespace, key), value)
    return found


def full_scan(state: RouteState) -> dict[str, Rows]:
    """The state tables of a state, rows by column name."""
    tables = tables_of(state)
    found: dict[str, Rows] = {}
    for spec in STATE_TABLES:
        found[spec.name] = {
            key: dict(zip(spec.key, key, strict=True)) | dict(zip(spec.value_columns, values, strict=True))
            for key, values in tables[spec.name].items()
        }
    for row in found["brokerAddrTable"].values():
        row["brokerAddrs"] = dict(row["brokerAddrs"])
    for row in found["filterServerTable"].values():
        row["filterServerList"] = list(row["filterServerList"])
    return found


_BROKERS = ("broker-a", "broker-b", "brøker c/1%=x", "b'4\"")
_TOPICS = ("orders", "%RETRY%g", "t3", "t4", "τόπος")
_CLUSTERS = ("c1", "c2")
_ADDRS = ("10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911")

_broker = st.sampled_from(_BROKERS)
_topic = st.sampled_from(_TOPICS)
_cluster = st.sampled_from(_CLUSTERS)
_addr = st.sampled_from(_ADDRS)
_small = st.integers(0, 3)
_maybe_text = st.none() | st.sampled_from(("", "x", "10.0.0.9:1"))

_queue_row = st.fixed_dictionaries(
    {
        "readQueueNums": st.sampled_from((0, 4, 8, 2**31 - 1)),
        "writeQueueNums": st.sampled_from((4, 8)),
        "perm": st.sampled_from((2, 4, 6, 7)),
        "topicSysFlag": _small,
    }
)
_broker_row = st.fixed_dictionaries(
    {
        "cluster": _cluster,
        "brokerAddrs": st.dictionaries(st.integers(0, 3), _addr, max_size=3),
        "zoneName": st.sampled_from((None, "hz", "HZ", "sh")),
        "enableActingMaster": st.booleans(),
    }
)
_live_row = st.fixed_dictionaries(
    {
        **{
            name: _small
            for name in BROKER_LIVE_TABLE.value_columns
            if name not in ("haServerAddr", "topicConfigDigest", "channels")
        },
        "haServerAddr": _maybe_text,
        "topicConfigDigest": _maybe_text,
        "channels": st.sampled_from(("{}", '{"g1":["7",5]}', '{"g1":["7",5],"g2":["",0]}')),
    }
)
_mapping_row = st.builds(
    lambda curr, offset: {
        "mapping": msgspec.json.encode(
            {
                **{"topic": "t", "scope": "__global__", "totalQueues": 4, "bname": "b", "epoch": 1, "dirty": False},
                "currIdMap": {str(key): value for key, value in curr.items()},
            }
        ).decode(),
        "registeredOffset": offset,
    },
    st.dictionaries(_small, _small, max_size=2),
    st.integers(1, 4),
)


def _rows(keys: st.SearchStrategy[Any], row: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(keys, st.none() | row, max_size=6)


changes_of_tables: st.SearchStrategy[TableChanges] = st.fixed_dictionaries(
    {},
    optional={
        "topicQueueTable": _rows(st.tuples(_broker, _topic), _queue_row),
        "brokerAddrTable": _rows(st.tuples(_broker), _broker_row),
        "clusterAddrTable": _rows(st.tuples(_cluster, _broker), st.just({})),
        "brokerLiveTable": _rows(st.tuples(_broker, _cluster, _addr), _live_row),
        "filterServerTable": _rows(
            st.tuples(_broker, _cluster, _addr),
            st.fixed_dictionaries({"filterServerList": st.lists(_addr, max_size=2)}),
        ),
        "topicQueueMappingInfoTable": _rows(
            st.tuples(_broker, _topic, st.sampled_from(("broker-a", "m"))), _mapping_row
        ),
        "kvConfigTable": _rows(
            st.tuples(st.sampled_from(("ORDER_TOPIC_CONFIG", "ns")), _topic),
            st.fixed_dictionaries({"value": _maybe_text}),
        ),
    },
)
"""One epoch's worth of changes, names that must be escaped in paths included."""


def complete(changes: TableChanges) -> TableChanges:
    """The same with every column present, in declared order."""
    return {
        name: {
            key: None
            if row is None
            else {
                column: (dict(zip(_BY_NAME[name].key, key, strict=True)) | row)[column]
                for column in _BY_NAME[name].column_names
            }
            for key, row in rows.items()
        }
        for name, rows in changes.items()
    }


def queue(nums: int) -> dict[str, Any]:
    return {"readQueueNums": nums, "writeQueueNums": nums, "perm": 6, "topicSysFlag": 0}


def row(nums: int, broker: str = "b1", topic: str = "t1") -> TableChanges:
    return {"topicQueueTable": {(broker, topic): queue(nums)}}
