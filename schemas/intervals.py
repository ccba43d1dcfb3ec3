# SPDX-License-Identifier: Apache-2.0
"""Interval tables: one row for each state of a key, with the begin and end of the state and the senders of both.

They are made from routeChangeTable (`lake.history.intervals`). They belong to no epoch's versions, and can be made
again from it at any time: docs/adr/0015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from schemas.tables import BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, KV_CONFIG_TABLE, TOPIC_QUEUE_TABLE, Column, Table

IS_OPEN: Final = "isOpen"
INTERVALS_APP: Final = "routelake-intervals"
"""Id of the Delta app transaction by which a table states up to which epoch it is complete."""

_INTERVAL: Final = (
    Column("validFrom", "timestamp", "start of the state: event time of the change", nullable=False),
    Column("validTo", "timestamp", "end of the state: event time of the change, null = not ended"),
    Column("fromEpoch", "bigint", "first epoch with the start of the state", nullable=False),
    Column("toEpoch", "bigint", "first epoch with the end of the state"),
    Column("fromOffset", "bigint", "log offset of the start", nullable=False),
    Column("toOffset", "bigint", "log offset of the end, for an expiry of the last heartbeat"),
    Column("begunBy", "string", "command that began the state, as in routeChangeTable.command", nullable=False),
    Column("begunByActor", "string", "sender of this command as JSON: gateway, via, peer, user"),
    Column("endedBy", "string", "command that ended the state, or BROKER_EXPIRED"),
    Column("endedByActor", "string", "sender of this command as JSON, null = expired"),
    Column(IS_OPEN, "boolean", "true = not ended", nullable=False),
)


@dataclass(frozen=True, slots=True)
class Intervals:
    """An interval table.

    Attributes:
        table: Interval table.
        source: State table with the rows. It has the same key.
        state: Value columns of the source that make one state differ from another.
    """

    table: Table
    source: Table
    state: tuple[str, ...]


def _intervals(
    name: str, comment: str, source: Table, state: tuple[str, ...], partition_by: tuple[str, ...]
) -> Intervals:
    columns = {column.name: column for column in source.columns}
    return Intervals(
        Table(
            name=name,
            comment=comment,
            partition_by=partition_by,
            columns=(*(columns[name] for name in (*source.key, *state)), *_INTERVAL),
        ),
        source,
        state,
    )


TOPIC_QUEUE_HISTORY: Final = _intervals(
    "topicQueueHistory",
    "one row for each state of a topic on a broker group (queues and permissions)",
    TOPIC_QUEUE_TABLE,
    TOPIC_QUEUE_TABLE.value_columns,
    (IS_OPEN, "brokerName"),
)
BROKER_HISTORY: Final = _intervals(
    "brokerHistory",
    "one row for each state of a broker group (addresses)",
    BROKER_ADDR_TABLE,
    BROKER_ADDR_TABLE.value_columns,
    (IS_OPEN,),
)
BROKER_LIVE_HISTORY: Final = _intervals(
    "brokerLiveHistory",
    "one row for each life of a broker address, from its registration until it expired, unregistered or lost its "
    "connection. A registration with another heartbeatTimeoutMillis or haServerAddr begins a row, too. Heartbeats and "
    "DataVersion make no row",
    BROKER_LIVE_TABLE,
    ("heartbeatTimeoutMillis", "haServerAddr"),
    (IS_OPEN,),
)
KV_HISTORY: Final = _intervals(
    "kvHistory", "one row for each value of a KV entry", KV_CONFIG_TABLE, KV_CONFIG_TABLE.value_columns, (IS_OPEN,)
)

INTERVALS: Final = (TOPIC_QUEUE_HISTORY, BROKER_HISTORY, BROKER_LIVE_HISTORY, KV_HISTORY)
INTERVAL_TABLES: Final = tuple(intervals.table for intervals in INTERVALS)
