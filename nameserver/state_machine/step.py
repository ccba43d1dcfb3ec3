# SPDX-License-Identifier: Apache-2.0
"""step(state, event): what one log record does to the route tables.

Fold, gateway, replay and tests use `step` and `apply` alone. `step` is pure: it reads the state and says what changes.
`apply` takes that over into the state, in place, so that an event costs what the groups it touches cost, however many
there are. A rule that raises has therefore changed nothing.

Expiry is a rule like any other, so that the state at an offset depends on the log up to it alone (ADR 24). CLOCK moves
the watermark to its event time and expires every broker whose deadline lies before it. An event about a group expires
that group's overdue members first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

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
"""In the result of an event that opens, moves or closes a pause of expiry: since when there is one; 0 for none."""


class GroupChange(NamedTuple):
    """One group before and after one cause. ``event`` is None for an expiry, ``at`` then its place in history."""

    before: BrokerGroup
    after: BrokerGroup
    at: At
    event: AnyEvent | None


class KvChange(NamedTuple):
    """KV configuration before and after one command."""

    before: KvTable
    after: KvTable
    at: At
    event: PutKvConfig | DeleteKvConfig


class Step(NamedTuple):
    """Effect of one log record.

    Attributes:
        event: the record's.
        at: its place; the event time is never less than one already seen.
        changes: in order: of each group the expiries that were due, then the event's own effect, if there is any.
        outcome: what became of the event.
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
    """Say what one event does; the state stays as it is until `apply`.

    Args:
        state: everything known before it, of the whole NameServer or of one shard.
        event: the decoded record.
        at: its offset and event time; an event time below one already seen counts as that one.
    """
    at = At(at.offset, max(at.now_ms, state.now_ms))
    match event:
        case BrokerHeartbeat() | RegisterBroker():  # nearly all of them
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
        if own is not OUTCOME_UNCHANGED:  # of several groups (DELETE_TOPIC_IN_NAMESRV): applied if any of them says so
            outcome = own
    return Step(event, at, changes, outcome)


def apply(state: RouteState, done: Step) -> None:
    """Take over what `step` said, and its time."""
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
    """Expire every broker whose deadline lies before ``now_ms``, group by group; none while a PRESERVE is in force."""
    if state.preserved_ms:
        return []
    return [change for group in state.groups.values() for change in _expiries(group, now_ms)]


def _group(state: RouteState, name: str) -> BrokerGroup:
    return state.groups.get(name) or BrokerGroup(name)


def _on_group(
    state: RouteState, group: BrokerGroup, event: AnyEvent, at: At, changes: list[GroupChange | KvChange]
) -> Outcome:
    """One group's part of an event, its due expiries first; what changes is added to ``changes``."""
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
    """Expire who was silent too long before the gap, then move every deadline by it.

    The gap begins at the record before, whoever wrote it: two gateways that start together count it once. A RESUME that
    was to count if it came late, and came in time, is nothing.
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
    """Expire who was overdue before, and nobody from here on. Of several gateways that say it the first wins."""
    if state.preserved_ms:
        return Step(event, at, [], OUTCOME_UNCHANGED)
    return Step(event, at, [*_expire_due(state, at.now_ms)], Outcome(APPLIED, result={PRESERVED: at.now_ms}))


def _preserve_end(state: RouteState, event: PreserveEnd, at: At) -> Step:
    """Expire again: who is overdue at the end of a grace, or now, so that nothing can come between."""
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
