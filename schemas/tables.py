# SPDX-License-Identifier: Apache-2.0
"""Delta tables, each declared once: name, key, columns, comments. DDL, writer, view, tests and docs derive from it.

Table and column names are RocketMQ's (RouteInfoManager's six tables, KVConfigManager's one). Column types are Delta
(Spark SQL) type strings, as `lake.delta.ddl` reads them.

The latest version of a *state table* is the state, and its change data feed is on. ``routeChangeTable`` and
``quarantineTable`` only grow. ``routeCommitTable`` is written last in every epoch, and readers follow only its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LAKE_FORMAT_VERSION: Final = 2
"""Format of the whole lake (``lake.json``). A lake of another format is refused."""
FOLD_STATUS_FILE: Final = "fold-status.json"
"""File in the lake's folder that is no part of the lake: progress of the fold, for readiness checks."""
FOLD_HASTEN_FILE: Final = "fold-hasten"
"""File in the lake's folder. Its time is the last time that a client waited for the next epoch."""
FOLD_FAILURE_FILE: Final = "fold-failure.json"
"""File in the lake's folder with the time and cause of the fold's last failure, in one line (``error``) and in full
(``details``)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        type: Delta type string.
        comment: Meaning of the column. It is in the Delta schema, too.
    """

    name: str
    type: str
    comment: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One table. ``key`` names the columns that identify a row of a state table. It is empty for append-only tables."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names in declared order."""
        return tuple(column.name for column in self.columns)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Columns that are not part of the key."""
        return tuple(name for name in self.column_names if name not in self.key)


def _key(name: str, type_: str, comment: str) -> Column:
    return Column(name, type_, comment, nullable=False)


TOPIC_QUEUE_TABLE: Final = Table(
    name="topicQueueTable",
    comment="topic -> brokerName -> QueueData: which broker groups hold a topic, with how many queues",
    key=("brokerName", "topic"),
    partition_by=("brokerName",),
    columns=(
        _key("brokerName", "string", "broker group"),
        _key("topic", "string", "topic"),
        Column("readQueueNums", "int", "queues a consumer may read"),
        Column("writeQueueNums", "int", "queues a producer may write"),
        Column("perm", "int", "permission bits: inherit 1, write 2, read 4, priority 8"),
        Column("topicSysFlag", "int", "bit 0 unit, bit 1 unit subscription"),
    ),
)

BROKER_ADDR_TABLE: Final = Table(
    name="brokerAddrTable",
    comment="brokerName -> BrokerData: the members of each broker group",
    key=("brokerName",),
    columns=(
        _key("brokerName", "string", "broker group"),
        Column("cluster", "string", "cluster of the first registrant"),
        Column("brokerAddrs", "map<bigint,string>", "brokerId (0 = master) -> ip:port; may be empty"),
        Column("zoneName", "string", "zone of the last registrant, if it named one"),
        Column("enableActingMaster", "boolean", "whether a slave may stand in for a lost master"),
    ),
)

CLUSTER_ADDR_TABLE: Final = Table(
    name="clusterAddrTable",
    comment="cluster -> set of brokerName",
    key=("cluster", "brokerName"),
    columns=(
        _key("cluster", "string", "cluster"),
        _key("brokerName", "string", "broker group that registered into it"),
    ),
)

BROKER_LIVE_TABLE: Final = Table(
    name="brokerLiveTable",
    comment="(brokerName, cluster, address) -> BrokerLiveInfo: the last heartbeat of each address",
    key=("brokerName", "clusterName", "brokerAddr"),
    columns=(
        _key("brokerName", "string", "broker group"),
        _key("clusterName", "string", "cluster as registered"),
        _key("brokerAddr", "string", "ip:port"),
        Column("lastUpdateTimestamp", "bigint", "event time of the last registration or heartbeat"),
        Column("lastUpdateOffset", "bigint", "its log offset"),
        Column("heartbeatTimeoutMillis", "bigint", "how long this broker may stay silent"),
        Column("expireTimestamp", "bigint", "event time past which it counts as dead; time without gateways added"),
        Column("dataVersionStateVersion", "bigint", "DataVersion.stateVersion last registered"),
        Column("dataVersionTimestamp", "bigint", "DataVersion.timestamp last registered: the broker's clock"),
        Column("dataVersionCounter", "bigint", "DataVersion.counter last registered"),
        Column("haServerAddr", "string", "address slaves replicate from"),
        Column(
            "topicConfigDigest",
            "string",
            "fingerprint of the registered topics, if all their rows are present; null = unknown",
        ),
        Column("channels", "string", "JSON: gateway -> connection it registered over and when that was last heard"),
    ),
)

FILTER_SERVER_TABLE: Final = Table(
    name="filterServerTable",
    comment="(brokerName, cluster, address) -> filter servers",
    key=("brokerName", "clusterName", "brokerAddr"),
    columns=(
        _key("brokerName", "string", "broker group"),
        _key("clusterName", "string", "cluster as registered"),
        _key("brokerAddr", "string", "ip:port"),
        Column("filterServerList", "array<string>", "filter servers of that broker"),
    ),
)

TOPIC_QUEUE_MAPPING_INFO_TABLE: Final = Table(
    name="topicQueueMappingInfoTable",
    comment="topic -> bname -> TopicQueueMappingInfo: static topics. Rows are never removed, as in RocketMQ",
    key=("brokerName", "topic", "bname"),
    columns=(
        _key("brokerName", "string", "broker group that registered it"),
        _key("topic", "string", "topic"),
        _key("bname", "string", "brokerName written in the mapping; of equal ones the highest registeredOffset counts"),
        Column("mapping", "string", "TopicQueueMappingInfo as standard JSON"),
        Column("registeredOffset", "bigint", "log offset of the registration that wrote it"),
    ),
)

KV_CONFIG_TABLE: Final = Table(
    name="kvConfigTable",
    comment="namespace -> key -> value (KVConfigManager)",
    key=("namespace", "key"),
    columns=(
        _key("namespace", "string", "free text; ORDER_TOPIC_CONFIG is the one with meaning"),
        _key("key", "string", "key"),
        Column("value", "string", "null: reads as not found, but its namespace exists"),
    ),
)

ROUTE_CHANGE_TABLE: Final = Table(
    name="routeChangeTable",
    comment="all changes with sender and time: one row per changed row, per admin command and per refusal. Only grows",
    columns=(
        Column("epoch", "bigint", "epoch that made it visible", nullable=False),
        Column("offset", "bigint", "log offset of the cause; of an expiry: the last heartbeat's", nullable=False),
        Column("seq", "int", "order within the offset; -1: the command itself", nullable=False),
        Column(
            "eventTime",
            "timestamp",
            "event time of the cause; of an expiry: the millisecond after the deadline",
            nullable=False,
        ),
        Column(
            "command",
            "string",
            "RequestCode name, or CHANNEL_CLOSED, BROKER_EXPIRED, RESUME, PRESERVE, PRESERVE_END, ACCESS_REFUSED",
            nullable=False,
        ),
        Column("outcome", "string", "applied, unchanged or rejected", nullable=False),
        Column("reason", "string", "why it was rejected"),
        Column("actor", "string", "JSON: gateway, via (remoting or http), peer, user"),
        Column("tableName", "string", "state table of the changed row; null: this row is about the command itself"),
        Column("brokerName", "string", "broker group of the changed row, or the command's"),
        Column("topic", "string", "topic of the changed row, or the command's"),
        Column("key", "string", "JSON object: the row's key columns, or the command's own fields"),
        Column("before", "string", "JSON object: value columns before; null = there was no row"),
        Column("after", "string", "JSON object: value columns after; null = removed"),
    ),
)

CHAIN: Final = "chain"
"""Name of the hash chain's column of routeCommitTable, the last with a meaning of its own: `lake.write.hash_chain`."""

ROUTE_COMMIT_TABLE: Final = Table(
    name="routeCommitTable",
    comment="one row per epoch, written last: names one consistent set of versions of all tables",
    columns=(
        Column("epoch", "bigint", "1, 2, 3, ... without gaps", nullable=False),
        Column("logOffset", "bigint", "everything up to and including this log offset is in", nullable=False),
        Column(
            "livenessOffset", "bigint", "brokerLiveTable holds every heartbeat up to this log offset", nullable=False
        ),
        Column("eventTime", "timestamp", "event time of logOffset", nullable=False),
        Column(
            "watermark",
            "timestamp",
            "event time of the last CLOCK up to logOffset: every broker with an earlier deadline has expired",
            nullable=False,
        ),
        Column("commitTime", "timestamp", "when the writer wrote this row", nullable=False),
        Column("versions", "map<string,bigint>", "table name -> Delta version of this epoch", nullable=False),
        Column("outcomes", "string", "JSON array: offset, outcome, reason, result of admin commands and refusals"),
        Column("queryId", "string", "checkpoint id of the streaming query", nullable=False),
        Column("batchId", "bigint", "its batch", nullable=False),
        Column("resumeTime", "timestamp", "event time of the last RESUME up to logOffset; null: there was none"),
        Column("rulesVersion", "int", "version of the rules that folded it", nullable=False),
        Column("preserveTime", "timestamp", "event time since when no broker expires (PRESERVE); null: brokers expire"),
        Column(
            CHAIN,
            "string",
            "SHA-256, in hex, over the row before, this row and the changes of this epoch ('The chain')",
            nullable=False,
        ),
    ),
)

QUARANTINE_TABLE: Final = Table(
    name="quarantineTable",
    comment="log records that the fold could not read. Only grows; nothing in the other tables stems from them",
    columns=(
        Column("offset", "bigint", "log offset", nullable=False),
        Column("eventTime", "timestamp", "event time", nullable=False),
        Column("key", "string", "routing key"),
        Column("error", "string", "why it could not be read", nullable=False),
        Column("payload", "binary", "the record as it stands in the log"),
    ),
)

STATE_TABLES: Final = (
    TOPIC_QUEUE_TABLE,
    BROKER_ADDR_TABLE,
    CLUSTER_ADDR_TABLE,
    BROKER_LIVE_TABLE,
    FILTER_SERVER_TABLE,
    TOPIC_QUEUE_MAPPING_INFO_TABLE,
    KV_CONFIG_TABLE,
)
"""State tables in commit order."""

ALL_TABLES: Final = (*STATE_TABLES, ROUTE_CHANGE_TABLE, QUARANTINE_TABLE, ROUTE_COMMIT_TABLE)
"""All tables in commit order. routeCommitTable is last."""
