# SPDX-License-Identifier: Apache-2.0
"""History over HTTP: changes and differences, the states of a topic or broker group, and epochs, also as a stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Header, Path, Query, Request
from pydantic import AfterValidator, Field
from starlette.responses import Response

from api.http.answers import (
    BlameAnswer,
    BrokerTimelineAnswer,
    ChangesAnswer,
    DiffAnswer,
    Epoch,
    EpochsAnswer,
    TopicTimelineAnswer,
)
from api.http.context import Router, context_of
from api.http.etag import ReadPosition
from api.http.events import EventFilter
from api.http.openapi import PAST_PROBLEMS, READ_PROBLEMS, describe_read, problem_responses, text_response
from api.http.parameters import OTHER_FORMATS, TopicPath, number
from api.http.problems import NOT_FOUND, TOPIC_NOT_EXIST, Kind, Problem, bad_parameter
from api.http.reads import (
    POINT_IN_TIME,
    MissingQuery,
    PageQuery,
    ReadQuery,
    WindowQuery,
    address,
    answer,
    begin,
    history_answer,
    list_answer,
    next_link,
    read_history,
    settings_hidden,
)
from lake.history import changelog
from lake.history.as_of import NOW, rfc3339
from lake.history.change_json import (
    CHANGE_COLUMNS,
    change_members,
    difference_members,
    field_members,
    interval_members,
    point_members,
)
from lake.history.changelog import ChangesAsked
from lake.history.diff import diff
from lake.history.filters import Filters
from lake.history.history import MAX_LIMIT, History
from lake.history.provenance import topic_blame
from lake.history.timeline import Timeline, Window, broker_timeline, topic_timeline
from schemas.codes import MAX_LONG
from schemas.route_commit import EpochMark, RouteCommit

router = Router(prefix="/v1", tags=["history"])


class TopicChangesQuery(WindowQuery, PageQuery):
    """Parameters of a topic's changes: two points in time, and the page."""

    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(100, description="Changes on a page.")


class AllChangesQuery(TopicChangesQuery):
    """Parameters of all changes: two points in time, filters of rows and senders, and the page."""

    topic: str | None = Field(None, description="Only rows of this topic, and commands that name it.")
    broker_name: str | None = Field(None, alias="brokerName", description="Only this broker group.")
    cluster: str | None = Field(
        None, description="Only broker groups that registered into this cluster at any time, and commands that name it."
    )
    table_name: str | None = Field(None, alias="tableName", description="Only changed rows of this state table.")
    command: str | None = Field(
        None,
        description="Only changes by this command: the name of a RequestCode, or CHANNEL_CLOSED, BROKER_EXPIRED, "
        "RESUME, PRESERVE, PRESERVE_END, ACCESS_REFUSED.",
    )
    peer: str | None = Field(None, description="Only changes by this address, with or without its port.")
    user: str | None = Field(None, description="Only changes by this user.")
    outcome: Literal["applied", "unchanged", "rejected"] | None = Field(
        None, description="Only changes with this result."
    )

    def asked(self) -> ChangesAsked:
        """Return the query for `list_changes` and `diff`."""
        names = AllChangesQuery.model_fields.keys() - TopicChangesQuery.model_fields.keys()
        filters = Filters(**{name: getattr(self, name) for name in names})
        return ChangesAsked(from_=self.from_, to=self.to, filters=filters)


class DiffQuery(AllChangesQuery):
    """Parameters of a comparison."""

    from_: str = Field(alias="from", description=f"The earlier point in time: {POINT_IN_TIME}.")
    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(MAX_LIMIT, description="Differences on a page.")


class EpochsQuery(ReadQuery):
    """Parameters of the epoch list."""

    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(100, description="Epochs on a page.")
    before: Annotated[int, *number(most=MAX_LONG)] | None = Field(None, description="Only epochs older than this one.")


@router.get(
    "/changes",
    summary="List all changes, newest first",
    **describe_read(ChangesAnswer, *PAST_PROBLEMS, formats=OTHER_FORMATS),
)
async def list_changes(request: Request, query: Annotated[AllChangesQuery, Query()]) -> Response:
    """Rows of routeChangeTable that lead from the state at `from` to the state at `to`.

    The answer is JSON unless `Accept` is `text/csv` or `application/x-ndjson`. In every format, `Link` with
    `rel="next"` has the address of the next page. A page ends before `limit` if its JSON would exceed 4 MiB.
    """
    return await _changes(request, query, query.asked())


@router.get(
    "/topics/{topic:names}/changes",
    summary="List the changes of a topic's route",
    **describe_read(ChangesAnswer, *PAST_PROBLEMS, formats=OTHER_FORMATS),
)
async def get_topic_changes(
    request: Request, topic: TopicPath, query: Annotated[TopicChangesQuery, Query()]
) -> Response:
    """Rows of routeChangeTable that concern a topic, newest first. The topic may be deleted by now.

    They are the row changes and commands that name the topic or its order configuration, and for each broker that had
    the topic at any time, its changes of address and its refused registrations. `actor` is the sender. `command` is a
    RequestCode, CHANNEL_CLOSED or BROKER_EXPIRED. Pages and formats are those of `GET /v1/changes`.
    """
    return await _changes(
        request, query, ChangesAsked(from_=query.from_, to=query.to, filters=Filters(concerning=topic))
    )


async def _changes(request: Request, query: TopicChangesQuery, asked: ChangesAsked) -> Response:
    reading = await begin(request, query)
    position, shown = reading.position, settings_hidden(request)

    def write(history: History) -> Response:
        found = changelog.list_changes(history, asked, limit=query.limit, cursor=query.cursor)
        rows = shown(map(change_members, found.changes))
        body = {"changes": rows} | ({} if found.next_cursor is None else {"nextCursor": found.next_cursor})
        return list_answer(request, body, position, CHANGE_COLUMNS, rows, found.next_cursor)

    return await read_history(request, reading.context, "changes", write)


@router.get("/diff", summary="Compare two points in time", **describe_read(DiffAnswer, *PAST_PROBLEMS))
async def get_diff(request: Request, query: Annotated[DiffQuery, Query()]) -> Response:
    """The rows of the state tables that differ between `from` and `to`, by table, broker group and key.

    A reversed change is not included. Times of heartbeats are not compared. `command`, `peer`, `user` and `outcome`
    select the rows that a change of this kind touched in between. The cost depends on the number of changes in between.
    Old versions of the tables are not needed.
    """
    asked = query.asked()
    reading = await begin(request, query)
    position, shown = reading.position, settings_hidden(request)

    def write(history: History) -> Response:
        found = diff(history, asked, limit=query.limit, cursor=query.cursor)
        body = {
            "from": point_members(found.before),
            "to": point_members(found.after),
            "differences": shown(map(difference_members, found.differences)),
            "nextCursor": found.next_cursor,
        }
        return answer(request, body, position, headers=next_link(request, found.next_cursor))

    return await read_history(request, reading.context, "diff", write)


@router.get("/epochs", summary="List epochs", **describe_read(EpochsAnswer))
async def list_epochs(request: Request, query: Annotated[EpochsQuery, Query()]) -> Response:
    """Rows of routeCommitTable, newest first. `versions` has the versions for VERSION AS OF in SQL."""

    def write(history: History, position: ReadPosition) -> Response:
        commits = history.epochs(query.limit, query.before)
        is_last = len(commits) < query.limit or commits[-1].epoch <= 1
        found = EpochsAnswer(epochs=list(map(_epoch, commits)), next_before=None if is_last else commits[-1].epoch)
        return answer(request, found, position)

    return await history_answer(request, query, "epochs", write)


def _epoch(commit: RouteCommit) -> Epoch:
    return Epoch(
        epoch=commit.epoch,
        log_offset=commit.log_offset,
        event_time=rfc3339(commit.event_time),
        watermark=rfc3339(commit.watermark),
        commit_time=rfc3339(commit.commit_time),
        versions=dict(commit.versions),
    )


# --- timelines and blame ---


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
    summary="List the states of a topic's route",
    **describe_read(TopicTimelineAnswer, TOPIC_NOT_EXIST, *PAST_PROBLEMS),
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
    summary="List the states of a broker group",
    **describe_read(BrokerTimelineAnswer, NOT_FOUND, *PAST_PROBLEMS),
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
    summary="Return the last change of each field of a topic's route",
    **describe_read(BlameAnswer, TOPIC_NOT_EXIST, *PAST_PROBLEMS),
)
async def get_topic_blame(request: Request, topic: TopicPath, query: Annotated[BlameQuery, Query()]) -> Response:
    """For each field of the route, now or at `as_of`, the change that set its value.

    Queues and permission come from `topicQueueTable`, addresses and cluster from `brokerAddrTable`. If a row was
    removed and added again, the last change is the one that added it.
    """

    def write(history: History, position: ReadPosition) -> Response:
        found = topic_blame(history, topic, query.as_of)
        if not found.fields and not query.is_empty_fine:
            cut = found.point.commit
            raise Problem(TOPIC_NOT_EXIST, f"topic {topic} had no route at epoch {cut.epoch}")
        body = {"asOf": point_members(found.point), "fields": list(map(field_members, found.fields))}
        return answer(request, body, position)

    return await history_answer(request, query, "blame", write)


async def _timeline(
    request: Request,
    query: TimelineQuery,
    ask: Callable[..., Timeline],
    name: str,
    what: str,
    problem: Kind,
) -> Response:
    """Answer with one page of the timeline of a topic or broker group, or with a problem if it never existed."""
    window, context = query.window(), context_of(request)

    def write(history: History, position: ReadPosition) -> Response:
        found = ask(history, name, window, limit=query.limit, cursor=query.cursor)
        is_nothing = not found.intervals and found.next_cursor is None and query.cursor is None
        if is_nothing and not query.is_empty_fine:
            when = "" if window == Window() else " at the requested points in time"
            behind = context.events_not_in_tables
            later = (
                f". The tables do not have the last {behind} events yet: repeat the request in some seconds"
                if behind
                else ""
            )
            raise Problem(problem, f"the history up to epoch {position.epoch} has no {what} {name!r}{when}{later}")
        body: dict[str, Any] = {"intervals": list(map(interval_members, found.intervals))}
        if found.next_cursor is not None:
            body["nextCursor"] = found.next_cursor
        return answer(request, body, position)

    return await history_answer(request, query, "timeline", write)


# --- epochs as they come ---


def _mark(text: str) -> str:
    try:
        return str(EpochMark.parse(text))
    except ValueError:
        raise ValueError("must be an `id` of these events, or an epoch") from None


class EventsQuery(ReadQuery):
    """Parameters of the events."""

    from_: Annotated[str, AfterValidator(_mark)] | None = Field(
        None,
        alias="from",
        description="Send the epochs after this one: an `id` of these events, or an epoch number, which is not "
        "compared with the lake. Default: from now on. The header Last-Event-ID overrides it.",
        examples=["5-1f0c2a9e", "5"],
    )
    topic: str | None = Field(None, description="Only epochs that changed this topic.")
    broker_name: str | None = Field(None, alias="brokerName", description="Only epochs that changed this broker group.")


@router.get(
    "/events",
    summary="Subscribe to epochs (server-sent events)",
    response_class=Response,
    responses={
        200: text_response("text/event-stream", "Events, until the client goes."),
        **problem_responses(*READ_PROBLEMS),
    },
)
async def listen_events(
    request: Request,
    query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[
        str | None, Header(description="The last `id` that the client received. EventSource sends it by itself.")
    ] = None,
) -> Response:
    """One `epoch` event for each epoch with changes. `data` has the epoch, its topics and its brokers.

    At most 1,000 topics and 1,000 brokers are listed. `topicCount` and `brokerCount` have the full numbers. The stream
    resumes after `Last-Event-ID`, from the tables. A client gets `reset` and has to read everything again if it missed
    more than 1,000 epochs, or if its `id` is from another lake or from before a restore. An `id` is opaque.
    """
    after = None if query.from_ is None else EpochMark.parse(query.from_)
    if last_event_id:
        try:
            after = EpochMark.parse(last_event_id)
        except ValueError:
            raise bad_parameter("Last-Event-ID", "must be an `id` of these events") from None
    reading = await begin(request, query)
    may_go_on = partial(reading.context.guard.still_reads, request)
    wanted = EventFilter(query.topic, query.broker_name)
    return reading.context.events.stream(address(request), after, wanted, may_go_on)
