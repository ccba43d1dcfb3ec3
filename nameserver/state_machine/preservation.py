# SPDX-License-Identifier: Apache-2.0
"""Decision whether expiry should pause because many brokers miss heartbeats, and when a pause ends (ADR 14). Pure.

A gateway makes the decision from its live view, and writes it to the event log. `step` only follows these events.

A broker is *silent* if more than half of its timeout has passed. Stock brokers send a heartbeat every 30 s and expire
after 120 s. So a silent broker has missed two heartbeats and has 60 s left. RESUME moves deadlines, so time in which no
gateway listened makes no broker silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from nameserver.state_machine.state import FOR_EVER_MS, LiveInfo, LiveKey
from schemas.events import Actor, Preserve, PreserveEnd

CLOSED_GRACE_MS: Final = 10_000
"""Time that a broker has to register after its connection was lost, in ms. RocketMQ's clients reconnect at once."""

BACK_GRACE_MS: Final = 30_000
"""Time for the last silent brokers to return after a pause that ended because most returned, in ms. Stock brokers send
a heartbeat in that time."""


class EndReason(StrEnum):
    """Reason for the end of a pause."""

    RECOVERED = "RECOVERED"
    LIMIT = "LIMIT"
    SWITCHED_OFF = "SWITCHED_OFF"
    REQUESTED = "REQUESTED"


class Census(NamedTuple):
    """Number of live addresses, and number of silent ones among them."""

    live: int
    silent: int

    def exceeds(self, percent: int) -> bool:
        """Return True if more than that percentage is silent.

        A single silent broker never counts, because it is a dead broker and not a network failure.
        """
        return self.silent > 1 and self.silent * 100 > self.live * percent


LiveRows = Mapping[LiveKey, LiveInfo]


def is_silent(live: LiveInfo, now_ms: int) -> bool:
    """Return True if more than half of a broker's timeout has passed. A broker that never expires is never silent."""
    return live.expire_ms < FOR_EVER_MS and 2 * (live.expire_ms - now_ms) < live.heartbeat_timeout_ms


def census(rows: LiveRows, now_ms: int) -> Census:
    """Count live addresses, except those that other brokers have (`superseded`).

    Args:
        rows: All live rows.
        now_ms: Time of the log, in milliseconds.
    """
    counted = [is_silent(rows[key], now_ms) for key in rows.keys() - superseded(rows, now_ms)]
    return Census(len(counted), sum(counted))


def superseded(rows: LiveRows, now_ms: int) -> list[LiveKey]:
    """Return the silent brokers at addresses of brokers with another name. They were restarted under that name.

    Such a broker does not indicate a network failure, and its topics must not be routed to that address any more.
    """
    silent = [key for key, live in rows.items() if is_silent(live, now_ms)]
    if not silent:
        return []
    names: dict[str, set[str]] = {addr: set() for _, _, addr in silent}
    for (name, _, addr), live in rows.items():
        if addr in names and not is_silent(live, now_ms):
            names[addr].add(name)
    return [(name, cluster, addr) for name, cluster, addr in silent if names[addr] - {name}]


class Switch(NamedTuple):
    """Self-preservation settings in force.

    ``percent`` is the part of the live brokers that may expire within one timeout. 0 means off: all of them may.
    ``is_ordered`` is True if the live switch set the values, for all gateways of the event log. Otherwise they come
    from this gateway's options.
    """

    percent: int
    limit_ms: int
    is_ordered: bool = False


def to_begin(switch: Switch, counted: Census, actor: Actor) -> Preserve | None:
    """Return the event that begins a pause, if none is in force. None if the switch does not require one."""
    if not switch.percent or not counted.exceeds(switch.percent):
        return None
    return Preserve(actor=actor, live=counted.live, silent=counted.silent, percent=switch.percent)


def to_end(switch: Switch, counted: Census, preserved_ms: int, now_ms: int, actor: Actor) -> PreserveEnd | None:
    """Return the event that ends a pause. None while the pause should continue.

    If a gateway's own option is off, it does not end a pause that other gateways began, except at its limit.

    Args:
        switch: Settings in force.
        counted: Number of silent brokers.
        preserved_ms: Begin of the pause, in event time.
        now_ms: Time of the log, in milliseconds.
        actor: Gateway that decides.
    """
    if now_ms - preserved_ms >= switch.limit_ms:
        return PreserveEnd(actor=actor, grace_ms=0, reason=EndReason.LIMIT)
    if switch.percent:
        if not counted.exceeds(switch.percent):
            return PreserveEnd(actor=actor, grace_ms=BACK_GRACE_MS, reason=EndReason.RECOVERED)
    elif switch.is_ordered:
        return PreserveEnd(actor=actor, grace_ms=0, reason=EndReason.SWITCHED_OFF)
    return None
