# SPDX-License-Identifier: Apache-2.0
"""Problems of a gateway, and those that are a reason to send no traffic there.

Two questions that a load balancer must not confuse. *Does this gateway answer routes?* It does from its first view on,
whatever dies behind it: without a fold, with a log that refuses appends, with one that cannot be read. These problems
strike all gateways of a lake at once: if a load balancer removes all of them, that is an outage. Only a problem of this
gateway alone makes it unready: it holds its routes back, or its routes stand still while the tables go on.
*Is everything healthy?* is for alarms, and for programs that need all of it at their start.
"""

from __future__ import annotations

from typing import Final

from api.gateway.gateway import Gateway, Reads
from api.gateway.self_preservation import preserved_ms_of
from api.live_view.replica import LiveReplica

_MAX_EPOCHS_BEHIND: Final = 50
"""A view further behind the fold than this is not fresh."""

_AHEAD_S: Final = 30.0
"""Clocks of two machines may differ by so much."""


def service_problem(gateway: Gateway) -> str | None:
    """Return why no traffic should go to this gateway; None while it answers routes."""
    if not gateway.is_ready_for_service:
        return "routes are held back until brokers had time to register (needWaitForService)"
    return _lag_problem(gateway)


def view_problem(gateway: Gateway) -> str | None:
    """Return why the view is not reliable; None if it is, or if the lake is empty."""
    status = gateway.follower.status()
    if gateway.replica.failing:
        return "cannot read the event log, so the routes are not updated: see the gateway's log"
    if status.failing:
        return f"the tables cannot be read: {status.last_error}"
    return service_problem(gateway)


def log_problem(gateway: Gateway) -> str | None:
    """Return why no write is possible; None if writes are possible."""
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
    fold, epoch = gateway.fold.status, gateway.follower.status().epoch
    if fold is not None and fold.epoch - epoch > _MAX_EPOCHS_BEHIND:
        return f"the routes are at epoch {epoch}, but the fold is at {fold.epoch}"
    return None


def routes_age_s(gateway: Gateway) -> float | None:
    """Return the age of the routes that are answered, in seconds; None without routes.

    Answers do not include events that came to the log since then.

    Args:
        gateway: Gateway that answers them.
    """
    age_s = gateway.shown.event.age_s
    fold = gateway.fold.status
    is_committed = gateway.settings.reads is Reads.COMMITTED or gateway.replica.fallback_reason is not None
    if is_committed and fold is not None and gateway.committed.view.epoch >= fold.epoch:
        ages = (age_s, gateway.fold.age_s)  # a quiet stretch makes no epoch
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
    """Return since when no broker expires, and how many are silent; None while brokers expire.

    Args:
        gateway: Gateway to check.
    """
    since_ms = preserved_ms_of(gateway.live_view.view)
    if not since_ms:
        return None
    counted = gateway.preservation.counted
    count = "" if counted is None else f"; {counted.silent} of {counted.live} have no heartbeats"
    since_s = (gateway.live_view.event.now_ms - since_ms) / 1000
    return f"self-preservation: no broker expires since {since_s:.0f} s{count}"


def fold_problem(gateway: Gateway, *, stale_s: float) -> str | None:
    """Return why the fold is not reliable; None if it is.

    Args:
        gateway: Gateway that follows its status.
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
