# SPDX-License-Identifier: Apache-2.0
"""Event times by a clock that jumps."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.sqlite.log import SqliteLog
from eventlog.stamps import MAX_LEAP_MS, MAX_PAUSE_MS, ClockError, Stamps

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
Y1970, Y2038, Y2106, Y9999 = 0, 2_147_483_648_000, 4_294_967_296_000, 253_402_300_799_999


class Clocks:
    """The clocks of a machine, and the log's last stamp."""

    def __init__(self, wall_ms: int = START_MS, last_ms: int | None = None, max_leap_ms: int = MAX_LEAP_MS) -> None:
        self.wall_ms, self.steady_ms, self.last_ms = wall_ms, 0.0, last_ms
        self._max_leap_ms = max_leap_ms
        self.restart()

    def restart(self) -> None:
        self.stamps = Stamps(lambda: self.wall_ms, lambda: self.steady_ms / 1000, self._max_leap_ms)

    def wait(self, ms: int) -> None:
        self.wall_ms += ms
        self.steady_ms += ms

    def stamp(self) -> int:
        self.last_ms = self.stamps.next(self.last_ms)
        return self.last_ms


@pytest.mark.parametrize(
    "ahead_ms", [MAX_LEAP_MS + 1, DAY_MS, YEAR_MS, Y2038 - START_MS, Y2106 - START_MS, Y9999, 10**17]
)
def test_a_clock_that_leaps_is_refused_until_it_is_right_again(ahead_ms: int) -> None:
    clocks = Clocks()
    clocks.stamp()
    clocks.wait(5_000)
    clocks.wall_ms += ahead_ms
    for _ in range(3):
        with pytest.raises(ClockError, match="Set the clock"):
            clocks.stamp()
        clocks.wait(5_000)
    clocks.wall_ms -= ahead_ms
    assert clocks.stamp() == START_MS + 20_000


@pytest.mark.parametrize("back_ms", [1, 5_000, 3_600_000, YEAR_MS, START_MS, 2 * START_MS])
def test_while_the_clock_is_behind_time_moves_on(back_ms: int) -> None:
    """Back to 1970, and to before it, too."""
    clocks = Clocks()
    clocks.stamp()
    clocks.wall_ms -= back_ms
    clocks.wait(100_000)
    assert clocks.stamp() == max(START_MS + 90_000, clocks.wall_ms)
    before_ms = clocks.stamp()
    for _ in range(1_000):
        clocks.wait(1_000)
        assert clocks.stamp() - before_ms in (900, 1_000, *range(901, 1_000))
        before_ms = clocks.stamp()
    clocks.wall_ms += back_ms  # it was put right: that is no leap
    assert clocks.stamp() == clocks.wall_ms


@pytest.mark.parametrize("step_ms", [0.02, 0.3, 1, 7, 20])
def test_while_the_clock_is_behind_frequent_stamps_keep_the_pace(step_ms: float) -> None:
    clocks = Clocks()
    clocks.stamp()
    clocks.wall_ms -= 3_600_000
    steps = round(60_000 / step_ms)
    for _ in range(steps):
        clocks.steady_ms += step_ms
        clocks.stamp()
    assert clocks.stamp() == pytest.approx(START_MS + 54_000, abs=60)


def test_a_clock_that_is_behind_catches_up() -> None:
    clocks = Clocks(last_ms=START_MS + 600_000)
    for _ in range(7_000):
        clocks.stamp()
        clocks.wait(1_000)
    assert clocks.stamp() == clocks.wall_ms


@pytest.mark.parametrize("off_ms", [0, 60_000, 7 * DAY_MS, MAX_PAUSE_MS])
def test_after_a_long_downtime_nobody_is_asked(off_ms: int) -> None:
    clocks = Clocks(wall_ms=START_MS + off_ms, last_ms=START_MS)
    assert clocks.stamp() == START_MS + off_ms


@pytest.mark.parametrize("ahead_ms", [MAX_PAUSE_MS + 1, YEAR_MS, Y2106 - START_MS, Y9999 - START_MS])
def test_at_a_start_somebody_is_asked_who_knows_better(ahead_ms: int) -> None:
    clocks = Clocks(wall_ms=START_MS + ahead_ms, last_ms=START_MS)
    with pytest.raises(ClockError, match="--max-clock-leap-s 0"):
        clocks.stamp()
    clocks = Clocks(wall_ms=START_MS + ahead_ms, last_ms=START_MS, max_leap_ms=0)
    assert clocks.stamp() == START_MS + ahead_ms


def test_a_restart_takes_a_leap() -> None:
    clocks = Clocks()
    clocks.stamp()
    clocks.wall_ms += DAY_MS
    with pytest.raises(ClockError, match="restart the gateway"):
        clocks.stamp()
    clocks.restart()
    assert clocks.stamp() == START_MS + DAY_MS


@pytest.mark.parametrize("wall_ms", [Y1970, -1, -START_MS, 1_000_000_000_000])
def test_a_clock_that_was_never_set_begins_no_log(wall_ms: int) -> None:
    clocks = Clocks(wall_ms=wall_ms)
    with pytest.raises(ClockError, match="never set"):
        clocks.stamp()
    clocks.wall_ms = START_MS
    assert clocks.stamp() == START_MS


def test_a_log_that_exists_goes_on_under_a_clock_that_was_never_set() -> None:
    clocks = Clocks(wall_ms=Y1970, last_ms=START_MS)
    assert clocks.stamp() == START_MS
    clocks.wait(10_000)
    assert clocks.stamp() == START_MS + 9_000


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(-(2**45), 2**45)), max_size=30))
def test_stamps_never_go_back_nor_leap(moves: list[tuple[int, int]]) -> None:
    clocks = Clocks()
    stamped_ms, passed_ms = clocks.stamp(), 0
    for wait_ms, set_ms in moves:
        clocks.wait(wait_ms)
        passed_ms += wait_ms
        right_ms, clocks.wall_ms = clocks.wall_ms, clocks.wall_ms + set_ms
        with contextlib.suppress(ClockError):
            after_ms = clocks.stamp()
            assert stamped_ms + passed_ms * 9 // 10 <= after_ms <= stamped_ms + passed_ms + MAX_LEAP_MS
            stamped_ms, passed_ms = after_ms, 0
        clocks.wall_ms = right_ms


def test_a_refused_stamp_leaves_nothing_in_the_log(tmp_path: Path) -> None:
    wall_ms = START_MS
    stamps = Stamps(lambda: wall_ms, lambda: 0.0)
    with contextlib.closing(SqliteLog(tmp_path / "events.db", stamps=stamps)) as log:
        log.append([("k", b"1")])
        wall_ms += YEAR_MS
        for count in (1, 200):
            with pytest.raises(ClockError):
                log.append([("k", b"2")] * count)
        wall_ms -= YEAR_MS
        assert log.append([("k", b"3")])[0] == (2, START_MS)
        assert [record.payload for record in log.read(0)] == [b"1", b"3"]
