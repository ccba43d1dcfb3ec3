# SPDX-License-Identifier: Apache-2.0
"""Changed rows of the state tables in their order, with what caused them and from when on ``as_of`` shows them.

A change shows from its event time on, but not before the epoch before its own is over: an expiry has the time of the
deadline, which may be long before it was noticed (`api.view.history`).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from deltalake import DeltaTable

from api.view.history import History
from lake import query

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
