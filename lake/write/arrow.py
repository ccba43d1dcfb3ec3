# SPDX-License-Identifier: Apache-2.0
"""Row changes as Arrow tables, which the Spark workers send to the writer.

Changes of topicQueueTable may be millions, so they are made column by column (topic_changes.py). Other changes are:

- *operations* on a state table: its columns plus ``op`` (i insert, u update, d delete)
- rows of routeChangeTable, without ``epoch``, which the writer adds
- quarantined records

Outcomes of commands become rows of routeChangeTable after those of all shards are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import pyarrow as pa

from lake.delta.types import ARROW_TYPES, arrow_schema
from nameserver.state_machine.changes import (
    LIVENESS_COLUMNS,
    RowChange,
    command_name,
    is_liveness_only,
    row_changes,
    row_differences,
)
from nameserver.state_machine.rows import kv_rows, rows_of
from nameserver.state_machine.state import At, BrokerGroup, Outcome, RouteState
from schemas.events import AnyEvent
from schemas.outcomes import APPLIED
from schemas.tables import (
    BROKER_LIVE_TABLE,
    KV_CONFIG_TABLE,
    QUARANTINE_TABLE,
    ROUTE_CHANGE_TABLE,
    Table,
)

OP: Final = "op"
INSERT: Final = "i"
UPDATE: Final = "u"
DELETE: Final = "d"
LIVENESS: Final = "l"
"""``op`` of a row of brokerLiveTable in which only the time of the last heartbeat changed."""

OperationRow = tuple[tuple[Any, ...], tuple[Any, ...] | None, str]
"""Key, values (None: a deletion) and ``op``."""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4")

_json = msgspec.json.Encoder()


CHANGE_SCHEMA: Final = arrow_schema(ROUTE_CHANGE_TABLE, without=("epoch",))
CODED_CHANGE_SCHEMA: Final = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string()))
        if field.type == pa.string() and field.name not in ("topic", "key")
        else field
        for field in CHANGE_SCHEMA
    ]
)
"""`CHANGE_SCHEMA` with dictionaries for texts that repeat in many rows."""
QUARANTINE_SCHEMA: Final = arrow_schema(QUARANTINE_TABLE)


def operation_schema(table: Table) -> pa.Schema:
    """Columns of a state table, all nullable (a deletion has only its key), and ``op``."""
    fields = [pa.field(column.name, ARROW_TYPES[column.type]) for column in table.columns]
    return pa.schema([*fields, pa.field(OP, pa.string(), nullable=False)])


def operations(table: Table, rows: Iterable[OperationRow]) -> pa.Table:
    """Operations on a state table."""
    schema = operation_schema(table)
    nothing = (None,) * len(table.value_columns)
    columns = list(zip(*((*key, *(values or nothing), op) for key, values, op in rows), strict=True))
    if not columns:
        return schema.empty_table()
    # Keys are the first columns of every table (checked by tests/schemas), so the order is the declared one.
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def net_operations(start: RouteState, end: RouteState, *, full: bool) -> dict[str, list[OperationRow]]:
    """Operations that lead from one state of a shard to another, by table name, except those of topicQueueTable.

    Args:
        start: state at the start of the micro-batch.
        end: state at its end.
        full: with all rows of brokerLiveTable, also unchanged ones (at the start of a driver run).
    """
    net: dict[str, list[OperationRow]] = {}

    def add(change: RowChange) -> None:
        table, key, before, after = change
        op = INSERT if before is None else DELETE if after is None else UPDATE
        if table is BROKER_LIVE_TABLE and after is not None:
            op = LIVENESS if is_liveness_only(before, after) else UPDATE
        net.setdefault(table.name, []).append((key, after, op))

    for name in dict.fromkeys([*start.groups, *end.groups]):
        nothing = BrokerGroup(name)
        before, after = start.groups.get(name, nothing), end.groups.get(name, nothing)
        for change in row_changes(before, after, with_liveness=True):
            add(change)
        if full:
            known = rows_of(BROKER_LIVE_TABLE, before)
            for key, values in rows_of(BROKER_LIVE_TABLE, after).items():
                if known.get(key) == values:
                    add(RowChange(BROKER_LIVE_TABLE, key, values, values))
    if start.kv is not end.kv:
        for change in row_differences(KV_CONFIG_TABLE, kv_rows(start.kv), kv_rows(end.kv)):
            add(change)
    return net


class Cause(msgspec.Struct, frozen=True, array_like=True):
    """Cause of row changes, as in routeChangeTable. ``actor`` is JSON, None for an expiry."""

    offset: int
    event_time_ms: int
    command: str
    actor: str | None


class ChangeRows:
    """Rows of routeChangeTable, collected column by column. `topic_changes` makes those about topicQueueTable.

    Attributes:
        text_bytes: number of JSON characters so far, which take nearly all of the memory.
    """

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in CHANGE_SCHEMA.names}
        self.text_bytes = 0

    def __len__(self) -> int:
        return len(self._columns["offset"])

    def add(self, changes: Iterable[RowChange], cause: Cause, first_seq: int = 0) -> None:
        """Append the row changes of one cause, numbered in order within it from ``first_seq`` on."""
        columns = self._columns
        keys, befores, afters = columns["key"], columns["before"], columns["after"]
        tables, brokers, topics = columns["tableName"], columns["brokerName"], columns["topic"]
        count = 0
        for table, key, before, after in changes:
            names = dict(zip(table.key, key, strict=True))
            texts = (
                _json.encode(names).decode(),
                None if before is None else values_json(table, before),
                None if after is None else values_json(table, after),
            )
            for column, text in zip((keys, befores, afters), texts, strict=True):
                column.append(text)
                self.text_bytes += len(text or "")
            tables.append(table.name)
            brokers.append(names.get("brokerName"))
            topics.append(names.get("topic"))
            count += 1
        columns["seq"].extend(range(first_seq, first_seq + count))
        for name, value in (
            ("offset", cause.offset),
            ("eventTime", cause.event_time_ms * 1000),
            ("command", cause.command),
            ("outcome", APPLIED),
            ("reason", None),
            ("actor", cause.actor),
        ):
            columns[name].extend([value] * count)

    def table(self) -> pa.Table:
        """The rows so far, in the schema of routeChangeTable without ``epoch``."""
        return pa.Table.from_arrays(
            [pa.array(self._columns[field.name], field.type) for field in CHANGE_SCHEMA], schema=CHANGE_SCHEMA
        )


def outcome_entry(event: AnyEvent, at: At, outcome: Outcome) -> dict[str, Any]:
    """Entry of a command in the outcomes of the epoch and in routeChangeTable, without long fields."""
    fields = msgspec.to_builtins(event)
    fields.pop("command")
    fields.pop("actor")
    for bulky in ("topicConfigTable", "topicQueueMappingInfoMap", "filterServerList", "channel"):
        fields.pop(bulky, None)
    return {
        "offset": at.offset,
        "eventTime": at.now_ms,
        "command": command_name(event),
        "outcome": outcome.verdict,
        "reason": outcome.reason,
        "result": outcome.result,
        "actor": _json.encode(event.actor).decode(),
        "brokerName": fields.get("brokerName") or (fields.get("queueData") or {}).get("brokerName"),
        "topic": fields.get("topic"),
        "key": _json.encode(fields).decode(),
    }


def command_rows(entries: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows of routeChangeTable about commands, from their `outcome_entry`."""
    rows = [{**entry, "seq": -1, "eventTime": entry["eventTime"] * 1000} for entry in entries]
    return pa.Table.from_pylist(rows, schema=CHANGE_SCHEMA)  # takes only the columns of an entry


def values_json(table: Table, values: tuple[Any, ...]) -> str:
    """Column ``before`` or ``after`` of routeChangeTable: value columns by name, without those of each heartbeat."""
    named = dict(zip(table.value_columns, values, strict=True))
    if table is BROKER_LIVE_TABLE:
        named = {name: value for name, value in named.items() if name not in LIVENESS_COLUMNS}
    if "brokerAddrs" in named:
        named["brokerAddrs"] = {str(broker_id): addr for broker_id, addr in named["brokerAddrs"]}
    return _json.encode(named).decode()


def to_ipc(table: pa.Table) -> bytes:
    """Arrow IPC stream, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSED) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_ipc(data: bytes) -> pa.Table:
    """Inverse of `to_ipc`."""
    with pa.ipc.open_stream(data) as stream:
        return stream.read_all()
