# SPDX-License-Identifier: Apache-2.0
"""Health and metrics: the process is alive, the gateway is ready, the fold works.

A load balancer must not confuse two questions.

*Does this gateway answer routes?* It does from its first view on, even without a fold, with a log that refuses appends,
or with a log that cannot be read. These problems affect all gateways of a lake at once: if a load balancer removes all
of them, that is an outage. Only a problem of this gateway alone makes it unready. Either it holds its routes back, or
its routes stand still while the tables move on.

*Is everything healthy?* This is for alarms, and for programs that need all of it at their start.
"""

from __future__ import annotations

import re
import time
from typing import Annotated, Final

from fastapi import Query, Request
from starlette.responses import Response

from api.gateway.gateway import Gateway
from api.gateway.metrics import CONTENT_TYPE
from api.http.answers import Check, FoldHealthAnswer, FoldLag, HealthAnswer, ReadyAnswer
from api.http.context import HttpContext, Router, context_of
from api.http.openapi import json_response, problem_responses, text_response
from api.http.problems import BAD_PARAMETER, RETRY, UNAUTHORIZED, bad_parameter
from api.http.reads import check_once, uncached
from api.live_view.replica import LiveReplica
from api.settings.gateway import Reads
from runtime.version import release

_MAX_EPOCHS_BEHIND: Final = 50
"""A view that is more epochs behind the fold than this is not fresh."""

_AHEAD_S: Final = 30.0
"""Accepted difference between the clocks of two machines, in seconds."""


def service_problem(gateway: Gateway) -> str | None:
    """Return why no traffic should go to this gateway. None while it answers routes."""
    if not gateway.is_ready_for_service:
        return "routes are held back until brokers had time to register (needWaitForService)"
    return _lag_problem(gateway)


def view_problem(gateway: Gateway) -> str | None:
    """Return why the view is not reliable. None if it is, or if the lake is empty."""
    if gateway.replica.failing:
        return "cannot read the event log, so the routes are not updated: see the gateway's log"
    if gateway.follower.failing:
        return f"the tables cannot be read: {gateway.follower.last_error}"
    return service_problem(gateway)


def log_problem(gateway: Gateway) -> str | None:
    """Return why no write is possible. None if writes are possible."""
    if gateway.clock_problem is not None:
        return gateway.clock_problem
    if gateway.log_failing:
        return "appends to the event log fail or do not finish: see the gateway's log"
    return None


def clock_problem(gateway: Gateway) -> str | None:
    """Return the problem if event time and this machine's clock are far apart, or None."""
    ahead_s = gateway.live_view.event.ahead_s
    if ahead_s is None or ahead_s <= _AHEAD_S:
        return None
    return (
        f"the time of the event log is {ahead_s:.0f} s ahead of this machine's clock: correct the clock that is or was "
        "wrong (docs/how-to/operate/clocks.md)"
    )


def _lag_problem(gateway: Gateway) -> str | None:
    fold, epoch = gateway.fold.status, gateway.follower.view.epoch
    if fold is not None and fold.epoch - epoch > _MAX_EPOCHS_BEHIND:
        return f"the routes are at epoch {epoch}, but the fold is at {fold.epoch}"
    return None


def routes_age_s(gateway: Gateway) -> float | None:
    """Return the age of the routes that are answered, in seconds. None without routes.

    Answers do not include events that came to the log since then.

    Args:
        gateway: Gateway that answers them.
    """
    age_s = gateway.shown.event.age_s
    fold = gateway.fold.status
    is_committed = gateway.settings.reads is Reads.COMMITTED or gateway.replica.fallback_reason is not None
    if is_committed and fold is not None and gateway.committed.view.epoch >= fold.epoch:
        ages = (age_s, gateway.fold.age_s)  # without new events there is no new epoch
        age_s = min((age for age in ages if age is not None), default=None)
    return age_s


def live_view_problem(replica: LiveReplica) -> str | None:
    """Return why answers are not from the live view, or how the tables have differed from the log since the start."""
    if replica.fallback_reason is not None:
        return f"fallback mode: serving the committed view: {replica.fallback_reason}"
    if replica.checks.last is None:
        return None
    return f"the tables differ from the event log, and the routes are those of the event log: {replica.checks.last}"


def preservation_problem(gateway: Gateway) -> str | None:
    """Return since when no broker expires, and how many are silent. None while brokers expire.

    Args:
        gateway: Gateway to check.
    """
    since_ms = gateway.live_view.view.commit.preserved_ms
    if not since_ms:
        return None
    counted = gateway.preservation.counted
    count = "" if counted is None else f"; {counted.silent} of {counted.live} have no heartbeats"
    since_s = (gateway.live_view.event.now_ms - since_ms) / 1000
    return f"self-preservation: no broker expires since {since_s:.0f} s{count}"


def fold_problem(gateway: Gateway, *, stale_s: float) -> str | None:
    """Return why the fold is not reliable. None if it is.

    Args:
        gateway: Gateway that follows the fold's status.
        stale_s: Age of the last status, in seconds, after which the fold counts as down.
    """
    status, failure = gateway.fold.status, gateway.fold.failure
    why = "" if failure is None else f"; it failed {gateway.fold.failure_age_s or 0.0:.0f} s ago: {failure.error}"
    if status is None:
        return f"the fold has not run on this lake yet{why}"
    age_s = gateway.fold.age_s or 0.0
    if age_s > stale_s or failure is not None:
        return f"the last status of the fold is {age_s:.0f} s old{why}"
    behind = gateway.started_offset - gateway.committed.offset
    if behind > 0:
        return f"the fold is catching up: {behind} events before the start of this gateway are not in the tables yet"
    return None


router = Router(tags=["health"])

_HIDDEN: Final = "see the gateway's log, or ask as a reader"
_LONGEST_REASON: Final = 400
_JAVA_FRAMES: Final = re.compile(r"( at [\w.$/<>]+\([^()]*\))+")


@router.get(
    "/healthz", summary="Check that the process is alive", responses={200: json_response(HealthAnswer, "It is.")}
)
async def health(request: Request) -> Response:
    """200 as long as the event loop runs. If it does not answer, restart the process.

    Version, gateway and uptime need the role reader.
    """
    context = context_of(request)
    gateway = context.gateway
    if not context.guard.may_see_details(request):
        return uncached(HealthAnswer(status="ok"))
    uptime_s = round(time.monotonic() - gateway.started_s, 3)
    name = gateway.settings.gateway_id
    return uncached(HealthAnswer(status="ok", version=release(), gateway=name, uptime_seconds=uptime_s))


@router.get(
    "/readyz",
    summary="Check that this gateway answers routes",
    responses={
        200: json_response(ReadyAnswer, "It does. `checks` may name something that is wrong all the same."),
        503: json_response(ReadyAnswer, "It does not; with `strict`: something is wrong. `checks` says what."),
        **problem_responses(BAD_PARAMETER),
    },
)
async def ready(
    request: Request,
    strict: Annotated[str | None, Query(description="If present, ready only if every check is ok.")] = None,
) -> Response:
    """200 while this gateway answers routes, also without a fold or without the event log.

    Without them it serves the last known routes, and `routesAgeSeconds` has their age. A gateway is not ready if other
    gateways are better: at its start (needWaitForService), and if its routes do not follow the tables.

    `/readyz?strict` is 200 only if every check is ok:

    - `view`: the routes follow the event log or the tables.
    - `eventLog`: the event log can be written.
    - `fold`: the fold runs and keeps up, as `/healthz/fold`.
    - `liveView`: answers come from the live view, and the tables never differed from it.
    - `clock`: event time is not ahead of this machine's clock.
    - `selfPreservation`, if it is on: no pause keeps brokers without heartbeats routed.
    - `accounts` and `tls`, if configured: their files were readable after the last change.

    The reasons need the role reader. Other clients get one general sentence.
    """
    context = context_of(request)
    gateway = context.gateway
    problems = {
        "view": view_problem(gateway),
        "eventLog": log_problem(gateway),
        "fold": fold_problem(gateway, stale_s=_stale_s(context)),
        "liveView": live_view_problem(gateway.replica),
        "clock": clock_problem(gateway),
    }
    preservation = preservation_problem(gateway)
    if preservation is not None or gateway.settings.self_preservation_percent:
        problems["selfPreservation"] = preservation
    if context.guard.has_accounts:
        problems["accounts"] = context.guard.file_problem
    if context.tls is not None:
        problems["tls"] = context.tls.problem
    is_seen = context.guard.may_see_details(request)
    checks = {name: _check(problem, is_seen=is_seen) for name, problem in problems.items()}
    if _is_strict(request, strict):
        is_ready = all(check.ok for check in checks.values())
    else:
        is_ready = service_problem(gateway) is None
    age_s = routes_age_s(gateway)
    found = ReadyAnswer(
        ready=is_ready,
        epoch=gateway.view.epoch,
        offset=gateway.shown.offset,
        routes_age_seconds=None if age_s is None else round(age_s, 3),
        checks=checks,
    )
    return _health_answer(found, is_well=is_ready)


@router.get(
    "/healthz/fold",
    summary="Check that the fold runs and keeps up",
    responses={
        200: json_response(FoldHealthAnswer, "It is, and does."),
        503: json_response(FoldHealthAnswer, "It is not; `reason` says why. Routes are answered all the same."),
    },
)
async def fold_health(request: Request) -> Response:
    """The last status of the fold, and the lag of tables and history behind acknowledged writes.

    Use it for alerts on the fold. All gateways of a lake give the same answer, so do not remove a gateway for it.
    """
    context = context_of(request)
    gateway = context.gateway
    reason = fold_problem(gateway, stale_s=_stale_s(context))
    status = gateway.fold.status
    check = _check(reason, is_seen=context.guard.may_see_details(request))
    found = FoldHealthAnswer(
        ok=check.ok,
        reason=check.reason,
        epoch=None if status is None else status.epoch,
        offset=None if status is None else status.log_offset,
        lag=FoldLag(
            epochs=0 if status is None else max(0, status.epoch - gateway.committed.view.epoch),
            events=context.events_not_in_tables,
            seconds=None if gateway.fold.age_s is None else round(gateway.fold.age_s, 3),
        ),
    )
    return _health_answer(found, is_well=reason is None)


@router.get(
    "/metrics",
    summary="Return metrics for Prometheus",
    response_class=Response,
    responses={200: text_response("text/plain", "The text exposition format."), **problem_responses(UNAUTHORIZED)},
)
async def metrics(request: Request) -> Response:
    """Counters, latencies and gauges. No label contains a topic.

    With several worker processes (`--workers`), each answer has the metrics of all. The label `worker` is the process.
    """
    context = context_of(request)
    workers = context.metrics.workers
    body = context.metrics.text() if workers is None else await workers.text()
    return Response(body, 200, {"cache-control": "no-store", "content-type": CONTENT_TYPE})


def _check(reason: str | None, *, is_seen: bool) -> Check:
    """Return a check with its reason in one line, or with the place where to find the reason."""
    if reason is None:
        return Check(ok=True)
    if not is_seen:
        return Check(ok=False, reason=_HIDDEN)
    line = _JAVA_FRAMES.sub("", " ".join(reason.split()))
    return Check(ok=False, reason=line if len(line) <= _LONGEST_REASON else line[:_LONGEST_REASON] + "...")


def _is_strict(request: Request, text: str | None) -> bool:
    """Return true for ``?strict`` and ``?strict=true``, false for ``?strict=false``. Other values raise Problem."""
    check_once(request)
    if text is None:
        return False
    if text.lower() not in ("", "true", "1", "false", "0"):
        raise bad_parameter("strict", "must be true, false or empty")
    return text.lower() in ("", "true", "1")


def _stale_s(context: HttpContext) -> float:
    """Return the age at which the fold counts as down. On a quiet log it has work, and a new status, at each CLOCK."""
    return max(context.settings.fold_stale_s, 2 * context.gateway.settings.clock_interval_s)


def _health_answer(found: ReadyAnswer | FoldHealthAnswer, *, is_well: bool) -> Response:
    return uncached(found) if is_well else uncached(found, 503, RETRY)
