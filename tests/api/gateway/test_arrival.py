# SPDX-License-Identifier: Apache-2.0
"""Ages by arrival, whatever the other machine's clock says."""

from __future__ import annotations

import pytest

from api.gateway.watched_view import Arrival

MINUTE_S, YEAR_S = 60.0, 365 * 86_400.0


class Machine:
    """Its steady clock and its wall clock."""

    def __init__(self) -> None:
        self.steady_s, self.wall_s = 5.0, 1_800_000_000.0
        self.arrival = Arrival(lambda: self.steady_s, lambda: self.wall_s)

    def wait(self, seconds: float) -> None:
        self.steady_s += seconds
        self.wall_s += seconds


@pytest.mark.parametrize("apart_s", [0.0, MINUTE_S, -MINUTE_S, 3_600.0, -3_600.0, YEAR_S, -YEAR_S])
def test_age_is_time_since_arrival(apart_s: float) -> None:
    here = Machine()
    assert here.arrival.age_s is None
    for _ in range(3):
        here.arrival.came(here.wall_s + apart_s)
        here.wait(2.0)
    assert here.arrival.age_s == pytest.approx(2.0)
    assert here.arrival.now_ms == pytest.approx((here.wall_s + apart_s) * 1000)
    assert here.arrival.ahead_s == pytest.approx(max(0.0, apart_s))


@pytest.mark.parametrize("apart_s", [MINUTE_S, -MINUTE_S])
def test_the_time_of_arrival_ages_without_new_records(apart_s: float) -> None:
    here = Machine()
    date_s = here.wall_s + apart_s
    here.arrival.came(date_s - 1.0)
    for _ in range(40):
        here.arrival.came(date_s)
        here.wait(1.0)
    assert here.arrival.age_s == pytest.approx(40.0)


def test_the_wall_clock_may_be_set_meanwhile() -> None:
    here = Machine()
    here.arrival.came(here.wall_s)
    here.wall_s += YEAR_S
    here.wait(3.0)
    assert here.arrival.age_s == pytest.approx(3.0)


def test_records_from_before_the_start_have_their_own_age() -> None:
    here = Machine()
    here.arrival.came(here.wall_s - 500.0)
    assert here.arrival.age_s == pytest.approx(500.0)
