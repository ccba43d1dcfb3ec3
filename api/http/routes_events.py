# SPDX-License-Identifier: Apache-2.0
"""Epochs as they come: server-sent events."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request
from pydantic import AfterValidator, ConfigDict, Field
from starlette.responses import Response

from api.http.events import EventFilter
from api.http.openapi import READ_PROBLEMS, errors
from api.http.problems import BAD_PARAMETER, FieldError, fields_problem
from api.http.reads import ReadQuery, address, begin
from schemas.route_commit import EpochMark

router = APIRouter(prefix="/v1", tags=["history"])

_EXAMPLE: Final = (
    'retry: 2000\nid: 5-1f0c2a9e\n\nevent: epoch\nid: 6-83d1f00b\ndata: {"epoch":6,'
    '"eventTime":"2026-01-01T00:00:00.000Z","offset":18,'
    '"topicCount":1,"topics":["orders"],"brokerCount":1,"brokers":["broker-a"]}\n\n'
)
_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Events, until the client goes.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
    },
    **errors(*READ_PROBLEMS),
}


def _mark(text: str) -> str:
    try:
        return str(EpochMark.parse(text))
    except ValueError:
        raise ValueError("must be an `id` of these events, or an epoch") from None


class EventsQuery(ReadQuery):
    """Parameters of the events."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, validate_by_alias=True)

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
    responses=_ANSWER,
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
