# SPDX-License-Identifier: Apache-2.0
"""Causes of changes: changed rows in order with their causes, and the cause of each field of a topic's route.

A change is visible from its event time on, but not before the end of the previous epoch. The event time of an expiry is
the deadline, which may be long before the expiry was noticed (`lake.history.history`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from deltalake import DeltaTable

from lake.delta import query
from lake.history.as_of import AsOf, up_to
from lake.history.history import History
from schemas.tables import BROKER_ADDR_TABLE, TOPIC_QUEUE_TABLE

_ADDRESSES: Final = "brokerAddrs"
_COLUMNS = ("epoch", "offset", "eventTime", "command", "actor", "tableName", "brokerName", "key", "before", "after")
_ORDER = query.names(("epoch", "eventTime", "offset", "seq"))


class Cause(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Cause of a change. For an expiry, `offset` is that of the broker's last heartbeat."""

    command: str
    actor: dict[str, Any] | None
    offset: int


class RowStep(msgspec.Struct, frozen=True):
    """A changed row.

    Attributes:
        shows_from: Time from which the change is visible (see the module docstring).
        key: JSON text that identifies the row within its table.
        before: Value columns before the change, or None for no row.
        after: Value columns after the change, or None for no row.
    """

    epoch: int
    event_time: datetime
    shows_from: datetime
    cause: Cause
    table_name: str
    broker_name: str
    key: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def row_steps(history: History, table: DeltaTable, where: str) -> list[RowStep]:
    """Changed rows, oldest first.

    Args:
        history: History of the lake, for the event times of epochs.
        table: routeChangeTable.
        where: SQL condition on its columns.
    """
    rows = query.select(
        table,
        f'SELECT {query.names(_COLUMNS)} FROM t WHERE "tableName" IS NOT NULL AND ({where}) ORDER BY {_ORDER}',  # noqa: S608
    ).to_pylist()
    return [_step(row, history.event_time(row["epoch"] - 1)) for row in rows]


def newest_steps(history: History, table: DeltaTable, where: str, most: int) -> tuple[list[RowStep], list[RowStep]]:
    """The newest changed rows, and the state before them, both oldest first.

    Args:
        history: History of the lake, for the event times of epochs.
        table: routeChangeTable.
        where: SQL condition on its columns.
        most: Number of rows to read. Changes that become visible at the same time stay together.

    Returns:
        The last earlier change of each row, and the newest changes. The former is empty if the latter are all changes.
    """
    columns, newest = query.names(_COLUMNS), ", ".join(f"{name} DESC" for name in _ORDER.split(", "))
    where = f'"tableName" IS NOT NULL AND ({where})'
    while True:
        rows = query.select(
            table,
            f"SELECT {columns} FROM t WHERE {where} ORDER BY {newest} LIMIT {most + 1}",  # noqa: S608
        ).to_pylist()[::-1]
        steps = [_step(row, history.event_time(row["epoch"] - 1)) for row in rows]
        if len(steps) <= most:
            return [], steps
        torn = sum(step.shows_from == steps[0].shows_from for step in steps)
        if torn < len(steps):
            break
        most *= 4
    before = f"({where}) AND {up_to(steps[torn - 1].epoch, steps[torn - 1].event_time)}"
    epochs = query.select(
        table,
        f'SELECT max("epoch") AS "epoch" FROM t WHERE {before} GROUP BY "tableName", "key"',  # noqa: S608
    )["epoch"].to_pylist()
    # All changes of the epochs with the last change of a row. The last change of each row counts.
    in_them = row_steps(history, table, f'{before} AND "epoch" IN ({", ".join(map(str, sorted(set(epochs))))})')
    last = {(step.table_name, step.key): step for step in in_them}
    return sorted(last.values(), key=lambda step: (step.epoch, step.event_time)), steps[torn:]


def of_tables(names: Iterable[str]) -> str:
    """SQL condition for changes of these tables."""
    return f'"tableName" IN {query.texts(names)}'


def _step(row: dict[str, Any], epoch_before: datetime | None) -> RowStep:
    time = row["eventTime"].astimezone(UTC)
    return RowStep(
        epoch=row["epoch"],
        event_time=time,
        shows_from=time if epoch_before is None else max(time, epoch_before),
        cause=Cause(row["command"], _values(row["actor"]), row["offset"]),
        table_name=row["tableName"],
        broker_name=row["brokerName"] or "",
        key=row["key"],
        before=_values(row["before"]),
        after=_values(row["after"]),
    )


def _values(text: str | None) -> dict[str, Any] | None:
    return None if text is None else msgspec.json.decode(text)


class Field(msgspec.Struct, frozen=True, rename="camel"):
    """A field with its value since ``event_time``. An address is the field ``brokerAddrs.<brokerId>``."""

    table_name: str
    broker_name: str
    field: str
    value: Any
    epoch: int
    event_time: datetime
    set_by: Cause


class Blame(msgspec.Struct, frozen=True):
    """The fields of a route at a point in time, by brokerName and table. Empty if there was no route."""

    point: AsOf
    fields: list[Field]


def topic_blame(history: History, topic: str, as_of: str) -> Blame:
    """Find the cause of each field of a topic's route.

    Raises:
        RoutelakeError: As `History.resolve`. The old versions of the state tables are not needed.
    """
    point = history.resolve(as_of)
    with history.reading_changes() as table:
        of_topic = f'{of_tables([TOPIC_QUEUE_TABLE.name])} AND "topic" = {query.text(topic)}'
        steps = row_steps(history, table, f"{of_topic} AND {point.changes}")
        queues = _fields(steps)
        holders = sorted({name for name, fields in queues.items() if fields})
        if holders:
            of_groups = f'{of_tables([BROKER_ADDR_TABLE.name])} AND "brokerName" IN {query.texts(holders)}'
            groups = _fields(row_steps(history, table, f"{of_groups} AND {point.changes}"))
        else:
            groups = {}
    if not any(groups.values()):
        return Blame(point, [])
    parts = [part for name in holders for part in (queues[name], groups.get(name, {}))]
    return Blame(point, [field for part in parts for field in part.values()])


def _fields(steps: list[RowStep]) -> dict[str, dict[str, Field]]:
    """brokerName -> field -> its last change, for present rows."""
    found: dict[str, dict[str, Field]] = {}
    for step in steps:
        before, after = dict(_fields_of(step.before)), dict(_fields_of(step.after))
        known = found.get(step.broker_name, {}) if step.before is not None else {}
        found[step.broker_name] = {
            name: known[name]
            if name in known and name in before and before[name] == value
            else Field(step.table_name, step.broker_name, name, value, step.epoch, step.event_time, step.cause)
            for name, value in after.items()
        }
    return found


def _fields_of(row: dict[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Fields of a row. Each address is a separate field."""
    for name, value in (row or {}).items():
        if name == _ADDRESSES:
            yield from ((f"{name}.{broker_id}", address) for broker_id, address in (value or {}).items())
        else:
            yield name, value
