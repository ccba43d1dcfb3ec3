# SPDX-License-Identifier: Apache-2.0
"""PRESERVE and PRESERVE_END: a pause in which no broker expires (ADR 14)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dev.support.events import (
    Fold,
    clock,
    closed,
    heartbeat,
    preserve,
    preserve_end,
    register,
    resume,
    unregister,
)
from nameserver.state_machine.changes import is_audited
from nameserver.state_machine.state import At
from nameserver.state_machine.step import GroupChange
from schemas.events import AnyEvent, UnregisterBroker
from schemas.outcomes import APPLIED, UNCHANGED

KEY = ("c", "a0:1")


@pytest.fixture
def fold() -> Fold:
    """One broker with a timeout of 3 s, over connection 1."""
    fold = Fold()
    fold(register(heartbeat_timeout_millis=3_000, connection="1"))
    return fold


def test_no_broker_expires_in_a_pause(fold: Fold) -> None:
    expire_ms = fold.group().live[KEY].expire_ms
    fold(preserve(), after_ms=2_000)
    fold(clock(), after_ms=3_600_000)
    fold(register("a1:1", 1), after_ms=1)  # the group's next event
    fold(resume(), after_ms=0)
    assert fold.live() == {KEY, ("c", "a1:1")}
    assert fold.group().live[KEY].expire_ms == expire_ms  # in the past: who looks sees who is only kept


def test_a_broker_overdue_before_the_pause_expires_at_its_begin(fold: Fold) -> None:
    outcome = fold(preserve(), after_ms=3_001)
    assert outcome.verdict == APPLIED and not fold.live()


def test_the_end_of_a_pause_expires_overdue_brokers_at_once(fold: Fold) -> None:
    fold(preserve(), after_ms=1_000)
    fold(register("x0:1", name="x"), after_ms=9_000)
    fold(preserve_end())
    assert not fold.live() and fold.live("x")
    expiry = fold.changes[-1]
    assert isinstance(expiry, GroupChange) and expiry.event is None
    assert expiry.at == At(fold.offset, fold.now_ms)  # not after its deadline: routes of that time had it
    assert fold.state.preserved_ms == 0


def test_no_event_comes_between_the_end_of_a_pause_and_its_expiries(fold: Fold) -> None:
    """A gateway that still sees them silent and says PRESERVE in the same millisecond."""
    fold(preserve(), after_ms=1_000)
    fold(preserve_end(), after_ms=9_000)
    fold(preserve())
    assert not fold.live()


def test_during_a_grace_an_overdue_broker_may_return(fold: Fold) -> None:
    fold(register("x0:1", name="x", heartbeat_timeout_millis=3_000))
    fold(preserve(), after_ms=1_000)
    fold(preserve_end(30_000), after_ms=600_000)
    ended_ms = fold.now_ms
    fold(clock(), after_ms=29_999)
    assert fold.live() and fold.live("x")
    fold(heartbeat())
    fold(clock(), after_ms=1)
    assert fold.live() and not fold.live("x")
    assert fold.changes[0].at.now_ms == ended_ms + 30_000


def test_the_first_of_two_beginnings_wins(fold: Fold) -> None:
    first = fold(preserve("g1"), after_ms=1_000)
    began_ms = fold.now_ms
    second = fold(preserve("g2"), after_ms=5)
    assert (first.verdict, second.verdict) == (APPLIED, UNCHANGED)
    assert fold.state.preserved_ms == began_ms
    assert is_audited(preserve(), first.verdict) and not is_audited(preserve(), second.verdict)
    ends = [fold(preserve_end(gateway=gateway)).verdict for gateway in ("g1", "g2")]
    assert ends == [APPLIED, UNCHANGED]


def test_an_end_without_a_pause_is_nothing(fold: Fold) -> None:
    assert fold(preserve_end(), after_ms=10_000).verdict == UNCHANGED
    assert fold.changes == []


def test_what_brokers_say_counts_as_ever(fold: Fold) -> None:
    fold(register("a1:1", 1))
    fold(preserve())
    fold(heartbeat(), after_ms=60_000)
    assert fold.group().live[KEY].expire_ms == fold.now_ms + 3_000
    fold(unregister("a1:1", 1))
    assert fold.live() == {KEY}


def test_a_lost_connection_removes_at_once_outside_of_a_pause(fold: Fold) -> None:
    assert fold(closed()).verdict == APPLIED
    assert not fold.live()


def test_with_a_grace_it_brings_the_deadline_nearer(fold: Fold) -> None:
    fold(register("x0:1", name="x", heartbeat_timeout_millis=120_000, connection="2"))
    fold(closed(grace_ms=10_000))
    fold(closed("x0:1", "2", name="x", grace_ms=10_000))
    assert fold.group().live[KEY].expire_ms == fold.now_ms + 1_500  # no more than half of its timeout
    live = fold.group("x").live[("c", "x0:1")]
    assert live.expire_ms == fold.now_ms + 10_000 and not live.channels
    fold(heartbeat("x0:1", name="x"), after_ms=1_500)
    fold(clock(), after_ms=9_000)
    assert not fold.live() and fold.live("x")


@pytest.mark.parametrize("grace_ms", [0, 10_000])
def test_in_a_pause_a_lost_connection_removes_nobody(fold: Fold, grace_ms: int) -> None:
    """A gateway without a threshold writes no grace."""
    fold(preserve())
    fold(closed(grace_ms=grace_ms), after_ms=1)
    fold(clock(), after_ms=60_000)
    assert fold.live() == {KEY}
    fold(preserve_end())
    assert not fold.live()


def test_time_without_gateways_does_not_count_in_a_pause_either(fold: Fold) -> None:
    fold(preserve())
    began_ms, expire_ms = fold.now_ms, fold.group().live[KEY].expire_ms
    fold(resume(), after_ms=7_200_000)
    assert fold.state.preserved_ms == began_ms + 7_200_000
    assert fold.group().live[KEY].expire_ms == expire_ms + 7_200_000


def taken(addr: str = "a0:1", *, name: str = "b") -> UnregisterBroker:
    """The report of a gateway on an overdue broker with an address that another one has."""
    return replace(unregister(addr, name=name), if_overdue=True)


def test_a_superseded_overdue_broker_expires_in_a_pause(fold: Fold) -> None:
    fold(register("a1:1", 1, heartbeat_timeout_millis=1_000))
    fold(preserve(), after_ms=500)
    fold(register("a0:1", name="x"), after_ms=9_000)
    assert fold(taken(), after_ms=1).verdict == APPLIED
    assert fold.live() == {("c", "a1:1")}  # overdue, too, and kept
    assert fold.addrs() == {1: "a1:1"} and fold.live("x")
    expiry = fold.changes[-1]
    assert isinstance(expiry, GroupChange) and expiry.event is None
    assert expiry.at == At(fold.offset, fold.now_ms)


@pytest.mark.parametrize("heard", [register(heartbeat_timeout_millis=3_000), heartbeat()])
def test_a_broker_heard_during_the_pause_stays(fold: Fold, heard: AnyEvent) -> None:
    fold(preserve(), after_ms=1_000)
    fold(heard, after_ms=9_000)
    assert fold(taken(), after_ms=3_000).verdict == UNCHANGED
    assert fold(taken("x:1")).verdict == fold(taken(name="x")).verdict == UNCHANGED
    assert fold.live() == {KEY}


def test_outside_a_pause_it_has_expired_by_itself(fold: Fold) -> None:
    assert fold(taken(), after_ms=3_001).verdict == UNCHANGED
    assert not fold.live()
