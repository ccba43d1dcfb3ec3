# SPDX-License-Identifier: Apache-2.0
"""The list of epochs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from api.http.describe import read
from api.http.parameters import IfNoneMatch
from api.http.reads import ReadQuery, answer, ask_history, number
from api.http.shapes_past import EpochsShape
from lake.history.as_of import rfc3339
from lake.history.history import MAX_LIMIT
from schemas.codes import MAX_LONG
from schemas.route_commit import RouteCommit

router = APIRouter(prefix="/v1", tags=["history"])

_encode = msgspec.json.Encoder().encode


class EpochsQuery(ReadQuery):
    """Parameters of the epoch list."""

    limit: Annotated[int, *number(least=1, most=MAX_LIMIT)] = Field(100, description="Epochs on a page.")
    before: Annotated[int, *number(most=MAX_LONG)] | None = Field(None, description="Only older epochs than this.")


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


def _epoch(commit: RouteCommit) -> dict[str, Any]:
    return {
        "epoch": commit.epoch,
        "logOffset": commit.log_offset,
        "eventTime": rfc3339(commit.event_time),
        "watermark": rfc3339(commit.watermark),
        "commitTime": rfc3339(commit.commit_time),
        "versions": commit.versions,
    }
