# SPDX-License-Identifier: Apache-2.0
"""Common part of all writes: the body, the receipt, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import msgspec
from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from api.gateway.gateway import KV_FULL, Receipt
from api.http.answers import ReceiptAnswer
from api.http.body import Body
from api.http.context import HttpContext, context_of
from api.http.etag import offset_token
from api.http.problems import INTERNAL, REFUSED, TOO_LARGE, Problem, rfc3339_ms
from api.http.reads import uncached
from api.http.validation import decode
from schemas.events import AnyEvent
from schemas.outcomes import KV_TABLE_FULL, REJECTED, SINGLE_TOPIC_REFUSED, STATE_VERSION_CONFLICT
from security.admission.admission import Sender

_OFF_LOOP_BYTES: Final = 64 * 1024
"""A body of this size or more is parsed in a thread."""

_WHY: Final = {
    SINGLE_TOPIC_REFUSED: "a registration with exactly one topic may not create a broker: register all topics first",
    KV_TABLE_FULL: KV_FULL,
    STATE_VERSION_CONFLICT: "this brokerId is held by a living address with a higher stateVersion",
}

_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")


async def read_body(
    request: Request, model: type[_M], convert: Callable[[_M], _T], *, max_bytes: int | None = None
) -> tuple[_T, int]:
    """Return the body of a write as ``convert`` makes it from the model, and its size.

    Raises:
        Problem: The body cannot be accepted. The problem says why.
    """
    context = context_of(request)
    settings = context.settings
    limit = settings.max_small_body_bytes if max_bytes is None else max_bytes
    with Body(request, context.budget, max_bytes=limit, timeout_s=settings.body_timeout_s) as body:
        data = await body.read()
        if len(data) < _OFF_LOOP_BYTES:
            return convert(decode(data, model)), len(data)
        return await asyncio.to_thread(lambda: convert(decode(data, model))), len(data)


async def command(request: Request, sender: Sender, event: AnyEvent) -> Response:
    """Append an event to the event log, and return its `receipt_answer`."""
    context = context_of(request)
    return receipt_answer(context, await context.gateway.propose(event, sender))


def receipt_answer(
    context: HttpContext,
    receipt: Receipt,
    kind: type[ReceiptAnswer] = ReceiptAnswer,
    **more: Any,  # noqa: ANN401 (members of any type)
) -> Response:
    """Return 200 with the outcome of a write, or 202 if it is durable but the live view cannot show the outcome.

    Args:
        context: Context of the request.
        receipt: Receipt of the gateway.
        kind: Type of the answer.
        more: Members of the answer in addition to those of every receipt. None is left out.

    Raises:
        Problem: The rules refused the event (409, or 413 if the KV configuration is full), or a rule failed (500).
    """
    found = kind(
        offset=receipt.offset,
        event_time=rfc3339_ms(receipt.event_time_ms),
        visible=receipt.visible,
        epoch=context.gateway.live_view.view.epoch,
        outcome=cast("Any", receipt.verdict),  # a refusal does not show it
        **more,
    )
    if receipt.verdict == REJECTED:
        reason = receipt.reason
        members = {"reason": reason, **msgspec.to_builtins(found)}
        del members["outcome"]
        if receipt.is_quarantined:
            text = "a rule of the fold failed on it, which is a defect of routelake: quarantineTable has it"
            raise Problem(INTERNAL, text, members=members)
        text = _WHY.get(reason or "", "the rules refuse it")
        raise Problem(TOO_LARGE if reason == KV_TABLE_FULL else REFUSED, text, members=members)
    headers = {
        "x-routelake-epoch": str(found.epoch),
        "x-routelake-offset": str(receipt.offset),
        "x-routelake-token": offset_token(receipt.offset, context.gateway.lineage),
    }
    return uncached(found, 200 if receipt.visible else 202, headers)
