# SPDX-License-Identifier: Apache-2.0
"""RESUME: time in which no gateway ran counts against no broker (known difference 7)."""

from __future__ import annotations

import pytest

from dev.support.events import Fold, clock, closed, heartbeat, register, resume
from dev.support.generated_logs import Garbage, written
from nameserver.state_machine.replay import replay
from nameserver.state_machine.state import RouteState
from nameserver.state_machine.step import GroupChange


@pytest.fixture
def fold() -> Fold:
    return Fold()


def test_the_first_resume_of_a_log_moves_nothing(fold: Fold) -> None:
    fold(resume())
    fold(register(heartbeat_timeout_millis=3_000))
    assert fold.group().live[("c", "a0:1")].expire_ms == fold.now_ms + 3_000


def test_deadlines_move_by_the_gap(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(clock(), after_ms=1_000)
    fold(resume(), after_ms=3_600_000)
    assert fold.live() == {("c", "a0:1")}
    assert fold.group().live[("c", "a0:1")].expire_ms == fold.now_ms + 2_000
    fold(clock(), after_ms=2_000)
    assert fold.live()
    fold(clock(), after_ms=1)
    assert not fold.live()


@pytest.mark.parametrize("again", ["registers", "is heard"])
def test_a_gateway_still_hears_a_broker_after_a_gap_longer_than_its_timeout(fold: Fold, again: str) -> None:
    """Found by fault injection: g1 was forgotten, and g2's lost connection removed a broker that g1 heard."""
    fold(register(connection="1", gateway="g1", heartbeat_timeout_millis=3_000))
    fold(register(connection="2", gateway="g2", heartbeat_timeout_millis=3_000))
    fold(resume(), after_ms=200_000)
    if again == "registers":
        fold(register(connection="2", gateway="g2", heartbeat_timeout_millis=3_000))
    else:
        fold(heartbeat(gateway="g2"))
    assert fold(closed(connection="2", gateway="g2")).verdict == "unchanged"
    assert fold.live() == {("c", "a0:1")}


def test_a_gap_is_no_sign_of_life(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    heard = fold.now_ms
    fold(resume(), after_ms=3_600_000)
    assert fold.group().live[("c", "a0:1")].last_update_ms == heard


def test_who_was_silent_too_long_before_the_gap_expires_after_its_deadline(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    deadline = fold.now_ms + 3_000
    fold(register("x0:1", name="x"), after_ms=5_000)
    fold(resume(), after_ms=3_600_000)
    assert set(fold.state.groups) == {"x"}
    expiry, moved = fold.changes
    assert isinstance(moved, GroupChange) and moved.after.broker_name == "x"
    assert expiry.at.now_ms == deadline + 1


def test_two_gateways_that_start_together_count_the_gap_once(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(resume("g1"), after_ms=3_600_000)
    expire_ms = fold.group().live[("c", "a0:1")].expire_ms
    fold(resume("g2"), after_ms=10)
    assert fold.group().live[("c", "a0:1")].expire_ms == expire_ms + 10


def test_even_when_the_first_has_already_written(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    fold(resume("g1"), after_ms=3_600_000)
    fold(heartbeat(), after_ms=5)
    expire_ms = fold.group().live[("c", "a0:1")].expire_ms
    fold(resume("g2"), after_ms=5)
    assert fold.group().live[("c", "a0:1")].expire_ms == expire_ms + 5


def test_the_second_of_two_gaps_counts_as_well(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    for _ in range(2):
        fold(resume(), after_ms=3_600_000)
        assert fold.group().live[("c", "a0:1")].expire_ms == fold.now_ms + 3_000


def test_a_gateway_that_joins_a_running_one_moves_deadlines_by_the_silence_it_saw(fold: Fold) -> None:
    """Never more than a second, since a running gateway writes a CLOCK event every second."""
    fold(register(heartbeat_timeout_millis=3_000))
    expire_ms = fold.group().live[("c", "a0:1")].expire_ms
    fold(clock("g1"), after_ms=1_000)
    fold(resume("g2"), after_ms=700)
    assert fold.group().live[("c", "a0:1")].expire_ms == expire_ms + 700


def test_a_stamp_from_before_the_record_in_front_is_no_gap(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    expire_ms = fold.group().live[("c", "a0:1")].expire_ms
    fold(resume(), after_ms=-5_000)
    assert fold.group().live[("c", "a0:1")].expire_ms == expire_ms


def test_a_record_that_cannot_be_read_ends_a_gap_as_well() -> None:
    """It has a time like any other: whole and sharded states count the same gap."""
    records = written([(0, register(heartbeat_timeout_millis=3_000)), (2_000, Garbage("kv", b"")), (5_000, resume())])
    state = replay(RouteState(), records)
    assert state.groups["b"].live["c", "a0:1"].expire_ms == records[-1].event_time_ms + 1_000


def test_what_a_log_took_in_time_is_no_silence(fold: Fold) -> None:
    """Kafka: in front of every append, in case that it is taken late."""
    fold(register(heartbeat_timeout_millis=3_000))
    expire_ms = fold.group().live[("c", "a0:1")].expire_ms
    outcome = fold(resume(after_ms=fold.now_ms + 2_000), after_ms=2_000)
    assert (outcome.verdict, fold.changes) == ("unchanged", [])
    assert fold.group().live[("c", "a0:1")].expire_ms == expire_ms


def test_what_a_log_took_late_is_one(fold: Fold) -> None:
    fold(register(heartbeat_timeout_millis=3_000))
    stopped = fold.now_ms
    for gateway in ("g1", "g2"):
        fold(resume(gateway, after_ms=stopped + 10_000), after_ms=10_001 if gateway == "g1" else 5)
        assert fold.group().live[("c", "a0:1")].expire_ms == fold.now_ms + 3_000
