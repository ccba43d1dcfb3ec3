# SPDX-License-Identifier: Apache-2.0
"""Pages of routeChangeTable: what concerns one topic, newest first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import accumulate
from sys import getsizeof
from typing import Any, Final

import msgspec
from deltalake import DeltaTable

from lake.delta import query
from schemas.errors import BadRequestError
from schemas.events import Preserve, PreserveEnd
from schemas.kv import ORDER_TOPIC_CONFIG
from schemas.route_commit import from_us, to_us
from schemas.tables import (
    BROKER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    KV_CONFIG_TABLE,
    ROUTE_CHANGE_TABLE,
    TOPIC_QUEUE_TABLE,
)

MAX_LIMIT: Final = 1000
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""Of the JSON columns of a page's changes, in UTF-8. A single change beyond it is a page of its own."""

_FIRST_WINDOW: Final = 256
_WIDE_ROWS: Final = 16
"""Rows that a query decodes at a time where it reads JSON columns: a KV value is in a row twice, with 256 KiB each."""
_JSON_BYTES: Final = " + ".join(f'coalesce(octet_length("{name}"), 0)' for name in ("actor", "key", "before", "after"))

_PAUSES: Final = tuple(str(event.__struct_config__.tag) for event in (Preserve, PreserveEnd))

_POSITION: Final = (
    '"epoch"',
    '"eventTime"',
    '"offset"',
    '"seq"',
    "coalesce(\"brokerName\", '')",
    "coalesce(\"tableName\", '')",
)
"""What orders changes: an expiry has the offset of a heartbeat long ago, so the time comes before the offset."""


class Change(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A row of routeChangeTable, its JSON columns decoded. ``cursor`` is its place in the order."""

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
    cursor: str


class ChangePage(msgspec.Struct, frozen=True, rename="camel"):
    """Changes, newest first.

    ``before`` leads to the next older page, None at the end. ``after`` asks for what is newer than this page, None if
    the page is empty and no cursor was given.
    """

    changes: list[Change]
    before: str | None
    after: str | None


class ChangePosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a change stands in the order."""

    epoch: int
    time_us: int
    offset: int
    seq: int
    broker_name: str
    table_name: str

    def cursor(self) -> str:
        """As text for a URL."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def parse(cls, cursor: str, name: str) -> ChangePosition:
        """Inverse of `cursor`.

        Raises:
            BadRequestError: It is none.
        """
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)), type=cls)
        except (ValueError, binascii.Error) as error:
            raise BadRequestError(f"{name} is no cursor of this list: {cursor!r}", field=name, value=cursor) from error

    def compare(self, sign: str) -> str:
        """SQL: a row stands before (<) or after (>) this position."""
        time = query.time(from_us(self.time_us))
        values = (
            *(str(self.epoch), time, str(self.offset), str(self.seq)),
            *(query.text(self.broker_name), query.text(self.table_name)),
        )
        condition = "false"
        for column, value in reversed(tuple(zip(_POSITION, values, strict=True))):
            condition = f"({column} {sign} {value} OR ({column} = {value} AND {condition}))"
        return f'"epoch" {sign}= {self.epoch} AND {condition}'


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Which page. ``newest_epoch`` keeps out what no epoch has made visible yet, ``oldest_epoch`` what is before it."""

    newest_epoch: int
    oldest_epoch: int = 0
    limit: int
    before: ChangePosition | None = None
    after: ChangePosition | None = None


class ChangeQuery(Page, frozen=True, kw_only=True):
    """Which changes of a topic."""

    topic: str
    since: datetime | None = None
    until: datetime | None = None


class Context(msgspec.Struct, frozen=True):
    """What a topic's changes are found by: who holds it or ever did, and its order configuration's epochs.

    The table only grows, so what was found up to an epoch stays true.
    """

    holders: frozenset[str]
    kv_epochs: frozenset[int]
    newest_epoch: int

    def size_bytes(self) -> int:
        """What it holds in memory."""
        return sum(getsizeof(held) + sum(map(getsizeof, held)) for held in (self.holders, self.kv_epochs))


NO_CONTEXT: Final = Context(frozenset(), frozenset(), 0)


def read_context(table: DeltaTable, topic: str, newest_epoch: int, known: Context = NO_CONTEXT) -> Context:
    """The context up to an epoch, going on from what is known."""
    if known.newest_epoch >= newest_epoch:
        return known
    queues, kv = query.text(TOPIC_QUEUE_TABLE.name), query.text(KV_CONFIG_TABLE.name)
    rows = query.select(
        table,
        f'SELECT DISTINCT CASE WHEN "tableName" = {kv} THEN NULL ELSE "brokerName" END AS "holder", '  # noqa: S608
        f'CASE WHEN "tableName" = {kv} THEN "epoch" END AS "kv" '
        f'FROM t WHERE "epoch" > {known.newest_epoch} AND "epoch" <= {newest_epoch} '
        f'AND ("tableName" = {kv} OR ("tableName" = {queues} AND "topic" = {query.text(topic)}))',
    )
    holders = {name for name in rows["holder"].to_pylist() if name is not None}
    epochs = [epoch for epoch in rows["kv"].to_pylist() if epoch is not None]
    if epochs:  # only now the column of keys, which is wide
        rows = query.select(
            table,
            f'SELECT DISTINCT "epoch" FROM t WHERE "epoch" IN ({", ".join(map(str, epochs))}) '  # noqa: S608
            f'AND "tableName" = {kv} AND "key" = {order_conf_key(topic)}',
        )
        epochs = rows["epoch"].to_pylist()
    return Context(known.holders | holders, known.kv_epochs | set(epochs), newest_epoch)


def read_changes(table: DeltaTable, wanted: ChangeQuery, context: Context) -> ChangePage:
    """One page of what concerned a topic."""
    return read_page(table, wanted, _condition(wanted, context))


def read_page(table: DeltaTable, wanted: Page, condition: str) -> ChangePage:
    """One page of the rows that meet a condition.

    First which epochs it is in, from narrow columns and from the newest epochs backwards; then, of these epochs alone,
    how much JSON the rows hold; then as many rows as `MAX_PAGE_BYTES` has room for.
    """
    where = " AND ".join([f"({condition})", *_beside_cursors(wanted)])
    forwards = wanted.after is not None and wanted.before is None
    order = ", ".join(f"{column} {'ASC' if forwards else 'DESC'}" for column in _POSITION)
    found: list[int] = []
    for first, last in _windows(wanted, forwards):
        found += query.select(
            table,
            f'SELECT "epoch" FROM t WHERE "epoch" BETWEEN {first} AND {last} AND {where} '  # noqa: S608
            f"ORDER BY {order} LIMIT {wanted.limit + 1 - len(found)}",
        )["epoch"].to_pylist()
        if len(found) > wanted.limit:
            break
    if not found:
        return ChangePage([], None, None if wanted.after is None else wanted.after.cursor())
    rest = f'FROM t WHERE "epoch" BETWEEN {min(found)} AND {max(found)} AND {where} ORDER BY {order} LIMIT'
    sizes = query.select(table, f'SELECT {_JSON_BYTES} AS "size" {rest} {wanted.limit}', batch_rows=_WIDE_ROWS)
    count = _how_many_fit(sizes["size"].to_pylist())
    columns = query.names(ROUTE_CHANGE_TABLE.column_names)
    rows = query.select(table, f"SELECT {columns} {rest} {count}", batch_rows=_WIDE_ROWS)
    changes = [_change(row) for row in rows.to_pylist()]
    if forwards:
        changes.reverse()
    older = forwards or len(found) > len(changes)
    return ChangePage(changes, changes[-1].cursor if older else None, changes[0].cursor)


def _how_many_fit(sizes: list[int]) -> int:
    """How many of the first rows, of so many bytes each, a page has room for; at least one."""
    fits = sum(total <= MAX_PAGE_BYTES for total in accumulate(sizes))
    return max(1, fits)


def _windows(wanted: Page, forwards: bool) -> Iterator[tuple[int, int]]:
    """Ranges of epochs in the order of the page, each 16 times as long as the one before."""
    low = max(wanted.oldest_epoch, wanted.after.epoch if wanted.after is not None else 0)
    high = min(wanted.newest_epoch, wanted.before.epoch) if wanted.before is not None else wanted.newest_epoch
    length = _FIRST_WINDOW
    while low <= high:
        if forwards:
            yield low, min(high, low + length - 1)
            low += length
        else:
            yield max(low, high - length + 1), high
            high -= length
        length *= 16


def order_conf_key(topic: str) -> str:
    """The key column of a topic's row in the ORDER_TOPIC_CONFIG namespace, as a literal."""
    return query.text(msgspec.json.encode({"namespace": ORDER_TOPIC_CONFIG, "key": topic}).decode())


def _condition(wanted: ChangeQuery, context: Context) -> str:
    concerns = [f'"topic" = {query.text(wanted.topic)}']
    if context.kv_epochs:
        concerns.append(
            f'("epoch" IN ({", ".join(map(str, sorted(context.kv_epochs)))}) '
            f'AND "tableName" = {query.text(KV_CONFIG_TABLE.name)} AND "key" = {order_conf_key(wanted.topic)})'
        )
    if context.holders:
        tables = query.texts((BROKER_ADDR_TABLE.name, FILTER_SERVER_TABLE.name))
        concerns.append(
            f'(("tableName" IN {tables} OR "outcome" = \'rejected\') '
            f'AND "brokerName" IN {query.texts(sorted(context.holders))})'
        )
        concerns.append(f'"command" IN {query.texts(_PAUSES)}')  # why its brokers did not expire, or did all at once
    terms = [f"({' OR '.join(concerns)})"]
    if wanted.since is not None:
        terms.append(f'"eventTime" >= {query.time(wanted.since)}')
    if wanted.until is not None:
        terms.append(f'"eventTime" < {query.time(wanted.until)}')
    return " AND ".join(terms)


def _beside_cursors(wanted: Page) -> list[str]:
    before = [] if wanted.before is None else [f"({wanted.before.compare('<')})"]
    return before if wanted.after is None else [*before, f"({wanted.after.compare('>')})"]


def _change(row: dict[str, Any]) -> Change:
    time: datetime = row["eventTime"].astimezone(UTC)
    position = ChangePosition(
        row["epoch"],
        to_us(time),
        row["offset"],
        row["seq"],
        row["brokerName"] or "",
        row["tableName"] or "",
    )
    return Change(
        epoch=row["epoch"],
        offset=row["offset"],
        seq=row["seq"],
        event_time=time,
        command=row["command"],
        outcome=row["outcome"],
        reason=row["reason"],
        actor=_json(row["actor"]),
        table_name=row["tableName"],
        broker_name=row["brokerName"],
        topic=row["topic"],
        key=_json(row["key"]),
        before=_json(row["before"]),
        after=_json(row["after"]),
        cursor=position.cursor(),
    )


def _json(value: str | None) -> dict[str, Any] | None:
    """A JSON column."""
    return None if value is None else msgspec.json.decode(value)
