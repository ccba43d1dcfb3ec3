# SPDX-License-Identifier: Apache-2.0
"""Token buckets: never more than the burst and what flowed in. A storm of one client costs no other client."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from security.quotas import Buckets

RATES = st.floats(0.01, 1000)
BURSTS = st.floats(1, 1000)
TAKES = st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 5), st.floats(0.01, 50)), max_size=60)
"""The client, the time after the previous request, and the amount."""


@given(RATES, BURSTS, TAKES)
def test_of_any_stretch_of_time_no_more_passes_than_the_burst_and_what_flowed_in(
    per_s: float, burst: float, takes: list[tuple[str, float, float]]
) -> None:
    buckets, now_s = Buckets(per_s, burst), 0.0
    passed: dict[str, list[tuple[float, float]]] = {"a": [], "b": []}
    for key, pause_s, cost in takes:
        now_s += pause_s
        if not buckets.take(key, now_s, cost):
            passed[key].append((now_s, cost))
    for taken in passed.values():
        for begin in range(len(taken)):
            for end in range(begin, len(taken)):
                whole = sum(cost for _, cost in taken[begin : end + 1])
                # The last one may be more than a bucket holds, and is taken from a full one.
                bound = burst + per_s * (taken[end][0] - taken[begin][0]) + max(0.0, taken[end][1] - burst)
                largest = max(cost for _, cost in taken[begin : end + 1])
                assert whole <= bound + max(0.0, largest - burst) + 1e-6


@given(RATES, BURSTS, TAKES)
def test_a_refused_one_costs_nothing_and_passes_when_it_was_told_to_come_back(
    per_s: float, burst: float, takes: list[tuple[str, float, float]]
) -> None:
    buckets, now_s = Buckets(per_s, burst), 0.0
    for key, pause_s, cost in takes:
        now_s += pause_s
        before = buckets.level(key, now_s)
        wait_s = buckets.take(key, now_s, cost)
        if wait_s:
            assert buckets.level(key, now_s) == before
            assert not buckets.wait_s(key, now_s + wait_s + 1e-3, cost)


@given(RATES, BURSTS, TAKES)
def test_a_storm_of_one_leaves_the_other_alone(
    per_s: float, burst: float, takes: list[tuple[str, float, float]]
) -> None:
    beside, alone, now_s = Buckets(per_s, burst), Buckets(per_s, burst), 0.0
    for key, pause_s, cost in takes:
        now_s += pause_s
        if key == "a":
            beside.take(key, now_s, cost)
            beside.charge(key, now_s, cost)
        else:
            assert beside.take(key, now_s, cost) == alone.take(key, now_s, cost)


def test_what_is_charged_afterwards_is_owed() -> None:
    buckets = Buckets(per_s=1.0, burst=10.0)
    buckets.charge("a", 0.0, 15.0)
    assert buckets.level("a", 0.0) == -5.0
    assert buckets.take("a", 0.0, 1.0) == 6.0
    assert buckets.take("a", 6.0, 1.0) == 0.0
    assert buckets.most_used(6.0) == 1.0
    buckets.charge("a", 6.0, -100.0)
    assert buckets.level("a", 6.0) == 10.0  # never more than it holds


def test_the_bucket_that_was_not_used_for_longest_is_forgotten() -> None:
    buckets = Buckets(per_s=0.001, burst=1.0, max_keys=3)
    for key in ("a", "b", "c", "a", "d"):
        buckets.take(key, 0.0)
    assert len(buckets) == 3
    assert not buckets.take("b", 0.0)  # full again
    assert buckets.take("d", 0.0)
