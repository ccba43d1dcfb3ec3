# SPDX-License-Identifier: Apache-2.0
"""The states of a topic's route, or of a broker group, one after the other.

From the first change on, each moment is in exactly one interval, whose state is what ``as_of`` that moment shows;
neighbours differ. A topic or broker that is gone has an interval, too: its state says that there is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from api.view.causes import Cause, RowStep, of_tables, row_steps
from api.view.cursors import cursor_of, place_of
from api.view.history import History, check_limit
from lake import query
from schemas.broker import PERM_READ, PERM_WRITE
from schemas.tables import BROKER_ADDR_TABLE, BROKER_LIVE_TABLE, TOPIC_QUEUE_TABLE

Rows = dict[tuple[str, str], dict[str, dict[str, Any]]]
"""(table, brokerName) -> key -> value columns."""
Part = dict[str, Any] | None
"""What is shown of one broker group."""


class Interval(msgspec.Struct, frozen=True):
    """A state, from when on, and until when; ``to`` and what ended it are None where it is still so."""

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


def topic_timeline(history: History, topic: str, *, limit: int = 100, cursor: str | None = None) -> Timeline:
    """The states of a topic's route; empty for a topic that never was.

    Raises:
        BadRequestError: The limit or the cursor is none.
        UnavailableError: There is no lake, or it cannot be read now.
    """
    if history.is_empty():
        return Timeline([], None)
    with history.reading_changes() as table:
        of_topic = f'{of_tables([TOPIC_QUEUE_TABLE.name])} AND "topic" = {query.text(topic)}'
        steps = row_steps(history, table, of_topic)
        holders = sorted({step.broker_name for step in steps})
        if holders:
            of_groups = f'{of_tables([BROKER_ADDR_TABLE.name])} AND "brokerName" IN {query.texts(holders)}'
            steps = row_steps(history, table, f"({of_topic}) OR ({of_groups})")
    return _page(steps, _of_topic, _route, ("topic", topic), limit, cursor)


def broker_timeline(history: History, broker_name: str, *, limit: int = 100, cursor: str | None = None) -> Timeline:
    """The states of a broker group: its addresses, and which are alive. As `topic_timeline`."""
    if history.is_empty():
        return Timeline([], None)
    with history.reading_changes() as table:
        tables = of_tables([BROKER_ADDR_TABLE.name, BROKER_LIVE_TABLE.name])
        steps = row_steps(history, table, f'{tables} AND "brokerName" = {query.text(broker_name)}')
    return _page(steps, _of_broker, _broker, ("broker", broker_name), limit, cursor)


# --- what is shown ---


def _of_topic(rows: Rows, broker_name: str) -> Part:
    queues = rows.get((TOPIC_QUEUE_TABLE.name, broker_name))
    if not queues:
        return None
    addresses = _one(rows, BROKER_ADDR_TABLE.name, broker_name)
    shown = {"brokerName": broker_name, **next(iter(queues.values()))}
    return {**shown, "brokerAddrs": None if addresses is None else addresses["brokerAddrs"]}


def _route(parts: dict[str, Part]) -> dict[str, Any]:
    found = [part for _, part in sorted(parts.items()) if part is not None]
    write = sum(part["writeQueueNums"] for part in found if part["perm"] & PERM_WRITE)
    read = sum(part["readQueueNums"] for part in found if part["perm"] & PERM_READ)
    return {
        "writable": write > 0,
        "readable": read > 0,
        "writeQueueNums": write,
        "readQueueNums": read,
        "brokers": found,
    }


def _of_broker(rows: Rows, broker_name: str) -> Part:
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


def _broker(parts: dict[str, Part]) -> dict[str, Any]:
    found = next(iter(parts.values()), None)
    return {"alive": bool(found and found["live"]), **(found or {"cluster": None, "brokerAddrs": None, "live": []})}


def _one(rows: Rows, table_name: str, broker_name: str) -> dict[str, Any] | None:
    return next(iter(rows.get((table_name, broker_name), {}).values()), None)


# --- intervals ---


class _Begin(NamedTuple):
    """Where a state begins; ``steps`` of the whole list are done then."""

    time: datetime
    epoch: int
    cause: Cause
    steps: int


_PartOf = Callable[[Rows, str], Part]
_SHOWS_FROM: Final = attrgetter("shows_from")


def _page(
    steps: list[RowStep],
    part_of: _PartOf,
    shown: Callable[[dict[str, Part]], dict[str, Any]],
    asked: tuple[str, str],
    limit: int,
    cursor: str | None,
) -> Timeline:
    check_limit(limit)
    before = None if cursor is None else place_of(cursor, asked, int)
    begins = list(_begins(steps, part_of))
    last = len(begins) if before is None else min(before, len(begins))
    first = max(0, last - limit)
    wanted = begins[first:last]
    states = _states(steps, part_of, shown, [begin.steps for begin in wanted])
    ends: list[_Begin | None] = [*begins, None][first + 1 : last + 1]
    intervals = [_interval(*each) for each in zip(wanted, ends, states, strict=True)]
    return Timeline(intervals[::-1], cursor_of(asked, first) if first else None)


def _interval(begin: _Begin, end: _Begin | None, state: dict[str, Any]) -> Interval:
    return Interval(
        from_=begin.time,
        to=None if end is None else end.time,
        from_epoch=begin.epoch,
        to_epoch=None if end is None else end.epoch,
        begun_by=begin.cause,
        ended_by=None if end is None else end.cause,
        state=state,
    )


def _begins(steps: list[RowStep], part_of: _PartOf) -> Iterator[_Begin]:
    """Where what is shown becomes another; what happens at one moment counts as one."""
    rows: Rows = {}
    done = 0
    for time, at_once in groupby(steps, _SHOWS_FROM):
        was: dict[str, Part] = {}
        causes: list[RowStep] = []
        for step in at_once:
            done += 1
            before = part_of(rows, step.broker_name)
            was.setdefault(step.broker_name, before)
            _apply(rows, step)
            if part_of(rows, step.broker_name) != before:
                causes.append(step)
        if any(part_of(rows, name) != part for name, part in was.items()):
            yield _Begin(time, causes[-1].epoch, causes[-1].cause, done)


def _states(
    steps: list[RowStep], part_of: _PartOf, shown: Callable[[dict[str, Part]], dict[str, Any]], places: list[int]
) -> Iterator[dict[str, Any]]:
    """What is shown after so many steps, for each number of them."""
    rows: Rows = {}
    parts: dict[str, Part] = {}
    done = 0
    for place in places:
        for step in steps[done:place]:
            _apply(rows, step)
            parts[step.broker_name] = part_of(rows, step.broker_name)
        done = place
        yield shown(parts)


def _apply(rows: Rows, step: RowStep) -> None:
    of_broker = rows.setdefault((step.table_name, step.broker_name), {})
    if step.after is None:
        of_broker.pop(step.key, None)
    else:
        of_broker[step.key] = step.after
