# SPDX-License-Identifier: Apache-2.0
"""Reports on a window of time: brokers that come and go, topics that could not be written, number of live brokers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.answers import ReportAnswer, ReportsAnswer, ReportSpecAnswer
from api.http.openapi import PAST_PROBLEMS, read
from api.http.parameters import IfNoneMatch
from api.http.problems import BAD_PARAMETER, FieldError, fields_problem
from api.http.reads import ReadQuery, WindowQuery, answer, ask_history, begin, list_answer, number
from lake.history.as_of import rfc3339
from lake.history.report import MAX_ROWS, ReportAsked, report_page
from lake.history.reports import BY_NAME, FLAPPING, REPORTS, TIMES
from schemas.route_commit import UNIX_EPOCH

router = APIRouter(prefix="/v1", tags=["history"])

ReportName = StrEnum("ReportName", {name.upper(): name for name in BY_NAME})  # type: ignore[misc]
"""Names of `lake.history.reports.REPORTS`."""


_ROW: Final[dict[str, Any]] = {
    **{"topic": "orders", "kind": "not writable"},
    **{"validFrom": "2026-01-01T00:00:00.000Z", "validTo": "2026-01-01T00:10:00.000Z", "seconds": 600.0},
    **{"begunBy": "WIPE_WRITE_PERM_OF_BROKER", "address": "10.0.0.9", "endedBy": "ADD_WRITE_PERM_OF_BROKER"},
    **{"firstEpoch": 6, "lastEpoch": 8},
}

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


class ReportQuery(WindowQuery):
    """Parameters of a report."""

    times: Annotated[int, *number()] | None = Field(
        None, description=f"For `flapping` only: addresses that came back more often than this. Default: {TIMES}."
    )
    limit: Annotated[int, *number(least=1, most=MAX_ROWS)] = Field(1000, description="Rows on a page.")
    cursor: Annotated[str, Field(max_length=4096)] | None = Field(
        None, description="`nextCursor` of the previous page."
    )


@router.get(
    "/reports",
    operation_id="listReports",
    summary="The reports there are",
    responses=read(ReportsAnswer, {"reports": msgspec.to_builtins(_SPECS[:1])}),
)
async def list_reports(request: Request, query: Annotated[ReadQuery, Query()], _: IfNoneMatch = None) -> Response:
    """Definitions of the reports: what a row means, what a chart shows, and which changes are behind a row."""
    reading = await begin(request, query)
    return answer(request, ReportsAnswer(reports=_SPECS), reading.position)


@router.get(
    "/reports/{name}",
    operation_id="getReport",
    summary="Return a report on a window of time",
    responses=read(
        ReportAnswer,
        {
            "report": "unavailable",
            "from": "2025-12-31T12:00:00.000Z",
            "to": "2026-01-01T01:00:00.000Z",
            "columns": list(_ROW),
            "rows": [_ROW],
            "sql": "WITH steps AS (SELECT ...) SELECT topic, kind, ...",
            "nextCursor": "WyJhIl0",
        },
        *PAST_PROBLEMS,
    ),
)
async def get_report(
    request: Request,
    name: Annotated[ReportName, Path(description="Name of a report, as in `GET /v1/reports`.")],
    query: Annotated[ReportQuery, Query()],
    _: IfNoneMatch = None,
) -> Response:
    """The rows of `./routelake history report`. Times are event times. The time of an expiry is the deadline.

    Of an interval that began before `from` or has not ended by `to`, the part in between counts. The answer is JSON
    unless `Accept` is `text/csv` or `application/x-ndjson`. In every format, `Link` with `rel="next"` has the address
    of the next page. All pages show the epoch of the first one.
    """
    if query.times is not None and name != FLAPPING:
        raise fields_problem(BAD_PARAMETER, [FieldError("times", f"is of flapping, not of {name}")])
    times = TIMES if query.times is None else query.times
    asked = ReportAsked(name=name.value, from_=query.from_, to=query.to, times=times)
    found, position = await ask_history(
        request, query, "report", lambda history: report_page(history, asked, limit=query.limit, cursor=query.cursor)
    )
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


def _plain(value: Any) -> Any:  # noqa: ANN401 (a value of any column)
    return rfc3339(value) if isinstance(value, datetime) else value
