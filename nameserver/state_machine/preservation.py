# SPDX-License-Identifier: Apache-2.0
"""Decide whether expiry should pause because many brokers miss heartbeats, and when a pause ends (ADR 14). Pure.

A gateway asks this of its live view, and writes the decision to the event log. `step` only follows these events.

A broker is *silent* when more than half of its timeout has passed. Stock brokers send a heartbeat every 30 s and expire
after 120 s, so a silent broker has missed two heartbeats and has 60 s left. RESUME moves deadlines, so time in which no
gateway listened makes no broker silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from nameserver.state_machine.state import FOR_EVER_MS, LiveInfo, LiveKey
from schemas.events import Actor, Preserve, PreserveEnd

CLOSED_GRACE_MS: Final = 10_000
"""Time that a broker has to register after its connection was lost. Clients of RocketMQ connect again at once."""

BACK_GRACE_MS: Final = 30_000
"""What the last ones have to come back when a pause ends because most did: a heartbeat of stock brokers."""


class EndReason(StrEnum):
    """Reason for the end of a pause."""

    RECOVERED = "RECOVERED"
    LIMIT = "LIMIT"
    SWITCHED_OFF = "SWITCHED_OFF"
    REQUESTED = "REQUESTED"


class Census(NamedTuple):
    """Number of live addresses, and how many of them are silent."""

    live: int
    silent: int

    def exceeds(self, percent: int) -> bool:
        """Return True if more than that percentage is silent.

        A single silent broker never counts: it is a broker that died, not a network failure.
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
        now_ms: The log's time.
    """
    counted = [is_silent(rows[key], now_ms) for key in rows.keys() - superseded(rows, now_ms)]
    return Census(len(counted), sum(counted))


def superseded(rows: LiveRows, now_ms: int) -> list[LiveKey]:
    """Return the silent brokers whose address now has a broker of another name: it was restarted under that name.

    Such a broker is no sign of a network failure, and its topics must not be routed to that address any more.
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

    ``percent`` of live brokers may expire within one timeout; 0 means all of them: self-preservation is off.
    ``is_ordered`` is True if the live switch set them, for all gateways of the event log. Otherwise they come from this
    gateway's options.
    """

    percent: int
    limit_ms: int
    is_ordered: bool = False


def to_begin(switch: Switch, counted: Census, actor: Actor) -> Preserve | None:
    """The event that begins a pause, where there is none; None if nothing asks for it."""
    if not switch.percent or not counted.exceeds(switch.percent):
        return None
    return Preserve(actor=actor, live=counted.live, silent=counted.silent, percent=switch.percent)


def to_end(switch: Switch, counted: Census, preserved_ms: int, now_ms: int, actor: Actor) -> PreserveEnd | None:
    """The event that ends a pause; None while it should go on.

    A gateway whose own option is off leaves the pause to those that asked for it, except for its limit.

    Args:
        switch: What is wanted now.
        counted: Who is silent.
        preserved_ms: Since when nobody expires.
        now_ms: The log's time.
        actor: Who says it.
    """
    if now_ms - preserved_ms >= switch.limit_ms:
        return PreserveEnd(actor=actor, grace_ms=0, reason=EndReason.LIMIT)
    if switch.percent:
        if not counted.exceeds(switch.percent):
            return PreserveEnd(actor=actor, grace_ms=BACK_GRACE_MS, reason=EndReason.RECOVERED)
    elif switch.is_ordered:
        return PreserveEnd(actor=actor, grace_ms=0, reason=EndReason.SWITCHED_OFF)
    return None
