# SPDX-License-Identifier: Apache-2.0
"""How much changed when: what the charts and the time bar of the console are drawn from."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.answers import ActivityAnswer, ActivityPointAnswer
from api.http.etag import ReadPosition
from api.http.openapi import PAST_PROBLEMS, read
from api.http.parameters import IfNoneMatch
from api.http.reads import MOMENT, ReadQuery, answer, ask_history, number
from lake.history.activity import MAX_POINTS, ActivityAsked, activity

router = APIRouter(prefix="/v1", tags=["history"])

_encode = msgspec.json.Encoder().encode

_POINT: Final[dict[str, Any]] = {
    "start": 1767225600000,
    "firstEpoch": 5,
    "lastEpoch": 9,
    "changes": {"REGISTER_BROKER": 12, "BROKER_EXPIRED": 3},
    "commands": {"WIPE_WRITE_PERM_OF_BROKER": 1},
    "refusals": 0,
    "expiries": 1,
}


class ActivityQuery(ReadQuery):
    """Parameters of the activity."""

    from_: str | None = Field(
        None, alias="from", description=f"Only what happened after this moment: {MOMENT}. Absent: from the beginning."
    )
    to: str | None = Field(None, description=f"Up to and including this moment: {MOMENT} (the default).")
    by: Literal["time", "epoch"] = Field("time", description="Points of equal time, or of an equal number of epochs.")
    points: Annotated[int, *number(least=1, most=MAX_POINTS)] = Field(
        120, description="Maximum number of points. Their width is the smallest that gives no more."
    )
    totals: bool = Field(
        False,
        description="Also say how many topics, brokers and queues there were at the end of each point. Reads the whole "
        "history up to `to`.",
    )


@router.get(
    "/activity",
    operation_id="getActivity",
    summary="How much changed when",
    responses=read(
        ActivityAnswer,
        {
            "epoch": 9,
            "first": 1767225600000,
            "last": 1767232800000,
            "by": "time",
            "width": 60000,
            "points": [{**_POINT, "topics": 500, "brokers": 30, "queues": 2000}],
        },
        *PAST_PROBLEMS,
    ),
)
async def get_activity(request: Request, query: Annotated[ActivityQuery, Query()], _: IfNoneMatch = None) -> Response:
    """Rows of routeChangeTable, counted by command into points of equal width, which are aligned to UTC.

    `start` and `width` are milliseconds, or epochs (`by=epoch`). A point in which nothing changed is left out; its
    totals are those of the point before. Times are event times: an expiry counts from its deadline. An answer is kept
    for twenty times as long as it took to compute: `epoch` says what it is computed from. With `wait_for` it is never
    older than what you wait for.
    """
    asked = ActivityAsked(from_=query.from_, to=query.to, by=query.by, points=query.points, totals=query.totals)
    is_fresh = query.wait_for is not None
    found, _position = await ask_history(
        request, query, "activity", lambda history: activity(history, asked, is_fresh=is_fresh)
    )
    body = ActivityAnswer(
        epoch=found.commit.epoch,
        first=found.first,
        last=found.last,
        by=query.by,
        width=found.width,
        points=[ActivityPointAnswer(**msgspec.structs.asdict(point)) for point in found.points],
    )
    return answer(request, _encode(body), ReadPosition.of(found.commit))
