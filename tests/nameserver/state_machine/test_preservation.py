# SPDX-License-Identifier: Apache-2.0
"""Who is silent, when that is too many, and what a gateway says of it (ADR 14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nameserver.state_machine.preservation import (
    BACK_GRACE_MS,
    Census,
    EndReason,
    Switch,
    census,
    superseded,
    to_begin,
    to_end,
)
from nameserver.state_machine.state import LiveInfo
from schemas.broker import DataVersion
from schemas.events import Actor

ACTOR = Actor(gateway="g", via="routelake")
HOUR_MS = 3_600_000


def live(left_ms: int) -> LiveInfo:
    """A live row with a timeout of two minutes that expires so long after 1,000,000."""
    return LiveInfo(0, 0, 120_000, 1_000_000 + left_ms, DataVersion(0, 0, 0))


@pytest.mark.parametrize(("left_ms", "silent"), [(120_000, 0), (60_000, 0), (59_999, 1), (0, 1), (-1, 1)])
def test_a_broker_is_silent_below_half_of_its_timeout(left_ms: int, silent: int) -> None:
    assert census({("b", "c", "a:1"): live(left_ms)}, 1_000_000) == (1, silent)


@pytest.mark.parametrize(
    ("live", "silent", "percent", "exceeds"),
    [
        (20, 3, 15, False),  # 15 % are not more than 15 %
        (20, 4, 15, True),
        (20, 19, 15, True),
        (2, 1, 15, False),  # half of the cluster, and yet one broker that died
        (3, 2, 15, True),
        (2, 2, 15, True),
        (1, 1, 15, False),
        (0, 0, 15, False),
        (1_000, 151, 15, True),
        (100, 100, 99, True),
    ],
)
def test_too_many_silent_brokers_exceed_the_share(live: int, silent: int, percent: int, exceeds: bool) -> None:
    assert Census(live, silent).exceeds(percent) is exceeds


def test_off_never_begins() -> None:
    assert to_begin(Switch(0, HOUR_MS), Census(20, 20), ACTOR) is None


def test_what_it_saw_is_in_the_event() -> None:
    begins = to_begin(Switch(15, HOUR_MS), Census(20, 19), ACTOR)
    assert begins is not None
    assert (begins.live, begins.silent, begins.percent) == (20, 19, 15)


@pytest.mark.parametrize(
    ("switch", "counted", "passed_ms", "end"),
    [
        (Switch(15, HOUR_MS), Census(20, 19), HOUR_MS - 1, None),
        (Switch(15, HOUR_MS), Census(20, 19), HOUR_MS, (EndReason.LIMIT, 0)),
        (Switch(15, HOUR_MS), Census(20, 3), 1, (EndReason.RECOVERED, BACK_GRACE_MS)),
        (Switch(15, HOUR_MS), Census(0, 0), 1, (EndReason.RECOVERED, BACK_GRACE_MS)),
        (Switch(0, HOUR_MS, is_ordered=True), Census(20, 19), 1, (EndReason.SWITCHED_OFF, 0)),
        (Switch(0, HOUR_MS), Census(20, 0), 1, None),  # others asked for it, and judge when it ends
        (Switch(0, HOUR_MS), Census(20, 19), HOUR_MS, (EndReason.LIMIT, 0)),
    ],
)
def test_self_preservation_ends_with_its_reason(
    switch: Switch, counted: Census, passed_ms: int, end: tuple[EndReason, int] | None
) -> None:
    found = to_end(switch, counted, 1_000, 1_000 + passed_ms, ACTOR)
    assert (None if found is None else (found.reason, found.grace_ms)) == end


@given(st.integers(1, 99), st.integers(0, 2_000), st.data())
def test_a_census_that_begins_self_preservation_does_not_end_it(percent: int, live: int, data: st.DataObject) -> None:
    """No two gateways that see the same take turns."""
    counted = Census(live, data.draw(st.integers(0, live)))
    switch = Switch(percent, HOUR_MS)
    assert (to_begin(switch, counted, ACTOR) is None) == (to_end(switch, counted, 1, 2, ACTOR) is not None)


@pytest.mark.parametrize(
    ("others", "is_superseded"),
    [
        ([("x", "a:1", 60_000)], True),
        ([("x", "a:1", 59_999)], False),  # without heartbeats itself: it does not know which brokers live
        ([("x", "b:1", 60_000)], False),
        ([("b", "a:1", 60_000)], False),  # the same broker in another cluster
        ([("x", "a:1", 59_999), ("y", "a:1", 60_000)], True),
        ([], False),
    ],
)
@pytest.mark.parametrize("left_ms", [59_999, -1])
def test_a_silent_broker_is_superseded_by_another_one_at_its_address(
    others: list[tuple[str, str, int]], is_superseded: bool, left_ms: int
) -> None:
    silent = ("b", "c", "a:1")
    rows = {silent: live(left_ms)} | {(name, "d", addr): live(left) for name, addr, left in others}
    assert (silent in superseded(rows, 1_000_000)) is is_superseded
    assert (census(rows, 1_000_000).live < len(rows)) is is_superseded


def test_a_broker_with_heartbeats_is_never_superseded() -> None:
    assert not superseded({(name, "c", "a:1"): live(60_000) for name in "xyz"}, 1_000_000)
