# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a gateway, if anything, and what of it is a reason to send nobody there.

Two questions that a load balancer must not confuse. *Does this gateway answer routes?* It does from its first view on,
whatever dies behind it: without a fold, with a log that refuses appends, with one that cannot be read. These strike all
gateways of a lake at once, and whoever takes all of them out makes an outage of it. Only what is wrong with
this one alone makes it unready: it holds its routes back, or its routes stand still while the tables go on.
*Is everything well?* is for alarms, and for whoever starts something that needs all of it.
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
    """Why nobody should be sent to this gateway; None while it answers routes."""
    if not gateway.is_ready_for_service:
        return "routes are held back until brokers had time to register (needWaitForService)"
    return _lag_problem(gateway)


def view_problem(gateway: Gateway) -> str | None:
    """Why the view cannot be relied on; None when it can, an empty lake included."""
    status = gateway.follower.status()
    if gateway.replica.failing:
        return "cannot read the event log (see the gateway's log); routes are as they last were"
    if status.failing:
        return f"the tables cannot be read: {status.last_error}"
    return service_problem(gateway)


def log_problem(gateway: Gateway) -> str | None:
    """Why nothing can be written."""
    if gateway.clock_problem is not None:
        return gateway.clock_problem
    if gateway.log_failing:
        return "the event log refuses appends (see the gateway's log), or one has been under way for long"
    return None


def clock_problem(gateway: Gateway) -> str | None:
    """That event time and this machine's clock are far apart; None while they agree."""
    ahead_s = gateway.live_view.event.ahead_s
    if ahead_s is None or ahead_s <= _AHEAD_S:
        return None
    return (
        f"the event log's time is {ahead_s:.0f} s ahead of this machine's clock: one of the clocks is wrong, or was "
        "when it wrote (docs/how-to/operate/clocks.md)"
    )


def _lag_problem(gateway: Gateway) -> str | None:
    fold, epoch = gateway.fold.status, gateway.follower.status().epoch
    if fold is not None and fold.epoch - epoch > _MAX_EPOCHS_BEHIND:
        return f"the view is at epoch {epoch}, the fold at {fold.epoch}"
    return None


def routes_age_s(gateway: Gateway) -> float | None:
    """How old the routes are that are answered, seconds: what came to the log since is not in. None: there is nothing.

    Args:
        gateway: Which answers them.
    """
    age_s = gateway.shown.event.age_s
    fold = gateway.fold.status
    is_committed = gateway.settings.reads is Reads.COMMITTED or gateway.replica.fallback_reason is not None
    if is_committed and fold is not None and gateway.committed.view.epoch >= fold.epoch:
        ages = (age_s, gateway.fold.age_s)  # a quiet stretch makes no epoch
        age_s = min((age for age in ages if age is not None), default=None)
    return age_s


def live_view_problem(replica: LiveReplica) -> str | None:
    """Why answers are not from the live view, or how the tables have differed from the event log since the start."""
    if replica.fallback_reason is not None:
        return f"answers follow the tables alone: {replica.fallback_reason}"
    if replica.checks.last is None:
        return None
    return f"the tables differ from the event log, which answers follow: {replica.checks.last}"


def preservation_problem(gateway: Gateway) -> str | None:
    """That nobody expires, since when, and how many are silent; None while brokers do.

    Args:
        gateway: Which looks at them.
    """
    since_ms = preserved_ms_of(gateway.live_view.view)
    if not since_ms:
        return None
    counted = gateway.preservation.counted
    who = "" if counted is None else f"; {counted.silent} of {counted.live} are silent"
    return f"self-preservation: no broker expires since {(gateway.live_view.event.now_ms - since_ms) / 1000:.0f} s{who}"


def fold_problem(gateway: Gateway, *, stale_s: float) -> str | None:
    """Why the fold cannot be relied on.

    Args:
        gateway: Which has its status.
        stale_s: Not heard of for this long is not alive.
    """
    status, failure = gateway.fold.status, gateway.fold.failure
    why = "" if failure is None else f"; it failed {gateway.fold.failure_age_s or 0.0:.0f} s ago: {failure.error}"
    if status is None:
        return f"the fold has not run on this lake yet{why}"
    age_s = gateway.fold.age_s or 0.0
    if age_s > stale_s or failure is not None:
        return f"the fold was last heard of {age_s:.0f} s ago{why}"
    behind = gateway.started_offset - gateway.committed.offset
    if behind > 0:
        return f"the fold has {behind} events to go to the start of this gateway"
    return None
