# SPDX-License-Identifier: Apache-2.0
"""Changes between two points in time, newest first, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from lake.delta import query
from lake.history.as_of import between
from lake.history.cursors import Number, TimeUs, cursor_of, how_many_fit, place_of
from lake.history.filters import Filters
from lake.history.history import History, check_limit
from schemas.route_commit import from_us, to_us
from schemas.tables import ROUTE_CHANGE_TABLE

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of the JSON columns of a page, in UTF-8. A single larger change is a page of its own."""

_FIRST_WINDOW: Final = 256
_WIDE_ROWS: Final = 16
"""Number of rows that a query of JSON columns decodes at a time. A row may have two KV values of 256 KiB each."""
_JSON_COLUMNS: Final = ("actor", "key", "before", "after")
_JSON_BYTES: Final = " + ".join(f'coalesce(octet_length("{name}"), 0)' for name in _JSON_COLUMNS)

_POSITION: Final = (
    '"epoch"',
    '"eventTime"',
    '"offset"',
    '"seq"',
    "coalesce(\"brokerName\", '')",
    "coalesce(\"tableName\", '')",
)
"""Sort order of changes. Time comes before offset, as an expiry has the offset of a much earlier heartbeat."""


class Change(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A row of routeChangeTable with decoded JSON columns."""

    epoch: int
    offset: int
    seq: int
    event_time: datetime
    command: str
    outcome: str
    reason: str | None
    actor: dict[str, Any] | None
    table_name: str | None
    broker_name: str | None
    topic: str | None
    key: dict[str, Any] | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ChangesAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the query. ``from_`` and ``to`` are as for `History.resolve`. None: the first epoch, and now."""

    from_: str | None = None
    to: str | None = None
    filters: Filters = Filters()


class ChangePage(msgspec.Struct, frozen=True):
    """Changes, newest first, and the cursor of the next page, or None at the end."""

    changes: list[Change]
    next_cursor: str | None


class ChangePosition(msgspec.Struct, frozen=True, array_like=True):
    """Position of a change in the order of all changes."""

    epoch: Number
    time_us: TimeUs
    offset: Number
    seq: Number
    broker_name: str
    table_name: str

    @classmethod
    def of(cls, row: dict[str, Any]) -> ChangePosition:
        """Position of a row of routeChangeTable."""
        names = (row["brokerName"] or "", row["tableName"] or "")
        return cls(row["epoch"], to_us(row["eventTime"]), row["offset"], row["seq"], *names)

    def older(self) -> str:
        """SQL condition for rows that are older than this position."""
        time = query.time(from_us(self.time_us))
        values = (
            *(str(self.epoch), time, str(self.offset), str(self.seq)),
            *(query.text(self.broker_name), query.text(self.table_name)),
        )
        condition = "false"
        for column, value in reversed(tuple(zip(_POSITION, values, strict=True))):
            condition = f"({column} < {value} OR ({column} = {value} AND {condition}))"
        return f'"epoch" <= {self.epoch} AND {condition}'


def list_changes(history: History, asked: ChangesAsked, *, limit: int = 100, cursor: str | None = None) -> ChangePage:
    """List changes, one page at a time.

    The first query finds the epochs of the page in narrow columns, from the newest epoch backwards. The second one sums
    the JSON sizes in these epochs. The third one reads as many rows as `MAX_PAGE_BYTES` allows.

    Raises:
        BadRequestError: A filter, a point in time, the limit or the cursor is invalid.
        RoutelakeError: As `History.resolve`.
    """
    asked.filters.check()
    check_limit(limit)
    place = None if cursor is None else place_of(history, cursor, asked, ChangePosition)
    if history.is_empty():
        return ChangePage([], None)
    before, after = history.window(asked.from_, asked.to)
    with history.reading_changes() as table:
        terms = [between(before, after), asked.filters.of_rows(history, table), asked.filters.of_causes()]
        terms.append(None if place is None else place.older())
        where = " AND ".join(f"({term})" for term in terms if term is not None)
        newest = after.last_epoch if place is None else min(after.last_epoch, place.epoch)
        order = ", ".join(f"{column} DESC" for column in _POSITION)
        found: list[int] = []
        for first, last in _windows(0 if before is None else before.commit.epoch, newest):
            found += query.select(
                table,
                f'SELECT "epoch" FROM t WHERE "epoch" BETWEEN {first} AND {last} AND {where} '  # noqa: S608
                f"ORDER BY {order} LIMIT {limit + 1 - len(found)}",
            )["epoch"].to_pylist()
            if len(found) > limit:
                break
        if not found:
            return ChangePage([], None)
        rest = f'FROM t WHERE "epoch" BETWEEN {min(found)} AND {max(found)} AND {where} ORDER BY {order} LIMIT'
        sizes = query.select(table, f'SELECT {_JSON_BYTES} AS "size" {rest} {limit}', batch_rows=_WIDE_ROWS)
        count = max(1, how_many_fit(sizes["size"].to_pylist(), MAX_PAGE_BYTES))
        columns = query.names(ROUTE_CHANGE_TABLE.column_names)
        rows = query.select(table, f"SELECT {columns} {rest} {count}", batch_rows=_WIDE_ROWS).to_pylist()
    following = cursor_of(history, asked, ChangePosition.of(rows[-1])) if len(found) > len(rows) else None
    return ChangePage(list(map(_change, rows)), following)


def _windows(oldest: int, newest: int) -> Iterator[tuple[int, int]]:
    """Ranges of epochs, newest first, each 16 times as long as the previous one."""
    length = _FIRST_WINDOW
    while oldest <= newest:
        yield max(oldest, newest - length + 1), newest
        newest -= length
        length *= 16


def _change(row: dict[str, Any]) -> Change:
    decoded = {name: None if row[name] is None else msgspec.json.decode(row[name]) for name in _JSON_COLUMNS}
    return msgspec.convert({**row, **decoded}, Change)
