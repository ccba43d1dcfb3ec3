# SPDX-License-Identifier: Apache-2.0
"""Heartbeats, expiry and lost connections: reference 3.5, and what routelake does otherwise on purpose."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from msgspec.structs import replace

from dev.support.events import (
    TIMEOUT_MS,
    V2,
    Fold,
    clock,
    closed,
    heartbeat,
    preserve,
    preserve_end,
    register,
    register_topic,
    topics,
    unregister,
)
from dev.support.generated_logs import ASSORTMENT, STEPS_MS, jumping_logs, written
from eventlog.base import LogRecord
from nameserver.state_machine.preservation import Census, census
from nameserver.state_machine.replay import read_event
from nameserver.state_machine.state import At, RouteState
from nameserver.state_machine.step import BROKER_EXPIRED, GroupChange, KvChange, apply, step
from schemas.errors import EventDecodeError


@pytest.fixture
def fold() -> Fold:
    return Fold()


# --- heartbeats ---


def test_a_heartbeat_moves_the_deadline_and_nothing_else(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    before = fold.group()
    assert fold(heartbeat(), after_ms=2_000).verdict == "unchanged"
    live = fold.group().live[("c", "a0:1")]
    assert (live.last_update_ms, live.last_update_offset, live.expire_ms) == (fold.now_ms, 2, fold.now_ms + 3_000)
    assert fold.rows == []
    assert fold.group().topics is before.topics


@pytest.mark.parametrize("event", [heartbeat("x:1"), heartbeat(cluster="x"), heartbeat(name="x")])
def test_a_heartbeat_of_an_unknown_broker_does_nothing(fold: Fold, event: object) -> None:
    fold(register())
    before = fold.state.groups
    assert fold(event).verdict == "unchanged"  # type: ignore[arg-type]
    assert fold.state.groups == before


# --- expiry ---


def test_a_broker_is_alive_at_its_deadline_and_gone_a_millisecond_later(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(clock(), after_ms=3_000)
    assert fold.live() == {("c", "a0:1")}
    fold(clock(), after_ms=1)
    assert fold.state.groups == {}


def test_the_default_timeout_is_two_minutes(fold: Fold) -> None:
    fold(register())
    fold(clock(), after_ms=TIMEOUT_MS)
    assert fold.live()
    fold(clock(), after_ms=1)
    assert not fold.live()


def test_an_expiry_has_the_millisecond_after_its_deadline_in_history(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(heartbeat(), after_ms=1_000)
    deadline = fold.now_ms + 3_000
    fold(clock(), after_ms=60_000)
    (expiry,) = fold.changes
    assert isinstance(expiry, GroupChange)
    assert (expiry.at, expiry.event) == (At(2, deadline + 1), None)
    assert BROKER_EXPIRED == "BROKER_EXPIRED"


def test_an_event_at_the_deadline_is_before_the_expiry_in_history(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(register_topic("new"), after_ms=3_000)
    (registered,) = fold.changes
    fold(clock(), after_ms=5_000)
    (expiry,) = fold.changes
    assert place(registered) < place(expiry)


@given(jumping_logs)
def test_changes_of_a_group_are_applied_in_the_order_of_history(records: list[LogRecord]) -> None:
    """Who orders changes by time and offset sees each row begin as the change before left it."""
    state, last = RouteState(), dict[str, tuple[int, int]]()
    for record in records:
        try:
            event = read_event(record)
        except EventDecodeError:
            continue
        done = step(state, event, At(record.offset, record.event_time_ms))
        for change in done.changes:
            if isinstance(change, GroupChange):
                name = change.after.broker_name
                assert place(change) > last.get(name, (0, 0))
                last[name] = place(change)
        apply(state, done)


def test_the_order_of_live_rows_does_not_matter() -> None:
    """A state that came back from the tables has its rows in another order."""
    rng = random.Random(17)
    for _ in range(400):
        state, other = RouteState(), RouteState()
        for record in written([(rng.choice(STEPS_MS), rng.choice(ASSORTMENT)) for _ in range(60)]):
            try:
                event = read_event(record)
            except EventDecodeError:
                continue
            for each in (state, other):
                apply(each, step(each, event, At(record.offset, record.event_time_ms)))
            assert other.groups == state.groups
            other.groups = {
                name: replace(group, live=dict(reversed(list(group.live.items()))))
                for name, group in other.groups.items()
            }


def place(change: GroupChange | KvChange) -> tuple[int, int]:
    """Its place in history: event time in ms, then offset."""
    return change.at.now_ms, change.at.offset


def test_members_of_one_deadline_expire_in_the_order_of_history(fold: Fold) -> None:
    """Who reads changes orders them by time and offset: of one key, each begins as the one before it ended."""
    fold(register("a1:1", 1, heartbeat_timeout_millis=3_000))
    fold(register("a0:1", 0, heartbeat_timeout_millis=3_000))
    fold(clock(), after_ms=3_001)
    first, second = fold.changes
    assert isinstance(first, GroupChange) and isinstance(second, GroupChange)
    assert first.at.now_ms == second.at.now_ms
    assert (first.at.offset, second.at.offset) == (1, 2)
    assert first.after.broker_addrs == {0: "a0:1"}
    assert second.after.broker_addrs == {}


def test_a_heartbeat_that_comes_too_late_finds_nobody(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(heartbeat(), after_ms=3_001)
    assert fold.state.groups == {}


def test_a_registration_that_comes_too_late_begins_anew(fold: Fold) -> None:
    fold(register(table=topics("T", "U", "W"), heartbeat_timeout_millis=3_000))
    fold(register(table=topics("T", "U"), heartbeat_timeout_millis=3_000), after_ms=3_001)
    assert set(fold.topics()) == {"T", "U"}


def test_an_event_of_another_group_expires_only_its_own(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(register("x0:1", name="x"), after_ms=10_000)
    assert fold.live() == {("c", "a0:1")}, "CLOCK, or its next event, will expire it"
    fold(clock())
    assert len(fold.changes) == 1
    assert set(fold.state.groups) == {"x"}


def test_a_master_that_expires_takes_the_write_bit_with_it(fold: Fold) -> None:
    fold(register("a0:1", 0, enable_acting_master=True, heartbeat_timeout_millis=3_000))
    fold(register("a1:1", 1, enable_acting_master=True))
    fold(clock(), after_ms=3_001)
    assert fold.addrs() == {1: "a1:1"}
    assert fold.perms() == {"T": 4, "U": 4}


def test_a_live_row_whose_address_was_superseded_expires_alone(fold: Fold) -> None:
    """Known difference 3: in RocketMQ it stays for good."""
    fold(register("a0:1", 0, heartbeat_timeout_millis=3_000))
    fold(register("a9:1", 0, version=V2))
    fold(clock(), after_ms=3_001)
    assert fold.live() == {("c", "a9:1")}
    assert fold.addrs() == {0: "a9:1"}
    assert set(fold.topics()) == {"T", "U"}


def test_two_groups_at_one_address_live_apart(fold: Fold) -> None:
    """Known difference 2: a broker that was renamed does not keep its old group alive."""
    fold(register("a0:1", name="old", heartbeat_timeout_millis=3_000))
    fold(register("a0:1", name="new", heartbeat_timeout_millis=3_000))
    fold(heartbeat("a0:1", name="new"), after_ms=2_000)
    fold(clock(), after_ms=2_000)
    assert set(fold.state.groups) == {"new"}


# --- lost connections ---


def test_a_lost_connection_unregisters_its_broker(fold: Fold) -> None:
    fold(register(connection="1"))
    assert fold(closed(connection="1")).verdict == "applied"
    assert fold.state.groups == {}


def test_a_lost_connection_that_was_replaced_does_not(fold: Fold) -> None:
    fold(register(connection="1"))
    fold(register(connection="2"))
    assert fold(closed(connection="1")).verdict == "unchanged"
    assert fold.live() == {("c", "a0:1")}


def test_heartbeats_do_not_rebind(fold: Fold) -> None:
    fold(register(connection="1"))
    fold(heartbeat())
    fold(closed(connection="1"))
    assert fold.state.groups == {}


def test_every_broker_of_a_connection_goes(fold: Fold) -> None:
    """Known difference 5: one event for each of them."""
    fold(register("a0:1", name="x", connection="1"))
    fold(register("a1:1", name="y", connection="1"))
    fold(closed("a0:1", name="x"))
    fold(closed("a1:1", name="y"))
    assert fold.state.groups == {}


def test_another_gateway_that_still_hears_it_keeps_it(fold: Fold) -> None:
    """Known difference 6."""
    fold(register(connection="1", gateway="g1"))
    fold(register(connection="9", gateway="g2"))
    assert fold(closed(connection="1", gateway="g1")).verdict == "unchanged"
    assert fold.live() == {("c", "a0:1")}
    fold(closed(connection="9", gateway="g2"))
    assert fold.state.groups == {}


def test_another_gateway_counts_only_while_it_hears_it(fold: Fold) -> None:
    fold(register(connection="9", gateway="g2", heartbeat_timeout_millis=3_000))
    fold(register(connection="1", gateway="g1", heartbeat_timeout_millis=3_000), after_ms=2_000)
    fold(heartbeat(gateway="g1"), after_ms=1_001)
    assert fold(closed(connection="1", gateway="g1")).verdict == "applied"
    assert fold.state.groups == {}


def test_heartbeats_over_another_gateway_keep_it_heard_there(fold: Fold) -> None:
    fold(register(connection="9", gateway="g2", heartbeat_timeout_millis=3_000))
    fold(register(connection="1", gateway="g1", heartbeat_timeout_millis=3_000), after_ms=2_000)
    fold(heartbeat(gateway="g2"), after_ms=500)
    assert fold(closed(connection="1", gateway="g1"), after_ms=1_000).verdict == "unchanged"


def test_a_gateway_that_never_saw_a_registration_does_not_count(fold: Fold) -> None:
    fold(register(connection="1", gateway="g1"))
    fold(heartbeat(gateway="g2"))
    fold(closed(connection="1", gateway="g1"))
    assert fold.state.groups == {}


def test_a_registration_without_a_connection_cannot_lose_it(fold: Fold) -> None:
    fold(register(connection=None))
    assert fold(closed(connection="1")).verdict == "unchanged"
    assert fold.live() == {("c", "a0:1")}


@pytest.mark.parametrize("event", [closed("x:1"), closed(name="x"), closed(cluster="x"), closed(gateway="g9")])
def test_a_connection_of_nobody(fold: Fold, event: object) -> None:
    fold(register(connection="1"))
    assert fold(event).verdict == "unchanged"  # type: ignore[arg-type]


def test_a_superseded_address_that_loses_its_connection_takes_nobody_with_it(fold: Fold) -> None:
    fold(register("a0:1", 0, connection="1"))
    fold(register("a9:1", 0, connection="2", version=V2))
    assert fold(closed("a0:1", "1")).verdict == "unchanged"
    assert fold.addrs() == {0: "a9:1"}
    assert fold.group().live[("c", "a0:1")].channels == {}


def test_a_closed_connection_after_unregistration(fold: Fold) -> None:
    fold(register(connection="1"))
    fold(unregister())
    assert fold(closed(connection="1")).verdict == "unchanged"


@pytest.mark.parametrize("again", ["registers", "registers without topics", "is heard"])
def test_gateways_that_heard_a_broker_long_ago_are_forgotten(fold: Fold, again: str) -> None:
    """A gateway id for each pod: a thousand starts, and the row held a thousand."""
    for number in range(1_000):
        own = f"pod-{number}"
        fold(register(connection="1", gateway=own, heartbeat_timeout_millis=3_000, slim=number > 0), after_ms=500)
        if again == "is heard":
            fold(heartbeat(gateway=own), after_ms=400)
        elif again == "registers without topics":
            fold(register(connection=None, heartbeat_timeout_millis=3_000, slim=True), after_ms=400)
    channels = fold.group().live[("c", "a0:1")].channels
    assert f"pod-{999}" in channels and len(channels) <= 7


def test_a_gateway_counts_for_as_long_as_it_heard_the_broker_within_its_timeout(fold: Fold) -> None:
    fold(register(connection="1", gateway="g1", heartbeat_timeout_millis=3_000))
    fold(register(connection="2", gateway="g2", heartbeat_timeout_millis=3_000), after_ms=3_000)
    assert set(fold.group().live[("c", "a0:1")].channels) == {"g1", "g2"}
    fold(register(connection="2", gateway="g2", heartbeat_timeout_millis=3_000), after_ms=1)
    assert set(fold.group().live[("c", "a0:1")].channels) == {"g2"}


def test_a_gateway_that_hears_a_broker_again_keeps_it_when_another_gateway_loses_it(fold: Fold) -> None:
    """A heartbeat over the other gateway does not forget the first one, because its heartbeats name no connection."""
    fold(register(connection="1", gateway="g1", heartbeat_timeout_millis=3_000))
    fold(register(connection="2", gateway="g2", heartbeat_timeout_millis=3_000))
    fold(heartbeat(gateway="g2"), after_ms=2_000)
    fold(heartbeat(gateway="g2"), after_ms=2_000)
    fold(heartbeat(gateway="g1"), after_ms=500)
    assert fold(closed(connection="2", gateway="g2")).verdict == "unchanged"
    assert fold.live() == {("c", "a0:1")}


def test_a_broker_that_is_heard_again_by_the_gateway_of_before_is_still_bound_to_its_connection(fold: Fold) -> None:
    """No broker expires meanwhile, so a heartbeat may come after the timeout."""
    fold(register(connection="1", heartbeat_timeout_millis=3_000))
    fold(preserve())
    fold(heartbeat(), after_ms=60_000)
    fold(preserve_end())
    fold(closed(connection="1"))
    assert not fold.live()


@pytest.mark.parametrize("timeout_ms", [-(2**63), -1, 0, 1])
def test_a_deadline_lies_behind_its_registration(fold: Fold, timeout_ms: int) -> None:
    """Else history tells first that the broker went, and then that it came, to stay for ever."""
    fold(register(heartbeat_timeout_millis=timeout_ms))
    registered_ms = fold.now_ms
    assert fold.live() == {("c", "a0:1")}
    fold(heartbeat(), after_ms=1)
    assert fold.group().live[("c", "a0:1")].expire_ms == registered_ms + 2
    fold(clock(), after_ms=10)
    assert not fold.live()
    (expiry,) = fold.changes
    assert registered_ms + 1 < expiry.at.now_ms < fold.now_ms


@pytest.mark.parametrize("timeout_ms", [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1])
def test_a_broker_without_a_deadline_is_never_silent(fold: Fold, timeout_ms: int) -> None:
    for number in range(3):
        fold(register(f"a{number}:1", number, heartbeat_timeout_millis=timeout_ms))
    rows = {("b", *key): live for key, live in fold.group().live.items()}
    assert census(rows, fold.now_ms + 365 * 86_400_000) == Census(3, 0)
