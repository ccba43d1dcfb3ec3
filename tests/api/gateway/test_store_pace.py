# SPDX-License-Identifier: Apache-2.0
"""How often a follower looks into a store: an hour of each kind, by a clock of the test's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api.gateway.follower import StorePace

TICK_S = 0.15


class Hour:
    """A follower's thread, which asks every `TICK_S`."""

    def __init__(self, pace: StorePace) -> None:
        self.pace, self.now_s, self.shown = pace, 1_000.0, 10

    def looks(self, seconds: float = 3600.0, meanwhile: Callable[[float], None] = lambda now_s: None) -> int:
        """How many looks there are in so many seconds."""
        looks, end_s = 0, self.now_s + seconds
        while self.now_s < end_s:
            meanwhile(self.now_s)
            if self.pace.is_due(self.shown, self.now_s):
                self.pace.look(self.now_s)
                looks += 1
            self.now_s += TICK_S
        return looks


@pytest.mark.parametrize(("hears", "least", "most"), [(False, 330, 362), (True, 58, 62)])
def test_an_idle_hour(hears: bool, least: int, most: int) -> None:
    hour = Hour(StorePace())
    hour.pace.hears(hears)
    assert least <= hour.looks() <= most


def test_an_hour_without_the_fold() -> None:
    """The head changes all the time, and no epoch comes."""
    looked, heard = Hour(StorePace()), Hour(StorePace())
    heard.pace.hears(True)
    for hour in (looked, heard):
        hour.pace.expect(11, hour.shown, hour.now_s)
    assert looked.looks(meanwhile=lambda now_s: looked.pace.expect(12, 10, now_s)) <= 3600 + 10 / TICK_S
    assert heard.looks(meanwhile=lambda now_s: heard.pace.expect(12, 10, now_s)) <= 362


def test_an_expected_epoch_is_looked_for_often_at_first() -> None:
    hour = Hour(StorePace())
    assert hour.looks(5) == 1
    hour.pace.expect(11, hour.shown, hour.now_s)
    assert hour.looks(3) >= 10


def test_an_announcement_is_a_look_each() -> None:
    hour = Hour(StorePace())
    hour.pace.hears(True)
    assert hour.looks(1) == 1
    hour.pace.expect(11, hour.shown, hour.now_s)
    assert hour.looks(5) == 0
    hour.pace.announced()
    assert hour.looks(1) == 1


def test_an_announcement_that_is_lost_costs_one_slow_look() -> None:
    hour = Hour(StorePace())
    hour.pace.hears(True)
    hour.looks(1)
    hour.pace.expect(11, hour.shown, hour.now_s)
    assert hour.looks(11) == 1
    hour.shown = 11
    assert hour.looks(50) == 0  # and epochs without a notification, once a minute
    assert hour.looks(11) == 1


def test_what_came_before_one_heard_is_looked_for_when_one_does() -> None:
    hour = Hour(StorePace())
    hour.looks(1)
    hour.pace.hears(True)
    assert hour.looks(1) == 1
    hour.pace.hears(False)
    assert hour.looks(1) == 1


def test_what_was_found_is_looked_behind() -> None:
    hour = Hour(StorePace())
    hour.looks(1)
    hour.pace.again()
    assert hour.looks(1) == 1


def test_an_announcement_while_it_looks_is_another_look() -> None:
    pace = StorePace()
    assert pace.is_due(10, 1.0)
    pace.look(1.0)
    pace.announced()
    assert pace.is_due(10, 1.0)
