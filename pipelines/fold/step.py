"""step(state, event): what one log record does to the route tables.

`step_group` and `step_kv` apply an event to the one state it touches; `step` does so for a whole `RouteState`,
settling expiries first. The Spark processor calls the same functions for the groups of its shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pipelines.fold import kvconfig, liveness, registration, topics
from pipelines.fold.state import UNCHANGED, At, BrokerGroup, KvTable, Outcome, RouteState, replace
from schemas.events import (
    AddWritePerm,
    AnyEvent,
    BrokerHeartbeat,
    ChannelClosed,
    Clock,
    DeleteKvConfig,
    DeleteTopic,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    Resume,
    UnregisterBroker,
    WipeWritePerm,
)

BROKER_EXPIRED: Final = "BROKER_EXPIRED"
"""Command name of an expiry in routeChangeTable: nobody sent it."""


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One group before and after one cause. ``event`` is None for an expiry, whose ``at`` is its deadline."""

    before: BrokerGroup
    after: BrokerGroup
    at: At
    event: AnyEvent | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class KvChange:
    """KV configuration before and after one command."""

    before: KvTable
    after: KvTable
    at: At
    event: PutKvConfig | DeleteKvConfig
    outcome: Outcome


_GROUP_RULES: Final[dict[type[Any], Callable[[BrokerGroup, Any, At], tuple[BrokerGroup, Outcome]]]] = {
    RegisterBroker: registration.register,
    UnregisterBroker: liveness.unregister,
    BrokerHeartbeat: liveness.heartbeat,
    ChannelClosed: liveness.channel_closed,
    DeleteTopic: lambda group, event, at: topics.delete_topic(group, event),
    RegisterTopic: lambda group, event, at: topics.register_topic(group, event),
    WipeWritePerm: lambda group, event, at: topics.wipe_write_perm(group, event),
    AddWritePerm: lambda group, event, at: topics.add_write_perm(group, event),
    Clock: lambda group, event, at: (group, UNCHANGED),
}

_KV_RULES: Final[dict[type[Any], Callable[[KvTable, Any], tuple[KvTable, Outcome]]]] = {
    PutKvConfig: kvconfig.put,
    DeleteKvConfig: kvconfig.delete,
}


def expire(group: BrokerGroup, now_ms: int) -> Iterator[GroupChange]:
    """The expiries of a group due before ``now_ms``, each as a change of its own."""
    before = group
    for after, _, at in liveness.settle(group, now_ms):
        yield GroupChange(before, after, at, None, Outcome("applied"))
        before = after


def step_group(group: BrokerGroup, event: AnyEvent, at: At) -> GroupChange:
    """Apply one event to one group. The caller has settled the group up to ``at.now_ms``."""
    after, outcome = _GROUP_RULES[type(event)](group, event, at)
    return GroupChange(group, after, at, event, outcome)


def step_kv(kv: KvTable, event: PutKvConfig | DeleteKvConfig, at: At) -> KvChange:
    """Apply one KV command."""
    after, outcome = _KV_RULES[type(event)](kv, event)
    return KvChange(kv, after, at, event, outcome)


def resume_gap_ms(state_resumed_ms: int, event: Resume, at: At) -> int:
    """How long nobody listened before this RESUME; two gateways that start together count the gap once."""
    previous = event.previous_event_time_ms
    if previous is None or previous < state_resumed_ms:
        return 0
    return max(0, at.now_ms - previous)


def resume_group(group: BrokerGroup, event: Resume, gap_ms: int) -> BrokerGroup:
    """The group with its deadlines moved by the gap; the caller has settled it up to the time before the gap."""
    return liveness.extend_deadlines(group, gap_ms)


def touched_groups(state: RouteState, event: AnyEvent) -> list[BrokerGroup]:
    """The groups an event may change: its own, which may be new, or all."""
    match event:
        case DeleteTopic() | Clock() | Resume():
            return list(state.groups.values())
        case PutKvConfig() | DeleteKvConfig():
            return []
        case RegisterTopic():
            name = event.queue_data.broker_name
        case _:
            name = event.broker_name
    return [state.groups.get(name) or BrokerGroup(name)]


def step(state: RouteState, event: AnyEvent, at: At) -> tuple[RouteState, list[GroupChange | KvChange]]:
    """Fold one log record.

    Args:
        state: everything known before it.
        event: the decoded record.
        at: its offset and event time; an event time below one already seen counts as that one.

    Returns:
        The next state and every change in order: expiries that were due, then the event's own effect on each group
        it touches (also when nothing changed there, so that every event has an outcome).
    """
    at = At(at.offset, max(at.now_ms, state.now_ms))
    if isinstance(event, PutKvConfig | DeleteKvConfig):
        change = step_kv(state.kv, event, at)
        return replace(state, kv=change.after, now_ms=at.now_ms), [change]

    if isinstance(event, Resume):
        return _resume(state, event, at)

    groups = dict(state.groups)
    changes: list[GroupChange | KvChange] = []
    for group in touched_groups(state, event):
        effects = effects_on(group, event, at)
        changes += effects
        _put(groups, effects[-1].after)
    return replace(state, groups=groups, now_ms=at.now_ms), changes


def effects_on(group: BrokerGroup, event: AnyEvent, at: At) -> list[GroupChange]:
    """Expiries of a group that were due, and last the event's own effect on it."""
    changes: list[GroupChange] = []
    for expiry in expire(group, at.now_ms):
        changes.append(expiry)
        group = expiry.after
    return [*changes, step_group(group, event, at)]


def settle_all(state: RouteState, now_ms: int) -> tuple[RouteState, list[GroupChange | KvChange]]:
    """Expire what is due before ``now_ms`` in every group: what the event-time timers do at a watermark."""
    groups = dict(state.groups)
    changes: list[GroupChange | KvChange] = []
    for group in state.groups.values():
        for expiry in expire(group, now_ms):
            changes.append(expiry)
            _put(groups, expiry.after)
    return replace(state, groups=groups), changes


def _resume(state: RouteState, event: Resume, at: At) -> tuple[RouteState, list[GroupChange | KvChange]]:
    settled = state
    changes: list[GroupChange | KvChange] = []
    if event.previous_event_time_ms is not None:
        settled, changes = settle_all(state, min(event.previous_event_time_ms, at.now_ms))
    gap_ms = resume_gap_ms(state.resumed_ms, event, at)
    groups = {name: resume_group(group, event, gap_ms) for name, group in settled.groups.items()}
    return replace(settled, groups=groups, now_ms=at.now_ms, resumed_ms=at.now_ms), changes


def _put(groups: dict[str, BrokerGroup], group: BrokerGroup) -> None:
    if group.empty:
        groups.pop(group.broker_name, None)
    else:
        groups[group.broker_name] = group


__all__ = [
    "BROKER_EXPIRED",
    "GroupChange",
    "KvChange",
    "expire",
    "resume_gap_ms",
    "resume_group",
    "settle_all",
    "step",
    "step_group",
    "step_kv",
    "touched_groups",
]
