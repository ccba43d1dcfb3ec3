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

from api.gateway import Gateway, Reads
from api.head.head import Head
from api.self_preservation import preserved_ms_of

_MAX_EPOCHS_BEHIND: Final = 50
"""A view further behind the fold than this is not fresh."""


def service_problem(gateway: Gateway) -> str | None:
    """Why nobody should be sent to this gateway; None while it answers routes."""
    if not gateway.is_ready_for_service:
        return "routes are held back until brokers had time to register (needWaitForService)"
    return _lag_problem(gateway)


def view_problem(gateway: Gateway) -> str | None:
    """Why the view cannot be relied on; None when it can, an empty lake included."""
    status = gateway.follower.status()
    if gateway.head.failing:
        return "the head of the log cannot be followed (see the gateway's log); routes are as they last were"
    if status.failing:
        return f"the tables cannot be read: {status.last_error}"
    return service_problem(gateway)


def log_problem(gateway: Gateway) -> str | None:
    """Why nothing can be written."""
    if gateway.log_failing:
        return "the event log refuses appends (see the gateway's log), or one has been under way for long"
    return None


def _lag_problem(gateway: Gateway) -> str | None:
    fold, epoch = gateway.fold.status, gateway.follower.status().epoch
    if fold is not None and fold.epoch - epoch > _MAX_EPOCHS_BEHIND:
        return f"the view is at epoch {epoch}, the fold at {fold.epoch}"
    return None


def routes_age_s(gateway: Gateway, now_s: float) -> float | None:
    """How old the routes are that are answered, seconds: what came to the log since is not in. None: there is nothing.

    Args:
        gateway: Which answers them.
        now_s: Seconds since 1970.
    """
    newest_s = gateway.view.event_time.timestamp()
    fold = gateway.fold.status
    is_committed = gateway.settings.reads is Reads.COMMITTED or gateway.head.aside is not None
    if is_committed and fold is not None and gateway.committed.view.epoch >= fold.epoch:
        newest_s = max(newest_s, fold.time_ms / 1000)  # a quiet stretch makes no epoch
    return max(0.0, now_s - newest_s) if newest_s else None


def head_problem(head: Head) -> str | None:
    """Why answers are not from the head, or what there was between head and tables since the start."""
    if head.aside is not None:
        return f"answers follow the tables alone: {head.aside}"
    return None if head.checks.last is None else f"head and tables differed, and the tables won: {head.checks.last}"


def preservation_problem(gateway: Gateway, now_s: float) -> str | None:
    """That nobody expires, since when, and how many are silent; None while brokers do.

    Args:
        gateway: Which looks at them.
        now_s: Seconds since 1970.
    """
    since_ms = preserved_ms_of(gateway.at_head.view)
    if not since_ms:
        return None
    counted = gateway.preservation.counted
    who = "" if counted is None else f"; {counted.silent} of {counted.live} are silent"
    return f"self-preservation: no broker expires since {now_s - since_ms / 1000:.0f} s{who}"


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
