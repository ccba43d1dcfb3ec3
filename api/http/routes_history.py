# SPDX-License-Identifier: Apache-2.0
"""The past: who changed what, and which epochs there are. The route of the past is in `api.http.routes_topics`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.describe import CHANGE_EXAMPLE, read
from api.http.parameters import IfNoneMatch, TopicPath
from api.http.problems import FUTURE_TIME, rfc3339
from api.http.reads import ReadQuery, answer, ask_history, number, visible
from api.http.shapes_past import ChangesShape, EpochsShape
from lake.history.change_json import change_members
from lake.history.changelog import MAX_LIMIT, ChangePage
from schemas.codes import MAX_LONG
from schemas.route_commit import RouteCommit

router = APIRouter(prefix="/v1", tags=["history"])

_encode = msgspec.json.Encoder().encode
_CURSOR: Final = "WzYsMTc2NzIyNTYwMDAwMDAwMCwxOCwwLCJicm9rZXItYSIsInRvcGljUXVldWVUYWJsZSJd"


class ChangesQuery(ReadQuery):
    """Parameters of a topic's changes."""

    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(100, description="Changes on a page.")
    before: str | None = Field(None, description="Cursor: only older changes.")
    after: str | None = Field(None, description="Cursor: only newer changes, the page next to the cursor.")
    since: str | None = Field(None, description="Only from this event time on (RFC 3339 with its offset).")
    until: str | None = Field(None, description="Only before this event time.")


class EpochsQuery(ReadQuery):
    """Parameters of the epoch list."""

    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(100, description="Epochs on a page.")
    before: Annotated[int, *number(most=MAX_LONG)] | None = Field(None, description="Only older epochs than this.")


@router.get(
    "/topics/{topic:names}/changes",
    operation_id="getTopicChanges",
    summary="Who changed a topic's route, when and how",
    responses=read(ChangesShape, {"changes": [{**CHANGE_EXAMPLE, "cursor": _CURSOR}], "after": _CURSOR}, FUTURE_TIME),
)
async def get_changes(
    request: Request, topic: TopicPath, query: Annotated[ChangesQuery, Query()], _: IfNoneMatch = None
) -> Response:
    """Rows of routeChangeTable that concern a topic, newest first; the topic need not exist any more.

    Row changes and commands that name it, its order configuration, and for the brokers that ever held it: changes of
    address, and refused registrations. `actor` says who; `command` is a RequestCode, CHANNEL_CLOSED or BROKER_EXPIRED.
    `since` must have come, and be before `until`. A page ends before `limit` where its JSON would pass 4 MiB.
    """
    page, position = await ask_history(
        request,
        query,
        "changes",
        lambda history: history.changes(
            topic,
            limit=query.limit,
            before=query.before,
            after=query.after,
            since=query.since,
            until=query.until,
        ),
    )
    return answer(request, _page(request, page), position)


@router.get(
    "/epochs",
    operation_id="listEpochs",
    summary="Epochs: the consistent cuts of all tables",
    responses=read(
        EpochsShape,
        {
            "epochs": [
                {
                    "epoch": 6,
                    "logOffset": 18,
                    "eventTime": "2026-01-01T00:00:00.000Z",
                    "watermark": "2026-01-01T00:00:00.000Z",
                    "commitTime": "2026-01-01T00:00:00.700Z",
                    "versions": {"topicQueueTable": 4, "brokerAddrTable": 2},
                }
            ],
            "nextBefore": 6,
        },
    ),
)
async def list_epochs(request: Request, query: Annotated[EpochsQuery, Query()], _: IfNoneMatch = None) -> Response:
    """Rows of routeCommitTable, newest first. `versions` are what an analyst gives to VERSION AS OF."""
    commits, position = await ask_history(
        request, query, "epochs", lambda history: history.epochs(query.limit, query.before)
    )
    found: dict[str, Any] = {"epochs": [_epoch(commit) for commit in commits]}
    if len(commits) == query.limit and commits[-1].epoch > 1:
        found["nextBefore"] = commits[-1].epoch
    return answer(request, _encode(found), position)


def _page(request: Request, page: ChangePage) -> bytes:
    changes = [{**change_members(change), "cursor": change.cursor} for change in page.changes]
    shown = visible(request, changes)
    return _encode(_present({"changes": shown, "before": page.before, "after": page.after}))


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _epoch(commit: RouteCommit) -> dict[str, Any]:
    return {
        "epoch": commit.epoch,
        "logOffset": commit.log_offset,
        "eventTime": rfc3339(commit.event_time),
        "watermark": rfc3339(commit.watermark),
        "commitTime": rfc3339(commit.commit_time),
        "versions": commit.versions,
    }
