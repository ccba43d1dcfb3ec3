# SPDX-License-Identifier: Apache-2.0
"""Topics and their routes."""

from __future__ import annotations

import asyncio
import base64
import binascii
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Final, Literal
from urllib.parse import quote

import msgspec
from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.answers import TopicListAnswer, TopicSums
from api.http.context import HttpContext, Router
from api.http.etag import JSON, NOTHING, WAITED, ReadPosition, if_none_match, matches, read_headers
from api.http.naming_rules import topic_problem
from api.http.openapi import PAST_PROBLEMS, describe_read
from api.http.parameters import Cluster, TopicPath, check_name, number, seconds
from api.http.problems import LISTING_DISABLED, TOPIC_NOT_EXIST, Problem, bad_parameter
from api.http.reads import (
    MAX_LONG_POLL_S,
    MissingQuery,
    PageQuery,
    PastQuery,
    Reading,
    address,
    answer,
    ask_past,
    begin,
    disconnected,
    read_history,
)
from api.http.watch import Woken
from lake.history.history import History, page_at, topics_at
from nameserver.view.model import TopicQueues
from nameserver.view.snapshot import RouteView
from schemas.errors import NotFoundError
from schemas.rocketmq_json import encode_topic_route
from schemas.route import TopicRouteData

router = Router(prefix="/v1/topics", tags=["topics"])

MAX_PAGE: Final = 10_000
CROWDED: Final = {"retry-after": "5"}
"""Headers of a long poll that was answered early. A client that asks again at once gains nothing."""

_EMPTY_ROUTE: Final = encode_topic_route(
    TopicRouteData(broker_datas=[], filter_server_table={}, queue_datas=[]), numeric_keys=False
)


class TopicsQuery(PastQuery, PageQuery):
    """Parameters of the topic list."""

    cluster: Cluster = Field(None, description="Only topics that have a broker of this cluster.")
    prefix: Annotated[str, Field(max_length=255)] = Field("", description="Only topics that begin with this.")
    details: Literal["true", "false"] = Field(
        "false", description="`true`: add clusters, queues and permissions of each topic."
    )
    limit: Annotated[int, *number(least=1, most=MAX_PAGE)] = Field(1000, description="Names on a page.")


class RouteQuery(PastQuery, MissingQuery):
    """Parameters of a route."""

    wait: Annotated[float, *seconds(MAX_LONG_POLL_S)] | None = Field(
        None,
        description="Long poll with If-None-Match: the answer comes when the topic's route differs, or as 304 after "
        "this number of seconds.",
    )


# --- the list ---


@router.get("", summary="List topics", **describe_read(TopicListAnswer, LISTING_DISABLED, *PAST_PROBLEMS))
async def list_topics(request: Request, query: Annotated[TopicsQuery, Query()]) -> Response:
    """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206), GET_TOPICS_BY_CLUSTER (224): names in order, page by page.

    The cursor is a place in the order. Topics that appear or vanish between two pages do not disturb it.
    """
    query.check()
    reading = await begin(request, query)
    settings = reading.context.gateway.settings
    if query.cluster is None and not settings.enable_all_topic_list:
        raise Problem(LISTING_DISABLED, "enableAllTopicList is false")
    if query.cluster is not None and not settings.enable_topic_list:
        raise Problem(LISTING_DISABLED, "enableTopicList is false")
    after = None if query.cursor is None else _from_cursor(query.cursor)
    topics: Sequence[str]
    view: RouteView
    if query.past is None:
        view, position = reading.view, reading.position  # of one point in time, because sorting may take a while
        topics = await reading.context.sorted_topics.get(view, query.cluster)
    else:
        topics, position = await ask_past(
            request, reading.context, query.past, partial(topics_at, cluster=query.cluster)
        )
    first, last = 0, len(topics)
    if query.prefix:
        first = bisect_left(topics, query.prefix)
        last = bisect_left(topics, True, first, key=lambda topic: not topic.startswith(query.prefix))
    total = last - first
    if after is not None:
        first = max(first, bisect_right(topics, after, first, last))
    page = topics[first : min(last, first + query.limit)]
    sums = None
    if query.details == "true":
        if query.past is not None:
            # A second read gives the same state, because the past does not change.
            view, position = await ask_past(request, reading.context, query.past, partial(page_at, page=page))
        # In a thread, because a page of 10,000 topics with queues on many brokers takes a while.
        sums = await asyncio.to_thread(_topic_sums, view, page)
    cursor = None
    if page and first + len(page) < last:
        cursor = base64.urlsafe_b64encode(page[-1].encode()).decode().rstrip("=")
    found = TopicListAnswer(topic_list=list(page), total=total, topics=sums, next_cursor=cursor)
    return answer(request, found, position)


def _from_cursor(cursor: str) -> str:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise bad_parameter("cursor", "is not a cursor of this list") from None


def _topic_sums(view: RouteView, topics: Iterable[str]) -> list[TopicSums]:
    """Return a row for each topic that the view has.

    Equal topics are summed once, because a view has one object for them.
    """
    known: dict[int, TopicSums] = {}
    found = []
    for topic in topics:
        queues = view.topics.get(topic)
        if queues is None:
            continue
        sums = known.get(id(queues))
        if sums is None:
            sums = known[id(queues)] = _sums(view, topic, queues)
        found.append(msgspec.structs.replace(sums, topic_name=topic))
    return found


def _sums(view: RouteView, topic: str, queues: TopicQueues) -> TopicSums:
    groups = (view.groups.get(name) for name in queues.brokers)
    return TopicSums(
        topic_name=topic,
        clusters=sorted({group.row.cluster for group in groups if group is not None}),
        brokers=len(queues.brokers),
        read_queue_nums=sum(row[0] for row in queues.rows),
        write_queue_nums=sum(row[1] for row in queues.rows),
        perms=sorted({row[2] for row in queues.rows}),
    )


# --- a route ---


@router.get(
    "/{topic:names}/route",
    summary="Return the route of a topic, now or at a point in time",
    **describe_read(TopicRouteData, TOPIC_NOT_EXIST, *PAST_PROBLEMS),
)
async def get_topic_route(request: Request, topic: TopicPath, query: Annotated[RouteQuery, Query()]) -> Response:
    """GET_ROUTEINFO_BY_TOPIC (105): the same bytes as the body that a client of RocketMQ 4.9.4 or later receives.

    With `as_of`, the answer is the route at a point in time, given as an epoch or a time. `X-Routelake-Epoch`,
    `X-Routelake-Offset` and `X-Routelake-Event-Time` name its epoch and its last change. The status is 404 before the
    first epoch, for an epoch that is not written yet, and for a time more than a minute in the future. It is 410 with
    the oldest available epoch if that point is no longer available. A time after the newest epoch is the newest epoch.

    With `wait` and If-None-Match, the gateway answers as soon as the route differs from the client's. It may also
    answer without a change. If too many clients wait, some get an early answer with Retry-After. The 404 of a missing
    topic has an ETag, too. A long poll with this ETag waits until the topic exists. With `missing=empty` a missing
    topic is 200 with a route without brokers and queues.
    """
    query.check()
    reading = await begin(request, query)
    if query.past is not None:
        if query.wait is not None:
            raise bad_parameter("wait", "cannot be combined with as_of")
        return await _past_route(request, reading.context, topic, query.past, is_empty_fine=query.is_empty_fine)
    crowded = False
    if query.wait is not None:
        crowded = await _until_changed(request, reading, topic, query.wait)
        reading.context.guard.reader_again(request)
    found = reading.answers.route(reading.view, topic)
    digest = NOTHING if found is None else found.digest
    headers = {**read_headers(reading.position, digest), **(CROWDED if crowded else {})}
    if found is None:
        check_name(topic_problem(topic), "topic")
        if not query.is_empty_fine:
            raise Problem(
                TOPIC_NOT_EXIST,
                f"no topic route info in name server for the topic: {topic}; "
                f"GET /v1/topics/{quote(topic, safe='')}/changes has its changes",
                headers=headers,
            )
    if matches(if_none_match(request.headers.raw), digest):
        return Response(status_code=304, headers=headers)
    body = _EMPTY_ROUTE if found is None else found.body
    # In the order of the fast path.
    return Response(body, 200, {"content-type": JSON, "content-length": str(len(body)), **headers})


async def _past_route(
    request: Request, context: HttpContext, topic: str, as_of: str, *, is_empty_fine: bool
) -> Response:
    settings = context.gateway.settings

    def ask(history: History) -> tuple[bytes, ReadPosition]:
        point = history.resolve(as_of)
        try:
            past = history.route(
                topic,
                point,
                support_acting_master=settings.support_acting_master,
                order_message_enable=settings.order_message_enable,
            )
        except NotFoundError as error:
            check_name(topic_problem(topic), "topic")
            if is_empty_fine:
                return _EMPTY_ROUTE, ReadPosition.of(point.commit)
            headers = {"x-routelake-epoch": str(error.fields.get("epoch"))}
            raise Problem(TOPIC_NOT_EXIST, str(error), headers=headers) from None
        return past.body, ReadPosition.of(past.commit)

    return answer(request, *await read_history(request, context, "route", ask))


async def _until_changed(request: Request, reading: Reading, topic: str, wait_s: float) -> bool:
    """Wait until the route differs from the client's, the time is over, or the client has gone.

    Returns:
        True if the wait ended early because too many clients wait.
    """
    tags = if_none_match(request.headers.raw)
    if not tags:
        return False
    request.scope[WAITED] = True
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    gone = asyncio.create_task(disconnected(request))
    try:
        while True:
            found = reading.answers.route(reading.view, topic)
            rest_s = end - loop.time()
            if rest_s <= 0 or not matches(tags, NOTHING if found is None else found.digest):
                return False
            woken = await reading.context.watch.next_view(topic, rest_s, address(request), gone)
            if woken is not Woken.CHANGED:
                return woken is Woken.CROWDED
    finally:
        gone.cancel()
