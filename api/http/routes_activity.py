# SPDX-License-Identifier: Apache-2.0
"""Numbers of changes over time, and uptimes of brokers: the data of the console's charts."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.answers import ActivityAnswer, LifelinesAnswer
from api.http.etag import ReadPosition
from api.http.openapi import PAST_PROBLEMS, read
from api.http.parameters import IfNoneMatch
from api.http.reads import WindowQuery, answer, ask_history, number
from lake.history.activity import MAX_POINTS, ActivityAsked, activity
from lake.history.as_of import rfc3339
from lake.history.lifelines import lifelines

router = APIRouter(prefix="/v1", tags=["history"])

_POINT: Final[dict[str, Any]] = {
    "start": 1767225600000,
    "firstEpoch": 5,
    "lastEpoch": 9,
    "changes": {"REGISTER_BROKER": 12, "BROKER_EXPIRED": 3},
    "commands": {"WIPE_WRITE_PERM_OF_BROKER": 1},
    "refusals": 0,
    "expiries": 1,
}


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


@router.get(
    "/activity",
    operation_id="getActivity",
    summary="Count changes over time",
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

    `start` and `width` are milliseconds, or epochs (`by=epoch`). A point without a change is left out. Its totals are
    those of the previous point. Times are event times, so an expiry counts from its deadline. The gateway keeps an
    answer for twenty times as long as it took to compute. `epoch` is the epoch of the answer. With `wait_for`, the
    answer includes the write.
    """
    asked = ActivityAsked(from_=query.from_, to=query.to, by=query.by, points=query.points, totals=query.totals)
    found, _position = await ask_history(
        request, query, "activity", lambda history: activity(history, asked, is_fresh=query.is_fresh)
    )
    body = ActivityAnswer(
        epoch=found.commit.epoch,
        first=found.first,
        last=found.last,
        by=query.by,
        width=found.width,
        points=found.points,
    )
    return answer(request, body, ReadPosition.of(found.commit))


_LIFE: Final[dict[str, Any]] = {
    **{"brokerName": "broker-a", "clusterName": "DefaultCluster", "brokerAddr": "10.0.0.1:10911", "brokerId": 0},
    **{"from": "2026-01-01T00:00:00.000Z", "to": "2026-01-01T00:10:00.000Z", "fromEpoch": 6, "toEpoch": 9},
    **{"begunBy": "REGISTER_BROKER", "endedBy": "BROKER_EXPIRED", "silentMillis": 120000},
}


@router.get(
    "/lifelines",
    operation_id="getLifelines",
    summary="List the times at which each broker address was alive",
    responses=read(
        LifelinesAnswer,
        {
            "epoch": 9,
            "from": "2026-01-01T00:00:00.000Z",
            "to": "2026-01-01T01:00:00.000Z",
            "lives": [_LIFE],
            "writeTurns": [
                {
                    **{"brokerName": "broker-a", "time": "2026-01-01T00:05:00.000Z", "epoch": 7},
                    **{"command": "WIPE_WRITE_PERM_OF_BROKER", "lost": 45, "gained": 0},
                }
            ],
        },
        *PAST_PROBLEMS,
    ),
)
async def get_lifelines(request: Request, query: Annotated[WindowQuery, Query()], _: IfNoneMatch = None) -> Response:
    """Lives that reach into the window, by broker, address and time, and turns of the write permission of their topics.

    Times are event times: an expiry counts from its deadline, and the broker was silent for `silentMillis` before it.
    `brokerId` is that of the address's last registration; 0 is a master. `writeTurns` begin with the last one before
    `from` of each broker, which says how the window begins. An answer has at most 10,000 lives and 10,000 turns, the
    newest. It is kept as that of the activity.
    """
    found, _position = await ask_history(
        request,
        query,
        "lifelines",
        lambda history: lifelines(history, query.from_, query.to, is_fresh=query.is_fresh),
    )
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
