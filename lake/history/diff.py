# SPDX-License-Identifier: Apache-2.0
"""Net differences of the state tables between two points in time.

routeChangeTable has each changed row before and after, so no state is read. For each key with a change in between, the
row before the first change and the row after the last change are compared. If both are equal, the key is left out. The
cost grows with the number of changes, not with the tables. The versions of the state tables may be vacuumed.

Heartbeat times (`LIVENESS_COLUMNS`) are left out, as no change is recorded for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple

import msgspec
from deltalake import DeltaTable

from lake.delta import query
from lake.history.as_of import NOW, AsOf, between
from lake.history.changelog import MAX_PAGE_BYTES, ChangesAsked
from lake.history.cursors import Number, cursor_of, how_many_fit, place_of
from lake.history.history import History, check_limit
from nameserver.state_machine.changes import LIVENESS_COLUMNS
from schemas.tables import BROKER_LIVE_TABLE, KV_CONFIG_TABLE, TOPIC_QUEUE_MAPPING_INFO_TABLE

_GROUP_ROWS: Final = 50_000
"""Number of changes to read in one query. All changes of a broker group in one table are in one query."""
_GROUP: Final = "coalesce(\"brokerName\", '')"
_WIDE: Final = frozenset({KV_CONFIG_TABLE.name, TOPIC_QUEUE_MAPPING_INFO_TABLE.name})
"""Tables with possibly large rows."""
_ORDER: Final = '"epoch", "eventTime", "offset", "seq"'
_BYTES: Final = " + ".join(f'coalesce(octet_length("{name}"), 0)' for name in ("key", "before", "after"))


class Difference(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A row that differs between two points in time. `i`: only the later has it, `d`: only the earlier, `u`: both."""

    table_name: str
    op: Literal["i", "u", "d"]
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Diff(msgspec.Struct, frozen=True):
    """A page of differences, sorted by table, broker group and key."""

    before: AsOf
    after: AsOf
    differences: list[Difference]
    next_cursor: str | None


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The last difference of a page, and the newest epoch at the time of the first page."""

    now: Number
    table_name: str
    broker_name: str
    key: str


def diff(history: History, asked: ChangesAsked, *, limit: int = 1000, cursor: str | None = None) -> Diff:
    """List differences, one page at a time.

    Args:
        history: History of the lake.
        asked: Points in time and filters. ``command``, ``peer``, ``user`` and ``outcome`` select rows with at least one
            such change in between.
        limit: Maximum number of differences on the page.
        cursor: Cursor of the page, or None for the first.

    Raises:
        BadRequestError: A filter, a point in time or the cursor is invalid, or ``from`` is missing.
        RoutelakeError: As `History.resolve`.
    """
    asked.filters.check()
    check_limit(limit)
    place = None if cursor is None else place_of(history, cursor, asked, _Cursor)
    to = asked.to if asked.to not in (None, NOW) or place is None else str(place.now)
    before, after = history.window(asked.from_ or "", to, needs_from=True)
    assert before is not None
    looked_at: list[_Row] = []
    ended = True
    with history.reading_changes() as table:
        wanted = f'{between(before, after)} AND "tableName" IS NOT NULL AND {asked.filters.of_rows(history, table)}'
        look = _Look(table, wanted, asked.filters.of_causes(), place)
        room = MAX_PAGE_BYTES
        for name, groups in look.parts():
            rows, ended = look.rows(name, groups, limit - len(looked_at), room if looked_at else None)
            looked_at += rows
            room -= sum(row.size for row in rows)
            if not ended:
                break
    found = [difference for row in looked_at if (difference := row.difference()) is not None]
    if ended:
        return Diff(before, after, found, None)
    last = looked_at[-1]
    here = _Cursor(after.commit.epoch, last.table_name, last.group, last.key)
    return Diff(before, after, found, cursor_of(history, asked, here))


class _Row(NamedTuple):
    """A key with different texts in its first ``before`` and its last ``after``."""

    table_name: str
    group: str
    key: str
    before: str | None
    after: str | None

    @property
    def size(self) -> int:
        """Approximate bytes of JSON."""
        return len(self.key) + len(self.before or "") + len(self.after or "")

    def difference(self) -> Difference | None:
        """The difference, or None if the rows are equal apart from heartbeat times."""
        before, after = (self._values(text) for text in (self.before, self.after))
        if before == after:
            return None
        op: Literal["i", "u", "d"] = "i" if before is None else "d" if after is None else "u"
        return Difference(self.table_name, op, msgspec.json.decode(self.key), before, after)

    def _values(self, text: str | None) -> dict[str, Any] | None:
        if text is None:
            return None
        values: dict[str, Any] = msgspec.json.decode(text)
        if self.table_name != BROKER_LIVE_TABLE.name:
            return values
        return {name: value for name, value in values.items() if name not in LIVENESS_COLUMNS}


class _Look(NamedTuple):
    """One query of routeChangeTable: filters for rows and causes, and the start of the page."""

    table: DeltaTable
    wanted: str
    causes: str | None
    place: _Cursor | None

    def parts(self) -> Iterator[tuple[str, list[str]]]:
        """Changed tables and their broker groups, in order, from the cursor on. Each part is for one query."""
        beyond = "true"
        if self.place is not None:
            name, group = query.text(self.place.table_name), query.text(self.place.broker_name)
            beyond = f'("tableName" > {name} OR ("tableName" = {name} AND {_GROUP} >= {group}))'
        rows = query.select(
            self.table,
            f'SELECT "tableName", {_GROUP} AS "group", count(*) AS "rows" FROM t '  # noqa: S608
            f"WHERE {self.wanted} AND {beyond} GROUP BY 1, 2 ORDER BY 1, 2",
        )
        for name, of_table in groupby(rows.to_pylist(), itemgetter("tableName")):
            groups: list[str] = []
            count = 0
            for row in of_table:
                if count >= _GROUP_ROWS:
                    yield name, groups
                    groups, count = [], 0
                groups.append(row["group"])
                count += row["rows"]
            yield name, groups

    def rows(self, name: str, groups: list[str], limit: int, room: int | None) -> tuple[list[_Row], bool]:
        """The first differing rows of some groups of one table, and True if these are all of them.

        Args:
            name: Name of the table.
            groups: Names of broker groups.
            limit: Maximum number of rows.
            room: Maximum bytes, or None for no limit on the first row.
        """
        beyond = "true"
        if self.place is not None and self.place.table_name == name:
            group = query.text(self.place.broker_name)
            beyond = f'({_GROUP} > {group} OR ({_GROUP} = {group} AND "key" > {query.text(self.place.key)}))'
        caused = "" if self.causes is None else f"AND bool_or({self.causes})"
        changed = (
            f'SELECT {_GROUP} AS "group", "key", first_value("before" ORDER BY {_ORDER}) AS "before", '  # noqa: S608
            f'last_value("after" ORDER BY {_ORDER}) AS "after" FROM t WHERE {self.wanted} '
            f'AND "tableName" = {query.text(name)} AND {_GROUP} IN {query.texts(groups)} '
            f'AND {beyond} GROUP BY 1, "key" HAVING (first_value("before" ORDER BY {_ORDER}) '
            f'IS DISTINCT FROM last_value("after" ORDER BY {_ORDER})) {caused}'
        )
        rest = f'FROM ({changed}) ORDER BY "group", "key" LIMIT'
        count = limit
        if name in _WIDE:
            sizes = query.select(self.table, f'SELECT {_BYTES} AS "size" {rest} {limit + 1}')["size"].to_pylist()
            fit = how_many_fit(sizes, MAX_PAGE_BYTES if room is None else room)
            count = min(limit, max(fit, room is None))
        found = query.select(self.table, f'SELECT "group", "key", "before", "after" {rest} {count + 1}').to_pylist()
        return [_Row(name, *row.values()) for row in found[:count]], len(found) <= count
