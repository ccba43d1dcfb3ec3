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
    comment="topic -> brokerName -> QueueData: broker groups of each topic, with numbers of queues and permissions",
    key=("brokerName", "topic"),
    partition_by=("brokerName",),
    columns=(
        _key("brokerName", "string", "broker group"),
        _key("topic", "string", "topic"),
        Column("readQueueNums", "int", "number of queues for consumers"),
        Column("writeQueueNums", "int", "number of queues for producers"),
        Column("perm", "int", "permissions: inherit 1, write 2, read 4, priority 8"),
        Column("topicSysFlag", "int", "flags: unit 1, unit subscription 2"),
    ),
)

BROKER_ADDR_TABLE: Final = Table(
    name="brokerAddrTable",
    comment="brokerName -> BrokerData: addresses of each broker group",
    key=("brokerName",),
    columns=(
        _key("brokerName", "string", "broker group"),
        Column("cluster", "string", "cluster in the first registration of the group"),
        Column("brokerAddrs", "map<bigint,string>", "brokerId -> ip:port, 0 = master. Possibly empty"),
        Column("zoneName", "string", "zone in the last registration, null = none"),
        Column("enableActingMaster", "boolean", "true = a slave may act as master while the group has none"),
    ),
)

CLUSTER_ADDR_TABLE: Final = Table(
    name="clusterAddrTable",
    comment="cluster -> set of brokerName",
    key=("cluster", "brokerName"),
    columns=(
        _key("cluster", "string", "cluster"),
        _key("brokerName", "string", "broker group of the cluster"),
    ),
)

BROKER_LIVE_TABLE: Final = Table(
    name="brokerLiveTable",
    comment="(brokerName, cluster, address) -> BrokerLiveInfo: last heartbeat of each address",
    key=("brokerName", "clusterName", "brokerAddr"),
    columns=(
        _key("brokerName", "string", "broker group"),
        _key("clusterName", "string", "cluster in the registration of the broker"),
        _key("brokerAddr", "string", "ip:port"),
        Column("lastUpdateTimestamp", "bigint", "event time of the last registration or heartbeat"),
        Column("lastUpdateOffset", "bigint", "log offset of the last registration or heartbeat"),
        Column("heartbeatTimeoutMillis", "bigint", "maximum time between two heartbeats"),
        Column(
            "expireTimestamp",
            "bigint",
            "deadline: event time after which the broker expires, with the time added in which no gateway ran",
        ),
        Column("dataVersionStateVersion", "bigint", "DataVersion.stateVersion of the last registration"),
        Column(
            "dataVersionTimestamp", "bigint", "DataVersion.timestamp of the last registration, by the broker's clock"
        ),
        Column("dataVersionCounter", "bigint", "DataVersion.counter of the last registration"),
        Column("haServerAddr", "string", "address from which slaves replicate"),
        Column(
            "topicConfigDigest",
            "string",
            "digest of the registered topics, null = not all their rows are present",
        ),
        Column("channels", "string", "JSON: gateway -> connection of the registration and time of its last heartbeat"),
    ),
)

FILTER_SERVER_TABLE: Final = Table(
    name="filterServerTable",
    comment="(brokerName, cluster, address) -> filter servers",
    key=("brokerName", "clusterName", "brokerAddr"),
    columns=(
        _key("brokerName", "string", "broker group"),
        _key("clusterName", "string", "cluster in the registration of the broker"),
        _key("brokerAddr", "string", "ip:port"),
        Column("filterServerList", "array<string>", "filter servers of the broker"),
    ),
)

TOPIC_QUEUE_MAPPING_INFO_TABLE: Final = Table(
    name="topicQueueMappingInfoTable",
    comment="topic -> bname -> TopicQueueMappingInfo: static topics. No row is removed, as in RocketMQ",
    key=("brokerName", "topic", "bname"),
    columns=(
        _key("brokerName", "string", "broker group in the registration"),
        _key("topic", "string", "topic"),
        _key(
            "bname", "string", "brokerName in the mapping. If several rows have it, the highest registeredOffset counts"
        ),
        Column("mapping", "string", "TopicQueueMappingInfo as standard JSON"),
        Column("registeredOffset", "bigint", "log offset of the registration with this mapping"),
    ),
)

KV_CONFIG_TABLE: Final = Table(
    name="kvConfigTable",
    comment="namespace -> key -> value (KVConfigManager)",
    key=("namespace", "key"),
    columns=(
        _key("namespace", "string", "namespace. RocketMQ reads only ORDER_TOPIC_CONFIG"),
        _key("key", "string", "key"),
        Column("value", "string", "value. null = the entry is not found, but its namespace exists"),
    ),
)

ROUTE_CHANGE_TABLE: Final = Table(
    name="routeChangeTable",
    comment="history: one row for each changed row, admin command and refusal, with sender and time.",
    columns=(
        Column("epoch", "bigint", "first epoch with the change", nullable=False),
        Column("offset", "bigint", "log offset of the cause, for an expiry of the last heartbeat", nullable=False),
        Column("seq", "int", "order within the offset, -1 = the command itself", nullable=False),
        Column(
            "eventTime",
            "timestamp",
            "event time of the cause, for an expiry the millisecond after the deadline",
            nullable=False,
        ),
        Column(
            "command",
            "string",
            "RequestCode name, or CHANNEL_CLOSED, BROKER_EXPIRED, RESUME, PRESERVE, PRESERVE_END, ACCESS_REFUSED",
            nullable=False,
        ),
        Column("outcome", "string", "applied, unchanged or rejected", nullable=False),
        Column("reason", "string", "cause of the rejection"),
        Column("actor", "string", "sender as JSON: gateway, via (remoting or http), peer, user"),
        Column("tableName", "string", "state table of the changed row, null = the command itself"),
        Column("brokerName", "string", "broker group of the changed row or of the command"),
        Column("topic", "string", "topic of the changed row or of the command"),
        Column("key", "string", "JSON object: key columns of the row, or fields of the command"),
        Column("before", "string", "JSON object: value columns before the change, null = new row"),
        Column("after", "string", "JSON object: value columns after the change, null = removed row"),
    ),
)

CHAIN: Final = "chain"
"""Name of the hash chain's column of routeCommitTable, the last with a meaning of its own: `lake.write.hash_chain`."""

ROUTE_COMMIT_TABLE: Final = Table(
    name="routeCommitTable",
    comment="one row per epoch, written last, with one consistent set of versions of all tables",
    columns=(
        Column("epoch", "bigint", "number of the epoch: 1, 2, 3, ... without gaps", nullable=False),
        Column("logOffset", "bigint", "last log offset of the epoch", nullable=False),
        Column(
            "livenessOffset", "bigint", "last log offset of which brokerLiveTable has the heartbeats", nullable=False
        ),
        Column("eventTime", "timestamp", "event time of logOffset", nullable=False),
        Column(
            "watermark",
            "timestamp",
            "event time of the last CLOCK up to logOffset. Each broker with an earlier deadline has expired",
            nullable=False,
        ),
        Column("commitTime", "timestamp", "time of the writer at which it wrote this row", nullable=False),
        Column("versions", "map<string,bigint>", "table name -> Delta version of this epoch", nullable=False),
        Column("outcomes", "string", "JSON array: offset, outcome, reason and result of admin commands and refusals"),
        Column("queryId", "string", "checkpoint id of the streaming query", nullable=False),
        Column("batchId", "bigint", "batch of the streaming query", nullable=False),
        Column("resumeTime", "timestamp", "event time of the last RESUME up to logOffset, null = none"),
        Column("rulesVersion", "int", "version of the state machine's rules", nullable=False),
        Column(
            "preserveTime", "timestamp", "event time at which self-preservation began (PRESERVE), null = brokers expire"
        ),
        Column(
            CHAIN,
            "string",
            "hash chain: SHA-256, in hex, of the previous row, this row and the changes of this epoch ('The chain')",
            nullable=False,
        ),
    ),
)

QUARANTINE_TABLE: Final = Table(
    name="quarantineTable",
    comment="event log records that the fold cannot read. The other tables ignore them.",
    columns=(
        Column("offset", "bigint", "log offset", nullable=False),
        Column("eventTime", "timestamp", "event time", nullable=False),
        Column("key", "string", "routing key"),
        Column("error", "string", "error of the decoder", nullable=False),
        Column("payload", "binary", "bytes of the record on the event log"),
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
