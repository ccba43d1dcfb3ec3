# SPDX-License-Identifier: Apache-2.0
"""Changed rows of the state tables in their order, with what caused them and from when on ``as_of`` shows them.

A change shows from its event time on, but not before the epoch before its own is over: an expiry has the time of the
deadline, which may be long before it was noticed (`lake.history.history`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from deltalake import DeltaTable

from lake.delta import query
from lake.history.as_of_resolver import up_to
from lake.history.history import History

_COLUMNS = ("epoch", "offset", "eventTime", "command", "actor", "tableName", "brokerName", "key", "before", "after")
_ORDER = query.names(("epoch", "eventTime", "offset", "seq"))


class Cause(msgspec.Struct, frozen=True, rename="camel"):
    """What made a change. ``offset`` is the log offset; of an expiry, its broker's last heartbeat's."""

    command: str
    actor: dict[str, Any] | None
    offset: int


class RowStep(msgspec.Struct, frozen=True):
    """A changed row.

    Attributes:
        shows_from: See the head of this module.
        key: JSON text, which identifies the row within its table.
        before: Value columns; None for no row.
        after: Likewise.
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
        history: Knows when epochs were.
        table: routeChangeTable.
        where: SQL on its columns.
    """
    rows = query.select(
        table,
        f'SELECT {query.names(_COLUMNS)} FROM t WHERE "tableName" IS NOT NULL AND ({where}) ORDER BY {_ORDER}',  # noqa: S608
    ).to_pylist()
    return [_step(row, history.event_time(row["epoch"] - 1)) for row in rows]


def newest_steps(history: History, table: DeltaTable, where: str, most: int) -> tuple[list[RowStep], list[RowStep]]:
    """The newest changed rows, and what they stand on, both oldest first.

    Args:
        history: Knows when epochs were.
        table: routeChangeTable.
        where: SQL on its columns.
        most: How many rows to read; what shows from one moment on is not torn apart.

    Returns:
        The last change of each row from before the others, and the others. The former is empty where the latter are
        all there are.
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
    # Of the epochs in which a row changed last, all changes: of one row the last counts.
    in_them = row_steps(history, table, f'{before} AND "epoch" IN ({", ".join(map(str, sorted(set(epochs))))})')
    last = {(step.table_name, step.key): step for step in in_them}
    return sorted(last.values(), key=lambda step: (step.epoch, step.event_time)), steps[torn:]


def of_tables(names: Iterable[str]) -> str:
    """SQL: changes of these tables."""
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
