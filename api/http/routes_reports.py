# SPDX-License-Identifier: Apache-2.0
"""Queries about a window of event time: reports, and the activity and lifelines of the console's charts."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.answers import ActivityAnswer, LifelinesAnswer, ReportAnswer, ReportsAnswer, ReportSpecAnswer
from api.http.context import Router
from api.http.etag import ReadPosition
from api.http.openapi import PAST_PROBLEMS, describe_read
from api.http.parameters import OTHER_FORMATS, number
from api.http.problems import bad_parameter
from api.http.reads import PageQuery, ReadQuery, WindowQuery, answer, begin, history_answer, list_answer
from lake.history.activity import MAX_POINTS, ActivityAsked, activity
from lake.history.as_of import rfc3339
from lake.history.history import History
from lake.history.lifelines import lifelines
from lake.history.report import MAX_ROWS, ReportAsked, report_page
from lake.history.reports import BY_NAME, FLAPPING, REPORTS, TIMES
from schemas.route_commit import UNIX_EPOCH

router = Router(prefix="/v1", tags=["history"])


# --- reports ---

ReportName = StrEnum("ReportName", {name.upper(): name for name in BY_NAME})  # type: ignore[misc]
"""Names of `lake.history.reports.REPORTS`."""


_SPECS: Final = [
    ReportSpecAnswer(
        name=each.name,
        title=each.title,
        row=each.comment,
        label=each.label,
        values=list(each.values),
        filters=each.filters,
        fixed_filters=each.fixed_filters,
        times=TIMES if each.name == FLAPPING else None,
    )
    for each in REPORTS
]


class ReportQuery(WindowQuery, PageQuery):
    """Parameters of a report."""

    times: Annotated[int, *number()] | None = Field(
        None, description=f"For `flapping` only: addresses that came back more often than this. Default: {TIMES}."
    )
    limit: Annotated[int, *number(least=1, most=MAX_ROWS)] = Field(1000, description="Rows on a page.")


@router.get("/reports", summary="The reports there are", **describe_read(ReportsAnswer))
async def list_reports(request: Request, query: Annotated[ReadQuery, Query()]) -> Response:
    """Definitions of the reports: what a row means, what a chart shows, and which changes are behind a row."""
    reading = await begin(request, query)
    return answer(request, ReportsAnswer(reports=_SPECS), reading.position)


@router.get(
    "/reports/{name}",
    summary="Return a report on a window of time",
    **describe_read(ReportAnswer, *PAST_PROBLEMS, formats=OTHER_FORMATS),
)
async def get_report(
    request: Request,
    name: Annotated[ReportName, Path(description="Name of a report, as in `GET /v1/reports`.")],
    query: Annotated[ReportQuery, Query()],
) -> Response:
    """The rows of `./routelake history report`. Times are event times. The time of an expiry is the deadline.

    Of an interval that began before `from` or has not ended by `to`, the part in between counts. The answer is JSON
    unless `Accept` is `text/csv` or `application/x-ndjson`. In every format, `Link` with `rel="next"` has the address
    of the next page. All pages show the epoch of the first one.
    """
    if query.times is not None and name != FLAPPING:
        raise bad_parameter("times", f"is of flapping, not of {name}")
    times = TIMES if query.times is None else query.times
    asked = ReportAsked(name=name.value, from_=query.from_, to=query.to, times=times)

    def write(history: History, position: ReadPosition) -> Response:
        found = report_page(history, asked, limit=query.limit, cursor=query.cursor)
        rows = [dict(zip(found.columns, map(_plain, row), strict=True)) for row in found.rows]
        body = ReportAnswer(
            report=name.value,
            from_=None if found.since == UNIX_EPOCH else rfc3339(found.since),
            to=None if found.until is None else rfc3339(found.until),
            columns=list(found.columns),
            rows=rows,
            sql=found.query,
            next_cursor=found.next_cursor,
        )
        return list_answer(request, body, position, found.columns, rows, found.next_cursor)

    return await history_answer(request, query, "report", write)


def _plain(value: Any) -> Any:  # noqa: ANN401 (a value of any column)
    return rfc3339(value) if isinstance(value, datetime) else value


# --- charts ---


class ActivityQuery(WindowQuery):
    """Parameters of the activity."""

    by: Literal["time", "epoch"] = Field("time", description="Each point has an equal time, or number of epochs.")
    points: Annotated[int, *number(least=1, most=MAX_POINTS)] = Field(
        120, description="Maximum number of points. Their width is the smallest one that does not exceed it."
    )
    totals: bool = Field(
        False,
        description="Add the numbers of topics, brokers and queues at the end of each point. This reads the whole "
        "history up to `to`.",
    )


@router.get("/activity", summary="Count changes over time", **describe_read(ActivityAnswer, *PAST_PROBLEMS))
async def get_activity(request: Request, query: Annotated[ActivityQuery, Query()]) -> Response:
    """Rows of routeChangeTable, counted by command into points of equal width, which are aligned to UTC.

    `start` and `width` are milliseconds, or epochs (`by=epoch`). A point without a change is left out. Its totals are
    those of the previous point. Times are event times, so an expiry counts from its deadline. The gateway keeps an
    answer for twenty times as long as it took to compute. `epoch` is the epoch of the answer. With `wait_for`, the
    answer includes the write.
    """
    asked = ActivityAsked(from_=query.from_, to=query.to, by=query.by, points=query.points, totals=query.totals)

    def write(history: History, _position: ReadPosition) -> Response:
        found = activity(history, asked, is_fresh=query.is_fresh)
        body = ActivityAnswer(
            epoch=found.commit.epoch,
            first=found.first,
            last=found.last,
            by=query.by,
            width=found.width,
            points=found.points,
        )
        return answer(request, body, ReadPosition.of(found.commit))

    return await history_answer(request, query, "activity", write)


@router.get(
    "/lifelines",
    summary="List the times at which each broker address was alive",
    **describe_read(LifelinesAnswer, *PAST_PROBLEMS),
)
async def get_lifelines(request: Request, query: Annotated[WindowQuery, Query()]) -> Response:
    """Lives that reach into the window, by broker, address and time, and turns of the write permission of their topics.

    Times are event times: an expiry counts from its deadline, and the broker was silent for `silentMillis` before it.
    `brokerId` is that of the address's last registration; 0 is a master. `writeTurns` begin with the last one before
    `from` of each broker, which says how the window begins. An answer has at most 10,000 lives and 10,000 turns, the
    newest. It is kept as that of the activity.
    """

    def write(history: History, _position: ReadPosition) -> Response:
        found = lifelines(history, query.from_, query.to, is_fresh=query.is_fresh)
        body = LifelinesAnswer(
            epoch=found.commit.epoch,
            from_=rfc3339(found.since),
            to=rfc3339(found.until),
            lives=found.lives,
            write_turns=found.turns,
            left_out=found.left_out,
            write_turns_left_out=found.turns_left_out,
        )
        return answer(request, body, ReadPosition.of(found.commit))

    return await history_answer(request, query, "lifelines", write)
