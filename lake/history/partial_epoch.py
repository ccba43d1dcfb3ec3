# SPDX-License-Identifier: Apache-2.0
"""Between two epochs: what had happened of an epoch up to a time, out of routeChangeTable.

An epoch holds what happened in a second or more, and each change keeps its own event time. The state at a time within
an epoch is the tables of the epoch before, and on top of them the changed rows up to that time.

The rules notice that a broker group's member is overdue before they take the group's next event, so the changes of a
group in the order of their event times are the order in which they were made, expiries included.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable

from lake.delta import query
from lake.delta.log import GONE
from lake.delta.types import arrow_schema
from schemas.route_commit import RouteCommit
from schemas.tables import TOPIC_QUEUE_TABLE, Table

_WIDE_ROWS: Final = 16
"""Rows decoded at a time: a KV value may have 256 KiB."""


def commit_at(changes: DeltaTable, before: RouteCommit, epoch: int, until: datetime) -> RouteCommit:
    """The commit before an epoch, moved to the last change of the epoch up to a time; itself if there is none.

    Args:
        changes: routeChangeTable with the epoch's rows.
        before: The commit of the epoch before.
        epoch: The first whose event time is after ``until``.
        until: Inclusive.
    """
    found = query.select(
        changes,
        'SELECT max("eventTime") AS "eventTime", max("offset") AS "offset" '  # noqa: S608
        f"FROM t WHERE {_up_to(epoch, until)}",
    ).to_pylist()[0]
    if found["eventTime"] is None:
        return before
    time = max(before.event_time, found["eventTime"].astimezone(UTC))
    # An expiry has the offset of its broker's last heartbeat.
    return msgspec.structs.replace(before, log_offset=max(before.log_offset, found["offset"]), event_time=time)


def changed_rows(changes: DeltaTable, spec: Table, epoch: int, until: datetime, condition: str) -> pa.Table:
    """Rows of a state table that an epoch changed up to a time, oldest first, `GONE` marking removed ones.

    Args:
        changes: routeChangeTable with the epoch's rows.
        spec: The state table.
        epoch: The epoch.
        until: Inclusive.
        condition: SQL on columns of routeChangeTable.
    """
    found = query.select(
        changes,
        f'SELECT "key", "after" FROM t WHERE {_up_to(epoch, until)} AND "tableName" = {query.text(spec.name)} '  # noqa: S608
        f'AND {condition} ORDER BY "eventTime", "offset", "seq"',
        batch_rows=_WIDE_ROWS,
    )
    afters = found["after"].to_pylist()
    rows = rows_from_json(spec, found["key"].to_pylist(), afters)
    return rows.append_column(GONE, pa.array([after is None for after in afters], pa.bool_()))


def rows_from_json(spec: Table, keys: Sequence[str], values: Sequence[str | None]) -> pa.Table:
    """Rows of a state table from what routeChangeTable has of them; what is missing there is null."""
    rows: list[dict[str, Any]] = [
        {**msgspec.json.decode(key), **({} if value is None else msgspec.json.decode(value))}
        for key, value in zip(keys, values, strict=True)
    ]
    return pa.table(
        {
            field.name: pa.array([_typed(row.get(field.name), field.type) for row in rows], field.type)
            for field in arrow_schema(spec)
        }
    )


def more_rows(changes: DeltaTable, epoch: int, until: datetime, condition: str) -> list[tuple[str, int]]:
    """By how many rows of topicQueueTable each topic has more at a time within an epoch than before that epoch.

    Args:
        changes: routeChangeTable with the epoch's rows.
        epoch: The epoch.
        until: Inclusive.
        condition: SQL on columns of routeChangeTable.
    """
    # A row came into being where a change has no ``before``, and went where it has no ``after``.
    found = query.select(
        changes,
        'SELECT "topic", sum(CASE WHEN "before" IS NULL THEN 1 ELSE 0 END) '  # noqa: S608
        '- sum(CASE WHEN "after" IS NULL THEN 1 ELSE 0 END) AS "more" '
        f'FROM t WHERE {_up_to(epoch, until)} AND "tableName" = {query.text(TOPIC_QUEUE_TABLE.name)} '
        f'AND {condition} GROUP BY "topic"',
    )
    return list(zip(found["topic"].to_pylist(), found["more"].to_pylist(), strict=True))


def with_changes(spec: Table, rows: pa.Table, changed: pa.Table) -> pa.Table:
    """Rows of a state table, and after them changed ones: the last one with a key counts."""
    plain = rows.select(spec.column_names).cast(pa.schema([field.with_nullable(True) for field in arrow_schema(spec)]))
    return pa.concat_tables([plain.append_column(GONE, pa.repeat(pa.scalar(False), rows.num_rows)), changed])


def _up_to(epoch: int, until: datetime) -> str:
    return f'"epoch" = {epoch} AND "eventTime" <= {query.time(until)}'


def _typed(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 (JSON)
    """A value of a JSON column as Arrow takes it: the keys of JSON objects are strings."""
    if value is None or not pa.types.is_map(type_):
        return value
    return [(int(key) if pa.types.is_integer(type_.key_type) else key, item) for key, item in value.items()]
