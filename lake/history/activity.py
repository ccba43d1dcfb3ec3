# SPDX-License-Identifier: Apache-2.0
"""Number of changes, and of topics, brokers and queues, per interval of time or epochs, for charts and the time bar.

A query scans the narrow columns of its window in routeChangeTable. Totals scan the whole table up to the end of the
window. So answers are cached for a while (`lake.history.kept`).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import duckdb
import msgspec
from msgspec import Meta

from lake.delta import query
from lake.history.as_of import NOW
from lake.history.history import History
from lake.history.report import reading_views, window
from lake.history.report_duckdb import MEMORY_LIMIT
from nameserver.state_machine.step import BROKER_EXPIRED
from schemas.errors import BadRequestError
from schemas.route_commit import NO_COMMIT, UNIX_EPOCH, RouteCommit, to_ms
from schemas.tables import BROKER_LIVE_TABLE, ROUTE_CHANGE_TABLE, TOPIC_QUEUE_TABLE

MAX_POINTS: Final = 500
ANSWER_BYTES: Final = 64 * 1024
"""Assumed size of a cached answer, in bytes."""
_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
WIDTHS_MS: Final = (
    *(1, 10, 100, _SECOND_MS, 2 * _SECOND_MS, 5 * _SECOND_MS, 10 * _SECOND_MS, 30 * _SECOND_MS),
    *(_MINUTE_MS, 2 * _MINUTE_MS, 5 * _MINUTE_MS, 10 * _MINUTE_MS, 30 * _MINUTE_MS),
    *(_HOUR_MS, 3 * _HOUR_MS, 6 * _HOUR_MS, 12 * _HOUR_MS, _DAY_MS, 7 * _DAY_MS, 28 * _DAY_MS),
)
"""Possible widths of a point in milliseconds, aligned to UTC."""
_BEFORE: Final = -1
"""Number of the point for all changes before the window."""


class ActivityAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the query.

    Attributes:
        from_: Start, as for `History.resolve`. None: the first epoch.
        to: End, as for `History.resolve`. None: now.
        by: Points of equal duration, or of an equal number of epochs.
        points: Maximum number of points.
        totals: Include the numbers of topics, brokers and queues.
    """

    from_: str | None = None
    to: str | None = None
    by: Literal["time", "epoch"] = "time"
    points: int = 120
    totals: bool = False


class ActivityPoint(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A point with changes. `topics`, `brokers` and `queues` are set with `totals`."""

    start: Annotated[int, Meta(description="start of the point: millisecond since 1970 UTC, or epoch")]
    first_epoch: Annotated[int, Meta(description="first epoch with a change in the point. 0: no change")]
    last_epoch: int
    changes: Annotated[dict[str, int], Meta(description="number of changed rows, by command")]
    commands: Annotated[dict[str, int], Meta(description="number of admin commands that were not refused, by command")]
    refusals: Annotated[int, Meta(description="number of refused commands and registrations")]
    expiries: Annotated[int, Meta(description="number of broker addresses that expired")]
    topics: Annotated[int | None, Meta(description="number of topics at the end of the point")] = None
    brokers: Annotated[int | None, Meta(description="number of live broker addresses at the end of the point")] = None
    queues: Annotated[
        int | None, Meta(description="number of write queues at the end of the point, with any permission")
    ] = None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the query.

    Attributes:
        commit: The newest epoch at the time of the query.
        first: The first millisecond or epoch of the window.
        last: The last millisecond or epoch of the window.
        width: Width of a point, in milliseconds or epochs.
        points: Points in order. Points without changes are left out, except the first, which has the totals before it.
    """

    commit: RouteCommit
    first: int
    last: int
    width: int
    points: list[ActivityPoint]


def activity(history: History, asked: ActivityAsked, *, is_fresh: bool = False) -> Activity:
    """Count changes per point.

    Args:
        history: History of the lake.
        asked: Parameters of the query.
        is_fresh: Count again if there is a newer epoch than that of the cached answer.

    Raises:
        BadRequestError: A time or the number of points is invalid, ``from`` is after ``to``, or the query exceeds its
            memory limit.
        RoutelakeError: As `History.resolve`.
    """
    if not 1 <= asked.points <= MAX_POINTS:
        what = f"points must be from 1 to {MAX_POINTS}, not {asked.points}"
        raise BadRequestError(what, field="points", value=asked.points)
    if history.is_empty():
        return Activity(commit=NO_COMMIT, first=0, last=0, width=1, points=[])
    newest = history.resolve(NOW).commit
    return history.answers.ask(
        asked, newest, lambda: _count(history, asked, newest), lambda _: ANSWER_BYTES, is_fresh=is_fresh
    )


def _count(history: History, asked: ActivityAsked, newest: RouteCommit) -> Activity:
    what = f"the activity needs more memory than a gateway gives to it ({MEMORY_LIMIT}): leave out totals"
    too_large = BadRequestError(what, field="totals", value=asked.totals)
    with reading_views(history, newest.epoch, too_large) as views:
        axis = (_time_axis if asked.by == "time" else _epoch_axis)(history, asked, views)
        bucket = f"{axis.base} + greatest(0, {axis.place} - {axis.base}) // {axis.width} * {axis.width}"
        points: dict[int, ActivityPoint] = {}
        _take_changes(views, bucket, axis.within, points)
        if asked.totals:
            bucket = f"CASE WHEN {axis.before} THEN {_BEFORE} ELSE {bucket} END"
            _take_totals(views, bucket, f"{axis.before} OR {axis.within}", points)
    opening = points.pop(_BEFORE, None)
    if opening is not None:
        points.setdefault(axis.base, msgspec.structs.replace(opening, start=axis.base))
    ordered = [points[start] for start in sorted(points)]
    return Activity(commit=newest, first=axis.first, last=axis.last, width=axis.width, points=ordered)


class _Axis(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the points of a window, in milliseconds or epochs.

    Attributes:
        first: First millisecond or epoch of the window.
        last: Last millisecond or epoch of the window.
        base: Start of the first point.
        width: Width of a point.
        place: SQL expression for the position of a change.
        within: SQL condition that a change is in the window.
        before: SQL condition that a change is before the window.
    """

    first: int
    last: int
    base: int
    width: int
    place: str
    within: str
    before: str


def _time_axis(history: History, asked: ActivityAsked, views: duckdb.DuckDBPyConnection) -> _Axis:
    since, until = window(history, asked.from_, asked.to)
    first = to_ms(since)
    last = to_ms(until)
    if since == UNIX_EPOCH:
        oldest = views.sql(
            f"SELECT epoch_ms(min(eventTime)) FROM {ROUTE_CHANGE_TABLE.name} "  # noqa: S608 (our own text)
            f"WHERE epoch = (SELECT min(epoch) FROM {ROUTE_CHANGE_TABLE.name})"
        ).fetchall()
        first = last if oldest[0][0] is None else min(oldest[0][0], last)
    width = next((each for each in WIDTHS_MS if (last - first) // each + 2 <= asked.points), WIDTHS_MS[-1])
    low, high = query.time(since), query.time(until)
    return _Axis(
        first=first,
        last=last,
        base=first - first % width,
        width=width,
        place="epoch_ms(eventTime)",
        within=f"eventTime > {low} AND eventTime <= {high}",
        before=f"eventTime <= {low}",
    )


def _epoch_axis(history: History, asked: ActivityAsked, _: duckdb.DuckDBPyConnection) -> _Axis:
    start, end = history.window(asked.from_, asked.to)
    low = 0 if start is None else start.last_epoch
    first, last = max(low, 1), end.last_epoch
    return _Axis(
        first=first,
        last=last,
        base=first,
        width=-(-(last - first + 1) // asked.points),
        place="epoch",
        within=f"epoch > {low} AND epoch <= {last}",
        before=f"epoch <= {low}",
    )


def _point(points: dict[int, ActivityPoint], start: int) -> ActivityPoint:
    found = points.get(start)
    if found is None:
        found = points[start] = ActivityPoint(
            start=start, first_epoch=0, last_epoch=0, changes={}, commands={}, refusals=0, expiries=0
        )
    return found


def _take_changes(views: duckdb.DuckDBPyConnection, bucket: str, within: str, points: dict[int, ActivityPoint]) -> None:
    rows = views.sql(
        f"""
SELECT {bucket} AS start, min(epoch), max(epoch), command,
       outcome = 'rejected' OR command = 'ACCESS_REFUSED' AS refused, tableName IS NULL AS isCommand,
       command = '{BROKER_EXPIRED}' AND tableName = '{BROKER_LIVE_TABLE.name}' AS expired, count(*) AS number
  FROM {ROUTE_CHANGE_TABLE.name} WHERE {within} GROUP BY ALL ORDER BY start, command"""  # noqa: S608 (our own text)
    ).fetchall()
    for start, first, last, command, refused, is_command, expired, number in rows:
        point = _point(points, start)
        point.first_epoch = min(point.first_epoch or first, first)
        point.last_epoch = max(point.last_epoch, last)
        if refused:
            point.refusals += number
        else:
            counts = point.commands if is_command else point.changes
            counts[command] = counts.get(command, 0) + number
        if expired:
            point.expiries += number


_APPEARED: Final = "(before IS NULL) <> (after IS NULL)"
_STEP: Final = "CASE WHEN before IS NULL THEN 1 ELSE -1 END"


def _totals(bucket: str, within: str) -> dict[str, str]:
    """SQL queries for the change of each total in each point.

    Most topics are never deleted, and they are counted by their first row. The other topics are counted broker by
    broker. Queues have few distinct states, so the JSON of each state is parsed once.
    """
    queues = "coalesce(CAST({0}->>'writeQueueNums' AS BIGINT), 0)"
    return {
        "topics": f"""
WITH steps AS (
SELECT {bucket} AS start, hash(topic) AS topic, CAST({_STEP} AS TINYINT) AS step
  FROM {ROUTE_CHANGE_TABLE.name} WHERE tableName = '{TOPIC_QUEUE_TABLE.name}' AND {_APPEARED} AND ({within})
), topics AS (SELECT topic, min(start) AS start, min(step) AS least FROM steps GROUP BY topic
), sums AS (
SELECT start, topic, CAST(sum(step) AS INT) AS step
  FROM steps WHERE topic IN (SELECT topic FROM topics WHERE least < 0) GROUP BY ALL
), runs AS (SELECT start, step, sum(step) OVER (PARTITION BY topic ORDER BY start) AS brokers FROM sums)
SELECT start, CAST(sum(step) AS BIGINT) FROM (
SELECT start, count(*) AS step FROM topics WHERE least > 0 GROUP BY start
UNION ALL
SELECT start, sum(CAST(brokers > 0 AS INT) - CAST(brokers - step > 0 AS INT)) AS step FROM runs GROUP BY start
) GROUP BY start""",  # noqa: S608 (our own text)
        "brokers": f"""
SELECT {bucket} AS start, CAST(sum({_STEP}) AS BIGINT)
  FROM {ROUTE_CHANGE_TABLE.name} WHERE tableName = '{BROKER_LIVE_TABLE.name}' AND {_APPEARED} AND ({within})
 GROUP BY ALL""",  # noqa: S608 (our own text)
        "queues": f"""
SELECT start, CAST(sum(number * ({queues.format("after")} - {queues.format("before")})) AS BIGINT) FROM (
SELECT {bucket} AS start, before, after, count(*) AS number
  FROM {ROUTE_CHANGE_TABLE.name} WHERE tableName = '{TOPIC_QUEUE_TABLE.name}' AND ({within}) GROUP BY ALL
) GROUP BY start""",  # noqa: S608 (our own text)
    }


def _take_totals(views: duckdb.DuckDBPyConnection, bucket: str, within: str, points: dict[int, ActivityPoint]) -> None:
    """Set the totals of every point. They include changes before the window."""
    steps: dict[str, dict[int, int]] = {
        name: dict(views.sql(sql).fetchall()) for name, sql in _totals(bucket, within).items()
    }
    totals = dict.fromkeys(steps, 0)
    for start in sorted({_BEFORE, *points, *(start for moved in steps.values() for start in moved)}):
        for name, moved in steps.items():
            totals[name] += moved.get(start, 0)
        points[start] = msgspec.structs.replace(_point(points, start), **totals)
