# SPDX-License-Identifier: Apache-2.0
"""Timelines: the successive states of a topic's route or of a broker group.

From the first change on, each point in time is in exactly one interval. The interval has the state that ``as_of`` shows
at that time. Adjacent intervals differ. A deleted topic or removed broker has an interval with an empty state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from deltalake import DeltaTable

from lake.delta import query
from lake.history.as_of import AsOf, up_to
from lake.history.cursors import Number, TimeUs, cursor_of, how_many_fit, place_of
from lake.history.history import History, check_limit
from lake.history.provenance import Cause, RowStep, newest_steps, of_tables
from schemas.broker import PERM_READ, PERM_WRITE
from schemas.route_commit import from_us, to_us
from schemas.tables import BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, TOPIC_QUEUE_TABLE

Rows = dict[tuple[str, str], dict[str, dict[str, Any]]]
"""(table, brokerName) -> key -> value columns."""
Part = dict[str, Any] | None
"""Displayed state of one broker group."""


class Interval(msgspec.Struct, frozen=True):
    """A state with its start and end. ``to`` and the cause of the end are None for the present state."""

    from_: datetime
    to: datetime | None
    from_epoch: int
    to_epoch: int | None
    begun_by: Cause
    ended_by: Cause | None
    state: dict[str, Any]


class Timeline(msgspec.Struct, frozen=True):
    """A page of intervals, newest first."""

    intervals: list[Interval]
    next_cursor: str | None


class Window(msgspec.Struct, frozen=True):
    """Window of time. It selects the intervals that overlap it.

    Attributes:
        from_: Start, as for `History.resolve`. None: the first epoch.
        to: End, as for `History.resolve`. None: now. An interval that ends later has no end.
    """

    from_: str | None = None
    to: str | None = None


MAX_STEPS: Final = 20_000
"""Maximum number of changed rows to read for a page, about 30 MB. If it is reached, the page is short with a cursor."""
MAX_SHOWN: Final = 20_000
"""Maximum number of broker groups and live addresses on a page, about 4 MB. A topic may be on a thousand groups."""
_ALWAYS: Final = Window()


def topic_timeline(
    history: History,
    topic: str,
    window: Window = _ALWAYS,
    *,
    limit: int = 100,
    cursor: str | None = None,
    max_steps: int = MAX_STEPS,
) -> Timeline:
    """The states of a topic's route. Empty for a topic that never existed.

    Raises:
        BadRequestError: The limit or the cursor is invalid, or ``from`` is after ``to``.
        RoutelakeError: As `History.resolve`.
    """
    of_topic = f'{of_tables([TOPIC_QUEUE_TABLE.name])} AND "topic" = {query.text(topic)}'

    def where(table: DeltaTable) -> str:
        holders = query.select(table, f'SELECT DISTINCT "brokerName" FROM t WHERE {of_topic}')  # noqa: S608
        names = sorted(holders["brokerName"].to_pylist())
        of_groups = f'{of_tables([BROKER_ADDR_TABLE.name])} AND "brokerName" IN {query.texts(names)}'
        return f"{of_topic} OR {of_groups}" if names else of_topic

    asked = _Asked("topic", topic, window, limit, max_steps)
    return _page(history, asked, cursor, where, _topic_part, _topic_state)


def broker_timeline(
    history: History,
    broker_name: str,
    window: Window = _ALWAYS,
    *,
    limit: int = 100,
    cursor: str | None = None,
    max_steps: int = MAX_STEPS,
) -> Timeline:
    """The states of a broker group, that is, its addresses and the live ones. As `topic_timeline`."""
    tables = of_tables([BROKER_ADDR_TABLE.name, BROKER_LIVE_TABLE.name])
    where = f'{tables} AND "brokerName" = {query.text(broker_name)}'
    asked = _Asked("broker", broker_name, window, limit, max_steps)
    return _page(history, asked, cursor, lambda _: where, _broker_part, _broker_state)


class _Begin(NamedTuple):
    """Start of a state, with the parts of the state by broker group.

    Attributes:
        first: Index of the first step that led to it.
        last: Last step that led to it.
        cause: Last step that changed the state.
        parts: The state.
    """

    first: int
    last: RowStep
    cause: RowStep
    parts: dict[str, dict[str, Any]]


class _End(msgspec.Struct, frozen=True, array_like=True):
    """End of the newest interval of a page. Cursors contain it, so its content is not trusted."""

    time_us: TimeUs
    epoch: Number
    command: str
    actor: dict[str, str | None] | None
    offset: Number

    @classmethod
    def of(cls, begin: _Begin) -> _End:
        """End of an interval at the start of the next one."""
        epoch, cause = begin.cause.epoch, begin.cause.cause
        return cls(to_us(begin.last.shows_from), epoch, cause.command, cause.actor, cause.offset)

    @property
    def time(self) -> datetime:
        """Time of the end."""
        return from_us(self.time_us)

    @property
    def cause(self) -> Cause:
        """Cause of the end."""
        return Cause(self.command, self.actor, self.offset)


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Start of an older page: changes up to a time of an epoch, and the end of the last interval of these changes."""

    epoch: Number
    time_us: TimeUs
    end: _End | None


class _Asked(NamedTuple):
    """Parameters of the query."""

    kind: str
    name: str
    window: Window
    limit: int
    max_steps: int

    def query(self) -> tuple[object, ...]:
        """Identity of the query, for cursors."""
        return self.kind, self.name, self.window


_PartOf = Callable[[Rows, str], Part]
_Shown = Callable[[dict[str, dict[str, Any]]], dict[str, Any]]
_SHOWS_FROM: Final = attrgetter("shows_from")


def _page(
    history: History,
    asked: _Asked,
    cursor: str | None,
    where: Callable[[DeltaTable], str],
    part_of: _PartOf,
    shown: _Shown,
) -> Timeline:
    """A page of the states from the changes that meet the SQL condition of ``where``."""
    if history.is_empty():
        return Timeline([], None)
    check_limit(asked.limit)
    from_: AsOf | None = None
    terms = []
    if asked.window != _ALWAYS:
        from_, to = history.window(asked.window.from_, asked.window.to)
        terms.append(to.changes)
    place = None if cursor is None else place_of(history, cursor, asked.query(), _Cursor)
    if place is not None:
        terms.append(up_to(place.epoch, from_us(place.time_us)))
    with history.reading_changes() as table:
        condition = " AND ".join([f"({where(table)})", *terms])
        ground, steps = newest_steps(history, table, condition, asked.max_steps)
    kept: deque[_Begin] = deque()
    size, is_older = 0, bool(ground)
    for begin in _begins(ground, steps, part_of):
        if from_ is not None and from_.shows(begin.last.epoch, begin.last.event_time):
            kept.clear()
            size, is_older = 0, False
        kept.append(begin)
        size += len(begin.parts)
        while len(kept) > 1 and (len(kept) > asked.limit or size > MAX_SHOWN):
            size -= len(kept.popleft().parts)
            is_older = True
    last = None if place is None else place.end
    ends = [*map(_End.of, list(kept)[1:]), last]
    intervals = [_interval(begin, end, shown(begin.parts)) for begin, end in zip(kept, ends, strict=False)]
    fit = max(1, how_many_fit((_rows_shown(interval.state) for interval in reversed(intervals)), MAX_SHOWN))
    if not is_older and fit >= len(intervals):
        return Timeline(intervals[::-1], None)
    wanted = list(kept)[-fit:]
    earlier = [*ground[-1:], *steps[: wanted[0].first if wanted else 0]][-1]
    end = _End.of(wanted[0]) if wanted else last
    return Timeline(
        intervals[-fit:][::-1],
        cursor_of(history, asked.query(), _Cursor(earlier.epoch, to_us(earlier.event_time), end)),
    )


def _interval(begin: _Begin, end: _End | None, state: dict[str, Any]) -> Interval:
    return Interval(
        from_=begin.last.shows_from,
        to=None if end is None else end.time,
        from_epoch=begin.cause.epoch,
        to_epoch=None if end is None else end.epoch,
        begun_by=begin.cause.cause,
        ended_by=None if end is None else end.cause,
        state=state,
    )


def _begins(ground: list[RowStep], steps: list[RowStep], part_of: _PartOf) -> Iterator[_Begin]:
    """Yield each change of the displayed state by ``steps``. Steps at the same time count as one change.

    ``ground`` leads to the state before the first step.
    """
    rows: Rows = {}
    parts: dict[str, dict[str, Any]] = {}

    def moves(step: RowStep) -> bool:
        of_broker = rows.setdefault((step.table_name, step.broker_name), {})
        if step.after is None:
            of_broker.pop(step.key, None)
        else:
            of_broker[step.key] = step.after
        before, after = parts.pop(step.broker_name, None), part_of(rows, step.broker_name)
        if after is not None:
            parts[step.broker_name] = after
        return before != after

    for step in ground:
        moves(step)
    first = 0
    for _, at_once in groupby(steps, _SHOWS_FROM):
        before, together = dict(parts), list(at_once)
        moving = [step for step in together if moves(step)]
        if parts != before:
            yield _Begin(first, together[-1], moving[-1], dict(parts))
        first += len(together)


def _topic_part(rows: Rows, broker_name: str) -> Part:
    """State of a topic on one broker group, or None if the topic is not there."""
    queues = rows.get((TOPIC_QUEUE_TABLE.name, broker_name))
    if not queues:
        return None
    addresses = _one(rows, BROKER_ADDR_TABLE.name, broker_name)
    shown = {"brokerName": broker_name, **next(iter(queues.values()))}
    return {**shown, "brokerAddrs": None if addresses is None else addresses["brokerAddrs"]}


def _topic_state(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """State of a route."""
    found = [part for _, part in sorted(parts.items())]
    write = sum(part["writeQueueNums"] for part in found if part["perm"] & PERM_WRITE)
    read = sum(part["readQueueNums"] for part in found if part["perm"] & PERM_READ)
    return {
        "writable": write > 0,
        "readable": read > 0,
        "writeQueueNums": write,
        "readQueueNums": read,
        "brokers": found,
    }


def _broker_part(rows: Rows, broker_name: str) -> Part:
    """State of a broker group, or None if it does not exist."""
    addresses = _one(rows, BROKER_ADDR_TABLE.name, broker_name)
    live = rows.get((BROKER_LIVE_TABLE.name, broker_name), {})
    if addresses is None and not live:
        return None
    keys = [msgspec.json.decode(key) for key in sorted(live)]
    return {
        "cluster": None if addresses is None else addresses["cluster"],
        "brokerAddrs": None if addresses is None else addresses["brokerAddrs"],
        "live": [{"clusterName": key["clusterName"], "brokerAddr": key["brokerAddr"]} for key in keys],
    }


def _broker_state(parts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """State of a broker group for display, also if it does not exist."""
    found = next(iter(parts.values()), None)
    return {"alive": bool(found and found["live"]), **(found or {"cluster": None, "brokerAddrs": None, "live": []})}


def _one(rows: Rows, table_name: str, broker_name: str) -> dict[str, Any] | None:
    return next(iter(rows.get((table_name, broker_name), {}).values()), None)


def _rows_shown(state: dict[str, Any]) -> int:
    """Size of a state: one, plus its broker groups or live addresses."""
    return 1 + len(state.get("brokers", ())) + len(state.get("live", ()))
