# SPDX-License-Identifier: Apache-2.0
"""History over HTTP: the changes between two points in time, the differences, and epochs, also as they come."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request
from pydantic import AfterValidator, Field
from starlette.responses import Response

from api.http.answers import ChangesAnswer, DiffAnswer, Epoch, EpochsAnswer
from api.http.events import EventFilter
from api.http.openapi import PAST_PROBLEMS, READ_PROBLEMS, Responses, errors, read, text
from api.http.parameters import Format, TopicPath, number
from api.http.problems import BAD_PARAMETER, FieldError, fields_problem
from api.http.reads import (
    POINT_IN_TIME,
    PageQuery,
    ReadQuery,
    WindowQuery,
    address,
    answer,
    ask_history,
    begin,
    list_answer,
    next_link,
    visible,
)
from lake.history.as_of import rfc3339
from lake.history.change_json import (
    CHANGE_COLUMNS,
    change_members,
    difference_members,
    point_members,
)
from lake.history.changelog import ChangesAsked, list_changes
from lake.history.diff import diff
from lake.history.filters import Filters
from lake.history.history import MAX_LIMIT
from schemas.codes import MAX_LONG
from schemas.route_commit import EpochMark, RouteCommit

router = APIRouter(prefix="/v1", tags=["history"])


class TopicChangesQuery(WindowQuery, PageQuery):
    """Parameters of a topic's changes: two points in time, and which page."""

    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(100, description="Changes on a page.")


class AllChangesQuery(TopicChangesQuery):
    """Parameters of all changes: two points in time, which rows, by whom, and which page."""

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
        """The question."""
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


def _in_formats(found: Responses) -> Responses:
    """An answer that comes as CSV and as lines of JSON, too."""
    for media in (Format.CSV, Format.NDJSON):
        found[200]["content"] |= text(media, "")["content"]
    return found


@router.get(
    "/changes",
    operation_id="listChanges",
    summary="List all changes, newest first",
    responses=_in_formats(read(ChangesAnswer, *PAST_PROBLEMS)),
)
async def get_changes(request: Request, query: Annotated[AllChangesQuery, Query()]) -> Response:
    """Rows of routeChangeTable that lead from the state at `from` to the state at `to`.

    The answer is JSON unless `Accept` is `text/csv` or `application/x-ndjson`. In every format, `Link` with
    `rel="next"` has the address of the next page. A page ends before `limit` if its JSON would exceed 4 MiB.
    """
    return await _changes(request, query, query.asked())


@router.get(
    "/topics/{topic:names}/changes",
    operation_id="getTopicChanges",
    summary="List the changes of a topic's route",
    responses=_in_formats(read(ChangesAnswer, *PAST_PROBLEMS)),
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
    found, position = await ask_history(
        request,
        query,
        "changes",
        lambda history: list_changes(history, asked, limit=query.limit, cursor=query.cursor),
    )
    rows = visible(request, map(change_members, found.changes))
    body = {"changes": rows} | ({} if found.next_cursor is None else {"nextCursor": found.next_cursor})
    return list_answer(request, body, position, CHANGE_COLUMNS, rows, found.next_cursor)


@router.get(
    "/diff",
    operation_id="getDiff",
    summary="Compare two points in time",
    responses=read(DiffAnswer, *PAST_PROBLEMS),
)
async def get_diff(request: Request, query: Annotated[DiffQuery, Query()]) -> Response:
    """The rows of the state tables that differ between `from` and `to`, by table, broker group and key.

    A reversed change is not included. Times of heartbeats are not compared. `command`, `peer`, `user` and `outcome`
    select the rows that a change of this kind touched in between. The cost depends on the number of changes in between.
    Old versions of the tables are not needed.
    """
    asked = query.asked()
    found, position = await ask_history(
        request, query, "diff", lambda history: diff(history, asked, limit=query.limit, cursor=query.cursor)
    )
    body = {
        "from": point_members(found.before),
        "to": point_members(found.after),
        "differences": visible(request, map(difference_members, found.differences)),
        "nextCursor": found.next_cursor,
    }
    return answer(request, body, position, headers=next_link(request, found.next_cursor))


@router.get(
    "/epochs",
    operation_id="listEpochs",
    summary="List epochs",
    responses=read(EpochsAnswer),
)
async def list_epochs(request: Request, query: Annotated[EpochsQuery, Query()]) -> Response:
    """Rows of routeCommitTable, newest first. `versions` has the versions for VERSION AS OF in SQL."""
    commits, position = await ask_history(
        request, query, "epochs", lambda history: history.epochs(query.limit, query.before)
    )
    is_last = len(commits) < query.limit or commits[-1].epoch <= 1
    found = EpochsAnswer(epochs=list(map(_epoch, commits)), next_before=None if is_last else commits[-1].epoch)
    return answer(request, found, position)


def _epoch(commit: RouteCommit) -> Epoch:
    return Epoch(
        epoch=commit.epoch,
        log_offset=commit.log_offset,
        event_time=rfc3339(commit.event_time),
        watermark=rfc3339(commit.watermark),
        commit_time=rfc3339(commit.commit_time),
        versions=dict(commit.versions),
    )


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
    operation_id="listenEvents",
    summary="Subscribe to epochs (server-sent events)",
    response_class=Response,
    responses={200: text("text/event-stream", "Events, until the client goes."), **errors(*READ_PROBLEMS)},
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
            refusal = FieldError("Last-Event-ID", "must be an `id` of these events")
            raise fields_problem(BAD_PARAMETER, [refusal]) from None
    reading = await begin(request, query)
    may_go_on = partial(reading.context.guard.still_reads, request)
    wanted = EventFilter(query.topic, query.broker_name)
    return reading.context.events.stream(address(request), after, wanted, may_go_on)
