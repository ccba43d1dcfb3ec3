# SPDX-License-Identifier: Apache-2.0
"""Self-preservation over HTTP: how it stands, its live switch, and an admin's word that ends a pause (ADR 14)."""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from api.gateway.self_preservation import census_of, preserved_ms_of
from api.http.answers import ReceiptAnswer, SelfPreservationAnswer
from api.http.context import context_of
from api.http.etag import JSON
from api.http.models import SelfPreservationBody
from api.http.openapi import BODY_PROBLEMS, READ_PROBLEMS, RECEIPT_EXAMPLE, body, errors, plain, write
from api.http.problems import rfc3339_ms
from api.http.reads import check_once
from api.http.writes import read_body, receipt_answer
from api.settings.keys import SELF_PRESERVATION
from nameserver.state_machine.preservation import EndReason
from schemas.events import PreserveEnd, PutKvConfig
from schemas.kv import NAMESRV_CONFIG

router = APIRouter(prefix="/v1/self-preservation", tags=["admin"])

_encode = msgspec.json.Encoder().encode
_EXAMPLE: Final = {
    "percent": 15,
    "isOn": True,
    "since": "2026-01-01T00:00:00.000Z",
    "until": "2026-01-01T01:00:00.000Z",
    "live": 20,
    "silent": 19,
}


@router.get(
    "",
    operation_id="getSelfPreservation",
    summary="Return the state of self-preservation",
    responses={200: plain(SelfPreservationAnswer, _EXAMPLE, "How it stands."), **errors(*READ_PROBLEMS)},
)
async def get_self_preservation(request: Request) -> Response:
    """The switch, the pause if there is one, and how many brokers lack heartbeats now, in the live view."""
    context = context_of(request)
    context.guard.reader(request)
    check_once(request)
    gateway = context.gateway
    view, settings = gateway.live_view.view, gateway.settings
    since_ms = preserved_ms_of(view)
    limit_ms = round(settings.self_preservation_limit_s * 1000)
    counted = gateway.preservation.counted or census_of(view, gateway.live_view.event.now_ms)
    found = SelfPreservationAnswer(
        percent=settings.self_preservation_percent,
        is_on=since_ms > 0,
        since=rfc3339_ms(since_ms) if since_ms else None,
        until=rfc3339_ms(since_ms + limit_ms) if since_ms else None,
        live=counted.live,
        silent=counted.silent,
    )
    return Response(_encode(found), 200, {"cache-control": "no-store"}, JSON)


@router.put(
    "",
    operation_id="setSelfPreservation",
    summary="Set the threshold of self-preservation",
    responses=write(ReceiptAnswer, RECEIPT_EXAMPLE, *BODY_PROBLEMS),
    openapi_extra=body(SelfPreservationBody, share=("15 % of the live brokers", {"percent": 15})),
)
async def set_self_preservation(request: Request) -> Response:
    """The live switch selfPreservationPercent, for every gateway of the log, over their options, also after restarts.

    0 switches self-preservation off, and ends a pause.
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    event, _ = await read_body(
        request,
        context,
        SelfPreservationBody,
        lambda model: PutKvConfig(
            actor=sender.actor, namespace=NAMESRV_CONFIG, key=SELF_PRESERVATION, value=str(model.percent)
        ),
    )
    return receipt_answer(context, await context.gateway.propose(event, sender))


@router.post(
    "/end",
    operation_id="endSelfPreservation",
    summary="End a pause of expiry",
    responses=write(ReceiptAnswer, RECEIPT_EXAMPLE),
)
async def end_self_preservation(request: Request) -> Response:
    """End a pause: overdue brokers expire at once, others at their deadlines.

    Without a pause the outcome is `unchanged`. Self-preservation does not begin again until the brokers without
    heartbeats are back or removed. The request needs no body.
    """
    context = context_of(request)
    sender = context.guard.writer(request)
    check_once(request)
    event = PreserveEnd(actor=sender.actor, grace_ms=0, reason=EndReason.REQUESTED)
    return receipt_answer(context, await context.gateway.propose(event, sender))
