# SPDX-License-Identifier: Apache-2.0
"""Execution of the reports of `lake.history.reports` in a gateway, page by page, all pages as of one epoch.

A report covers a window of *event time*, so an expiry counts from its deadline. ``as_of`` and timelines show the expiry
from its epoch on (`lake.history.provenance`), which may be some seconds later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final

import duckdb
import msgspec

from lake.history.as_of import NOW, or_else, parse_as_of
from lake.history.cursors import TimeUs, cursor_of, place_of
from lake.history.history import History
from lake.history.report_duckdb import MEMORY_LIMIT, bounded_views
from lake.history.reports import BY_NAME, TIMES, query_of
from runtime.version import PROGRAM
from schemas.errors import BadRequestError
from schemas.route_commit import UNIX_EPOCH, from_us, to_us

MAX_ROWS: Final = 5_000
"""Maximum number of rows on a page, about 2 MB."""


class ReportAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters: the name of a report, and points in time as for `History.resolve`. None: the first epoch, and now."""

    name: str
    from_: str | None = None
    to: str | None = None
    times: int = TIMES


class ReportPage(msgspec.Struct, frozen=True):
    """A page of a report.

    Attributes:
        since: Event time after which the window starts.
        until: Event time up to which the window reaches, or None in an empty lake.
        columns: Names of the columns. Empty in an empty lake.
        rows: Rows in the order of the report. Times are aware.
        query: SQL of all rows, or None in an empty lake.
        next_cursor: Cursor of the next page, or None at the end.
    """

    since: datetime
    until: datetime | None
    columns: list[str]
    rows: list[tuple[Any, ...]]
    query: str | None
    next_cursor: str | None


_Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Start of the next page. All pages have the window and the epoch of the first page."""

    epoch: _Number
    since_us: TimeUs
    until_us: TimeUs
    skip: _Number


def window(history: History, from_: str | None, to: str | None, dashes: str = "") -> tuple[datetime, datetime]:
    """Start (not included) and end (included) of a window of event time. An epoch means its event time.

    Args:
        history: History of the lake.
        from_: Start, as in `ReportAsked`.
        to: End, as in `ReportAsked`.
        dashes: Prefix of the names ``from`` and ``to`` in errors.

    Raises:
        BadRequestError: A point in time is invalid, or ``from`` is after ``to``.
        RoutelakeError: As `History.resolve`.
    """

    def time_of(name: str, as_of: str) -> datetime:
        found = history.resolve(as_of, name)
        given = None if as_of == NOW else parse_as_of(as_of, name)
        return given if isinstance(given, datetime) else found.commit.event_time

    with or_else(f"leave out {dashes}from to begin there"):
        since = UNIX_EPOCH if from_ is None else time_of("from", from_)
    until = time_of("to", NOW if to is None else to)
    if to is None:
        return since, max(since, until)  # the last event may be before `since`
    if since > until:
        what = f"{dashes}from must not be after {dashes}to: {from_} is after {to}"
        raise BadRequestError(what, field="from", value=from_)
    return since, until


@contextmanager
def reading_views(history: History, epoch: int, too_large: BadRequestError) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the views over the changes up to an epoch, with the limits of a gateway (`bounded_views`).

    Args:
        history: The history.
        epoch: The last epoch.
        too_large: Error for a query that needs more than `MEMORY_LIMIT`.

    Raises:
        BadRequestError: ``too_large``.
        RoutelakeError: As `History.reading_changes`.
    """
    with history.reading_changes() as table, bounded_views(table, epoch) as views:
        try:
            yield views
        except duckdb.OutOfMemoryException as error:
            raise too_large from error


def report_page(history: History, asked: ReportAsked, *, limit: int = 1000, cursor: str | None = None) -> ReportPage:
    """One page of a report.

    Raises:
        BadRequestError: A time, the limit or the cursor is invalid, ``from`` is after ``to``, or the query exceeds its
            memory limit.
        RoutelakeError: As `History.resolve`.
    """
    if not 1 <= limit <= MAX_ROWS:
        raise BadRequestError(f"limit must be from 1 to {MAX_ROWS}, not {limit}", field="limit", value=limit)
    place = None if cursor is None else place_of(history, cursor, asked, _Cursor)
    if history.is_empty():
        return ReportPage(UNIX_EPOCH, None, [], [], None, None)
    if place is None:
        since, until = window(history, asked.from_, asked.to)
        place = _Cursor(history.resolve(NOW).commit.epoch, to_us(since), to_us(until), 0)
    since, until = (from_us(us) for us in (place.since_us, place.until_us))
    query = query_of(BY_NAME[asked.name], since, until, asked.times)
    what = (
        f"{asked.name} needs more than the {MEMORY_LIMIT} of memory that a gateway grants to a report. Use a shorter "
        f"window (from), or read the tables: {PROGRAM} history report"
    )
    too_large = BadRequestError(what, field="from", value=asked.from_)
    with reading_views(history, place.epoch, too_large) as views:
        found = views.sql(f"{query} LIMIT {limit + 1} OFFSET {place.skip}").to_arrow_table()
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    following = None
    if len(rows) > limit:
        following = cursor_of(history, asked, msgspec.structs.replace(place, skip=place.skip + limit))
    return ReportPage(since, until, found.column_names, rows[:limit], query, following)
