# SPDX-License-Identifier: Apache-2.0
"""Which NameServer is asked: choice, fail-over, back-off."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from clients.addresses import is_http
from clients.route.rotation import BackOff, NameServers


def servers(*names: str, seed: int = 1) -> NameServers:
    return NameServers(names or ("a:1", "b:1", "c:1"), random.Random(seed), BackOff(1.0, 30.0))


def test_the_list_is_shuffled() -> None:
    firsts = {servers(seed=seed).candidates(0)[0] for seed in range(30)}
    assert firsts == {"a:1", "b:1", "c:1"}


def test_the_one_that_answers_stays_chosen() -> None:
    known = servers()
    first, second, third = known.candidates(0)
    known.answered(second)
    assert known.chosen == second
    assert known.candidates(0) == [second, third, first]


def test_the_one_that_fails_is_left_alone_and_the_next_one_chosen() -> None:
    known = servers()
    first, second, third = known.candidates(0)
    known.answered(first)
    known.failed(first, 0)
    assert known.chosen is None
    assert known.candidates(0) == [second, third, first]
    assert known.candidates(0, only_ready=True) == [second, third]
    known.answered(second)
    assert known.candidates(100)[0] == second  # the first one answers again, but the client stays with the second


def test_when_all_are_left_alone_the_first_to_be_ready_comes_first() -> None:
    known = servers("a:1", "b:1")
    first, second = known.candidates(0)
    known.failed(first, 0)
    known.failed(second, 0.4)
    assert known.candidates(0.45, only_ready=True) == []
    assert known.candidates(0.45) == [first, second]
    rest = known.next_ready_s(0.45)
    assert 0.05 <= rest <= 0.55
    assert known.candidates(0.45 + rest, only_ready=True) == [first]
    assert known.next_ready_s(99) == 0


def test_preferred_ones_come_first_unless_left_alone() -> None:
    for seed in range(20):
        known = NameServers(["a:1", "http://b", "c:1", "http://d"], random.Random(seed), BackOff(1.0, 30.0), is_http)
        first, second, third, fourth = known.candidates(0)
        assert {first, second} == {"http://b", "http://d"}
        known.answered(third)
        assert known.candidates(0)[:2] in ([first, second], [second, first])
        assert known.candidates(0)[2:] == [third, fourth]
        known.failed(first, 0)
        known.failed(second, 0)
        assert known.candidates(0, only_ready=True) == [third, fourth]
        assert known.candidates(1.1)[0] in (first, second)


@given(seed=st.integers(0, 1000), failures=st.integers(1, 12))
def test_back_off_doubles_up_to_its_end(seed: int, failures: int) -> None:
    known = servers("a:1", seed=seed)
    now_s = 0.0
    for count in range(failures):
        known.failed("a:1", now_s)
        known.failed("a:1", now_s)  # several requests see the same outage
        rest = known.next_ready_s(now_s)
        whole = min(30.0, 2.0**count)
        assert whole / 2 <= rest <= whole + 1e-6
        now_s += rest
    known.answered("a:1")
    known.failed("a:1", now_s)
    assert known.next_ready_s(now_s) <= 1.0


def test_another_list() -> None:
    known = servers("a:1", "b:1")
    known.answered("a:1")
    assert known.update([]) == []
    assert known.update(["b:1", "a:1"]) == []
    assert known.chosen == "a:1"
    assert known.update(["a:1", "c:1", "c:1"]) == ["b:1"]
    assert known.chosen == "a:1"
    assert sorted(known.addresses) == ["a:1", "c:1"]
    assert known.update(["d:1"]) and known.chosen is None
    known.failed("a:1", 0)  # an answer that was still under way
    known.answered("a:1")
    assert known.chosen is None
    assert known.candidates(0) == ["d:1"]
