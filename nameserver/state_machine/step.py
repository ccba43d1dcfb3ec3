# SPDX-License-Identifier: Apache-2.0
"""step(state, event): the effect of one log record on the route tables.

Fold, gateway, replay and tests use only `step` and `apply`. `step` is pure: it reads the state and returns the changes.
`apply` stores the changes in the state, in place. So an event costs as much as the groups that it touches, for any
number of groups. If a rule raises an error, nothing has changed.

Expiry is a rule like any other, so that the state at an offset depends only on the log up to it (ADR 24). CLOCK moves
the watermark to its event time and expires every broker with an earlier deadline. An event about a group first expires
that group's overdue members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from nameserver.state_machine import commands, liveness, registration
from nameserver.state_machine.state import (
    OUTCOME_APPLIED,
    OUTCOME_UNCHANGED,
    At,
    BrokerGroup,
    KvTable,
    Outcome,
    RouteState,
    deadline_ms,
)
from schemas.events import (
    AccessRefused,
    AddWritePerm,
    AnyEvent,
    BrokerHeartbeat,
    ChannelClosed,
    Clock,
    DeleteKvConfig,
    DeleteTopic,
    Preserve,
    PreserveEnd,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    Resume,
    UnregisterBroker,
    WipeWritePerm,
)
from schemas.outcomes import APPLIED, REJECTED, UNCHANGED

BROKER_EXPIRED: Final = "BROKER_EXPIRED"
"""Command name of an expiry in routeChangeTable. It has no sender."""

PRESERVED: Final = "preservedMillis"
"""Key in the result of an event that begins, moves or ends a pause of expiry: begin of the pause in ms, 0 for none."""


class GroupChange(msgspec.Struct, frozen=True):
    """One group before and after one cause. An expiry has no ``event``, and ``at`` is its place in history."""

    before: BrokerGroup
    after: BrokerGroup
    at: At
    event: AnyEvent | None


class KvChange(msgspec.Struct, frozen=True):
    """KV configuration before and after one command."""

    before: KvTable
    after: KvTable
    at: At
    event: PutKvConfig | DeleteKvConfig


class Step(msgspec.Struct, frozen=True):
    """Effect of one log record.

    Attributes:
        event: Event of the record.
        at: Place of the record. The event time is never less than an earlier one.
        changes: Changes in order: for each group the expiries that were due, then the event's own effect, if any.
        outcome: Result of the event.
    """

    event: AnyEvent
    at: At
    changes: list[GroupChange | KvChange]
    outcome: Outcome


_GROUP_RULES: Final[dict[type[Any], Callable[[BrokerGroup, Any, At], tuple[BrokerGroup, Outcome]]]] = {
    RegisterBroker: registration.register,
    UnregisterBroker: liveness.unregister,
    BrokerHeartbeat: liveness.heartbeat,
    DeleteTopic: lambda group, event, at: commands.delete_topic(group, event),
    RegisterTopic: lambda group, event, at: commands.register_topic(group, event),
    WipeWritePerm: lambda group, event, at: commands.wipe_write_perm(group, event),
    AddWritePerm: lambda group, event, at: commands.add_write_perm(group, event),
}

_KV_RULES: Final[dict[type[Any], Callable[[KvTable, Any], tuple[KvTable, Outcome]]]] = {
    PutKvConfig: commands.put_kv,
    DeleteKvConfig: commands.delete_kv,
}


def step(state: RouteState, event: AnyEvent, at: At) -> Step:
    """Return the effect of one event. The state does not change until `apply`.

    Args:
        state: State before the event, of the whole NameServer or of one shard.
        event: Decoded record.
        at: Offset and event time of the record. An event time before an earlier one counts as that one.
    """
    if at.now_ms < state.now_ms:
        at = At(at.offset, state.now_ms)
    match event:
        case BrokerHeartbeat() | RegisterBroker():  # nearly all events
            groups: Iterable[BrokerGroup] = [_group(state, event.broker_name)]
        case PutKvConfig() | DeleteKvConfig():
            kv, outcome = _KV_RULES[type(event)](state.kv, event)
            return Step(event, at, [] if kv is state.kv else [KvChange(state.kv, kv, at, event)], outcome)
        case AccessRefused():
            return Step(event, at, [], Outcome(REJECTED if event.is_refused else UNCHANGED, event.reason))
        case Clock():
            return Step(event, at, [*_expire_due(state, at.now_ms)], OUTCOME_UNCHANGED)
        case Resume():
            return _resume(state, event, at)
        case Preserve():
            return _preserve(state, event, at)
        case PreserveEnd():
            return _preserve_end(state, event, at)
        case DeleteTopic():
            groups = state.groups.values()
        case RegisterTopic():
            groups = [_group(state, event.queue_data.broker_name)]
        case _:
            groups = [_group(state, event.broker_name)]
    changes: list[GroupChange | KvChange] = []
    outcome = OUTCOME_UNCHANGED
    for group in groups:
        own = _on_group(state, group, event, at, changes)
        if own is not OUTCOME_UNCHANGED:  # of several groups (DELETE_TOPIC_IN_NAMESRV), one with an effect is enough
            outcome = own
    return Step(event, at, changes, outcome)


def apply(state: RouteState, done: Step) -> None:
    """Store the changes and the time of a step in the state."""
    for change in done.changes:
        if isinstance(change, KvChange):
            state.kv = change.after
        elif change.after.empty:
            state.groups.pop(change.after.broker_name, None)
        else:
            state.groups[change.after.broker_name] = change.after
    state.now_ms = done.at.now_ms
    if isinstance(done.event, Clock):
        state.watermark_ms = done.at.now_ms
    if done.outcome.result is not None and PRESERVED in done.outcome.result:
        state.preserved_ms = done.outcome.result[PRESERVED]


def _expire_due(state: RouteState, now_ms: int) -> list[GroupChange]:
    """Expire every broker with a deadline before ``now_ms``, by group. Return none while a PRESERVE is in force."""
    if state.preserved_ms:
        return []
    return [change for group in state.groups.values() for change in _expiries(group, now_ms)]


def _group(state: RouteState, name: str) -> BrokerGroup:
    return state.groups.get(name) or BrokerGroup(name)


def _on_group(
    state: RouteState, group: BrokerGroup, event: AnyEvent, at: At, changes: list[GroupChange | KvChange]
) -> Outcome:
    """Apply an event to one group, after its due expiries. Changes are added to ``changes``."""
    if not state.preserved_ms:
        for expired, when in liveness.expire(group, at.now_ms):
            changes.append(GroupChange(group, expired, when, None))
            group = expired
    if isinstance(event, UnregisterBroker) and event.if_overdue:
        after = liveness.expire_overdue(group, [(event.cluster_name, event.broker_addr)], at.now_ms)
        if after is group:
            return OUTCOME_UNCHANGED
        changes.append(GroupChange(group, after, at, None))
        return OUTCOME_APPLIED
    if isinstance(event, ChannelClosed):
        after, outcome = liveness.channel_closed(group, event, at, is_preserved=state.preserved_ms > 0)
    else:
        after, outcome = _GROUP_RULES[type(event)](group, event, at)
    if after is not group:
        changes.append(GroupChange(group, after, at, event))
    return outcome


def _expiries(group: BrokerGroup, now_ms: int) -> Iterator[GroupChange]:
    for after, at in liveness.expire(group, now_ms):
        yield GroupChange(group, after, at, None)
        group = after


def _resume(state: RouteState, event: Resume, at: At) -> Step:
    """Expire the brokers that were overdue before the gap, then move every deadline by the gap.

    The gap begins at the previous record of any gateway, so two gateways that start together count it once. A RESUME
    with ``after_ms`` counts only if it comes later than that. If it comes in time, it changes nothing.
    """
    if event.after_ms is not None and at.now_ms <= event.after_ms:
        return Step(event, at, [], OUTCOME_UNCHANGED)
    expiries = _expire_due(state, state.now_ms)
    gap_ms = at.now_ms - state.now_ms if state.now_ms else 0
    changes: list[GroupChange | KvChange] = [*expiries]
    for before in (state.groups | {expiry.after.broker_name: expiry.after for expiry in expiries}).values():
        after = liveness.extend_deadlines(before, gap_ms)
        if after is not before:
            changes.append(GroupChange(before, after, at, event))
    preserved = {PRESERVED: deadline_ms(state.preserved_ms, gap_ms)} if state.preserved_ms else {}
    return Step(event, at, changes, Outcome(APPLIED, result={"gapMillis": gap_ms, **preserved}))


def _preserve(state: RouteState, event: Preserve, at: At) -> Step:
    """Expire the brokers that were overdue before, and then no broker. The first of several gateways counts."""
    if state.preserved_ms:
        return Step(event, at, [], OUTCOME_UNCHANGED)
    return Step(event, at, [*_expire_due(state, at.now_ms)], Outcome(APPLIED, result={PRESERVED: at.now_ms}))


def _preserve_end(state: RouteState, event: PreserveEnd, at: At) -> Step:
    """End a pause: expire overdue brokers after the grace, or at once, so that no event can come between."""
    if not state.preserved_ms:
        return Step(event, at, [], OUTCOME_UNCHANGED)
    changes: list[GroupChange | KvChange] = []
    for before in state.groups.values():
        if event.grace_ms > 0:
            after, cause = liveness.spare_overdue(before, at.now_ms, event.grace_ms), event
        else:
            after, cause = liveness.expire_overdue(before, before.live, at.now_ms), None
        if after is not before:
            changes.append(GroupChange(before, after, at, cause))
    return Step(event, at, changes, Outcome(APPLIED, result={PRESERVED: 0}))
