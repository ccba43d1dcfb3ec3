# SPDX-License-Identifier: Apache-2.0
"""Whether the process is alive, whether it is ready, and its metrics."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from api.gateway import Gateway, Reads
from api.head.head import Head
from api.http.context import context_of
from api.http.describe import errors, plain
from api.http.etag import JSON
from api.http.problems import RETRY, UNAUTHORIZED
from api.http.shapes import HealthShape, ReadyShape
from api.metrics import CONTENT_TYPE
from deploy.version import release

router = APIRouter(tags=["health"])

_encode = msgspec.json.Encoder().encode
_NO_STORE: Final = {"cache-control": "no-store"}

_MAX_EPOCHS_BEHIND: Final = 50
"""A view further behind the fold than this is not fresh."""

_OK: Final[dict[str, Any]] = {"ok": True}
_READY: Final = {"ready": True, "epoch": 5, "offset": 17, "checks": {"view": _OK, "log": _OK, "fold": _OK, "head": _OK}}
_NOT_READY: Final = {
    "ready": False,
    "epoch": 0,
    "offset": -1,
    "checks": {
        "view": {"ok": False, "reason": "the head of the log cannot be followed (see the gateway's log)"},
        **dict.fromkeys(("log", "fold", "head"), _OK),
    },
}


@router.get(
    "/healthz",
    operation_id="health",
    summary="Is the process alive?",
    responses={
        200: plain(
            HealthShape, {"status": "ok", "version": "0.1.0", "gateway": "host-1:9876", "uptimeSeconds": 12.5}, "It is."
        )
    },
)
async def health(request: Request) -> Response:
    """Answers 200 as long as the event loop turns. Restart the process when it does not."""
    gateway = context_of(request).gateway
    uptime_s = round(time.monotonic() - gateway.started_s, 3)
    health = {"status": "ok", "version": release(), "gateway": gateway.settings.gateway_id, "uptimeSeconds": uptime_s}
    return Response(_encode(health), 200, _NO_STORE, JSON)


@router.get(
    "/readyz",
    operation_id="ready",
    summary="Is everything there?",
    responses={
        200: plain(ReadyShape, _READY, "Everything is there."),
        503: plain(ReadyShape, _NOT_READY, "Something is missing; `checks` says what. Routes are served all the same."),
    },
)
async def ready(request: Request) -> Response:
    """200 when the tables can be read, the event log can be written, and the fold is alive and keeps up.

    A gateway that is not ready goes on serving the routes it last saw. One that answers from the head of the log is
    ready without a fold; with `--reads committed` it is not. The check `head` says whether answers can be from there,
    and whether head and tables ever differed; it alone makes no gateway unready.
    """
    context = context_of(request)
    gateway = context.gateway
    # On a quiet log the fold has something to do, and to say, when a CLOCK comes.
    stale_s = max(context.settings.fold_stale_s, 2 * gateway.settings.clock_interval_s)
    checks = {
        "view": _check(view_problem(gateway)),
        "log": _check(
            "the event log refuses appends (see the gateway's log), or one has been under way for long"
            if gateway.log_failing
            else None
        ),
        "fold": _check(fold_problem(gateway, stale_s=stale_s, now_s=time.time())),
        "head": _check(head_problem(gateway.head)),
    }
    is_at_head = gateway.settings.reads is Reads.HEAD and gateway.head.aside is None
    needed = ("view", "log") if is_at_head else ("view", "log", "fold")
    is_ready = all(checks[name]["ok"] for name in needed)
    found = {
        "ready": is_ready,
        "epoch": gateway.view.epoch,
        "offset": gateway.shown.offset,
        "checks": checks,
    }
    return Response(_encode(found), 200 if is_ready else 503, _NO_STORE if is_ready else {**_NO_STORE, **RETRY}, JSON)


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "The text exposition format.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": "routelake_epoch 5.0\n"}},
        },
        **errors(UNAUTHORIZED),
    },
)
async def metrics(request: Request) -> Response:
    """Counters, latencies and gauges. No label holds a topic."""
    context = context_of(request)
    context.guard.reader(request)
    return Response(context.metrics.text(), 200, {**_NO_STORE, "content-type": CONTENT_TYPE})


def view_problem(gateway: Gateway) -> str | None:
    """Why the view cannot be relied on; None when it can, an empty lake included."""
    status = gateway.follower.status()
    if gateway.head.failing:
        return "the head of the log cannot be followed (see the gateway's log); routes are as they last were"
    if status.failing:
        return f"the tables cannot be read: {status.last_error}"
    fold = gateway.fold.status
    if fold is not None and fold.epoch - status.epoch > _MAX_EPOCHS_BEHIND:
        return f"the view is at epoch {status.epoch}, the fold at {fold.epoch}"
    return None


def head_problem(head: Head) -> str | None:
    """Why answers are not from the head, or what there was between head and tables since the start."""
    if head.aside is not None:
        return f"answers follow the tables alone: {head.aside}"
    return None if head.checks.last is None else f"head and tables differed, and the tables won: {head.checks.last}"


def fold_problem(gateway: Gateway, *, stale_s: float, now_s: float) -> str | None:
    """Why the fold cannot be relied on.

    Args:
        gateway: Which has its status.
        stale_s: Not heard of for this long is not alive.
        now_s: Seconds since the epoch.
    """
    status, failure = gateway.fold.status, gateway.fold.failure
    why = "" if failure is None else f"; it failed {now_s - failure.time_ms / 1000:.0f} s ago: {failure.error}"
    if status is None:
        return f"the fold has not run on this lake yet{why}"
    age_s = now_s - status.time_ms / 1000
    if age_s > stale_s or failure is not None:
        return f"the fold was last heard of {age_s:.0f} s ago{why}"
    behind = gateway.started_offset - gateway.committed.offset
    if behind > 0:
        return f"the fold has {behind} events to go to the start of this gateway"
    return None


def _check(reason: str | None) -> dict[str, Any]:
    return _OK if reason is None else {"ok": False, "reason": reason}
