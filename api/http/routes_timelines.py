# SPDX-License-Identifier: Apache-2.0
"""One topic, one broker group: its states one after the other, and who set what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.answers import BlameAnswer, BrokerTimelineAnswer, TopicTimelineAnswer
from api.http.context import context_of
from api.http.openapi import PAST_PROBLEMS, read
from api.http.parameters import TopicPath, number
from api.http.problems import NOT_FOUND, TOPIC_NOT_EXIST, Kind, Problem
from api.http.reads import POINT_IN_TIME, MissingQuery, PageQuery, ReadQuery, answer, ask_history
from lake.history.as_of import NOW
from lake.history.change_json import field_members, interval_members, point_members
from lake.history.history import MAX_LIMIT
from lake.history.provenance import topic_blame
from lake.history.timeline import Timeline, Window, broker_timeline, topic_timeline

router = APIRouter(prefix="/v1", tags=["history"])


class TimelineQuery(ReadQuery, MissingQuery, PageQuery):
    """Parameters of a timeline."""

    from_: str | None = Field(
        None,
        alias="from",
        description=f"Intervals that end after this point in time: {POINT_IN_TIME}. Default: the beginning.",
    )
    to: str | None = Field(
        None,
        description=f"Intervals that begin up to this point in time: {POINT_IN_TIME}. Default: now. An interval that "
        "had not ended by then has no end.",
    )
    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(
        100, description="Maximum number of intervals on a page. A page with fewer can have a next one."
    )

    def window(self) -> Window:
        """Return the window of the wanted intervals."""
        return Window(self.from_, self.to)


class BlameQuery(ReadQuery, MissingQuery):
    """Parameters of blame."""

    as_of: str = Field(
        NOW,
        description=f"The point in time: {POINT_IN_TIME}.",
    )


@router.get(
    "/topics/{topic:names}/timeline",
    operation_id="getTopicTimeline",
    summary="List the states of a topic's route",
    responses=read(TopicTimelineAnswer, TOPIC_NOT_EXIST, *PAST_PROBLEMS),
)
async def get_topic_timeline(request: Request, topic: TopicPath, query: Annotated[TimelineQuery, Query()]) -> Response:
    """Intervals in which a topic could be written and read, with queues and brokers, newest first.

    From the first appearance of the topic on, each point in time is in exactly one interval. The interval has the same
    state as a read with `as_of`. A deleted topic has no brokers. Neighbours differ. A topic that never existed is 404.
    A page reads at most 20,000 changes. So it may be short or empty and still have a `nextCursor`.
    """
    return await _timeline(request, query, topic_timeline, topic, "topic", TOPIC_NOT_EXIST)


@router.get(
    "/brokers/{brokerName:name}/timeline",
    operation_id="getBrokerTimeline",
    summary="List the states of a broker group",
    responses=read(BrokerTimelineAnswer, NOT_FOUND, *PAST_PROBLEMS),
)
async def get_broker_timeline(
    request: Request,
    broker_name: Annotated[str, Path(alias="brokerName", description="The broker group.", examples=["broker-a"])],
    query: Annotated[TimelineQuery, Query()],
) -> Response:
    """Intervals in the life of a broker group, with all and with its live addresses, newest first.

    The intervals have no gaps, as those of a topic. Without a broker, the group has no addresses. A group that never
    existed is 404.
    """
    return await _timeline(request, query, broker_timeline, broker_name, "broker group", NOT_FOUND)


@router.get(
    "/topics/{topic:names}/blame",
    operation_id="getTopicBlame",
    summary="Return the last change of each field of a topic's route",
    responses=read(BlameAnswer, TOPIC_NOT_EXIST, *PAST_PROBLEMS),
)
async def get_topic_blame(request: Request, topic: TopicPath, query: Annotated[BlameQuery, Query()]) -> Response:
    """For each field of the route, now or at `as_of`, the change that set its value.

    Queues and permission come from `topicQueueTable`, addresses and cluster from `brokerAddrTable`. If a row was
    removed and added again, the last change is the one that added it.
    """
    found, position = await ask_history(
        request, query, "blame", lambda history: topic_blame(history, topic, query.as_of)
    )
    if not found.fields and not query.is_empty_fine:
        cut = found.point.commit
        raise Problem(TOPIC_NOT_EXIST, f"topic {topic} had no route at epoch {cut.epoch}")
    body = {"asOf": point_members(found.point), "fields": list(map(field_members, found.fields))}
    return answer(request, body, position)


async def _timeline(
    request: Request,
    query: TimelineQuery,
    ask: Callable[..., Timeline],
    name: str,
    what: str,
    problem: Kind,
) -> Response:
    """One page of the timeline of a topic or broker group; a problem where there is nothing at all."""
    window = query.window()
    found, position = await ask_history(
        request, query, "timeline", lambda history: ask(history, name, window, limit=query.limit, cursor=query.cursor)
    )
    is_nothing = not found.intervals and found.next_cursor is None and query.cursor is None
    if is_nothing and not query.is_empty_fine:
        when = "never was" if window == Window() else "was at no point in time asked for"
        behind = context_of(request).events_not_in_tables
        later = f"; the tables do not have the last {behind} events yet, see GET /healthz/fold" if behind else ""
        raise Problem(problem, f"there {when} a {what} {name!r}, up to epoch {position.epoch}{later}")
    body: dict[str, Any] = {"intervals": list(map(interval_members, found.intervals))}
    if found.next_cursor is not None:
        body["nextCursor"] = found.next_cursor
    return answer(request, body, position)
