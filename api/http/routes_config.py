# SPDX-License-Identifier: Apache-2.0
"""The NameServer's configuration over HTTP."""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from api.http.context import context_of
from api.http.describe import READ_PROBLEMS, errors, plain
from api.http.etag import JSON
from api.http.problems import FORBIDDEN
from api.http.reads import check_once
from api.http.shapes import ConfigShape
from api.settings.shown import shown_settings

router = APIRouter(prefix="/v1/config", tags=["admin"])

_EXAMPLE: Final = {"config": {"deleteTopicWithBrokerRegistration": "false", "orderMessageEnable": "false"}}


@router.get(
    "",
    operation_id="getConfig",
    summary="The NameServer's configuration",
    responses={
        200: plain(ConfigShape, _EXAMPLE, "The keys that mean something here, by name."),
        **errors(*READ_PROBLEMS, FORBIDDEN),
    },
)
async def get_config(request: Request) -> Response:
    """GET_NAMESRV_CONFIG (319) of this gateway: what it was started with, and switches that were set since.

    Where there are accounts, an admin's alone, as over remoting. When a switch was set and by whom is among the changes
    of kvConfigTable.
    """
    context = context_of(request)
    context.guard.reader(request)
    check_once(request)
    found = {"config": shown_settings(context.gateway.settings)}
    return Response(msgspec.json.encode(found), 200, {"cache-control": "no-store"}, JSON)
