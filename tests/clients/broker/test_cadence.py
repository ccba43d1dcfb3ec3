# SPDX-License-Identifier: Apache-2.0
"""When a broker registers and sends heartbeats."""

from __future__ import annotations

import pytest

from clients.broker.agent import Cadence, Task, register_period_ms
from clients.broker.config import BrokerConfig


@pytest.mark.parametrize(
    ("configured", "period"),
    [(-1, 10_000), (0, 10_000), (9_999, 10_000), (30_000, 30_000), (60_000, 60_000), (3_600_000, 60_000)],
)
def test_the_period_is_clamped(configured: int, period: int) -> None:
    assert register_period_ms(configured) == period


def timeline(cadence: Cadence, until_ms: float, start_ms: float = 0) -> list[tuple[float, list[Task]]]:
    """What is done when, by someone who sleeps exactly as long as told."""
    now, seen = start_ms, []
    while (now := now + cadence.wait_ms(now)) <= until_ms:
        seen.append((now, cadence.due(now)))
    return seen


def test_rounds() -> None:
    assert timeline(Cadence(BrokerConfig(), 0), 100_000) == [
        (10_000, [Task.ROUND]),
        (40_000, [Task.ROUND]),
        (70_000, [Task.ROUND]),
        (100_000, [Task.ROUND]),
    ]


def test_heartbeats_only_with_an_acting_master() -> None:
    seen = timeline(Cadence(BrokerConfig(enable_slave_acting_master=True), 0), 11_000)
    assert [at for at, tasks in seen if Task.HEARTBEAT in tasks] == [1000.0 * second for second in range(1, 12)]
    assert [at for at, tasks in seen if Task.ROUND in tasks] == [10_000]


def test_times_slept_through_are_not_made_up_for() -> None:
    cadence = Cadence(BrokerConfig(register_name_server_period=10_000), 0)
    assert cadence.due(57_000) == [Task.ROUND]
    assert cadence.due(57_000) == []
    assert cadence.wait_ms(57_000) == 3_000


def test_what_failed_is_tried_again_before_the_next_round() -> None:
    cadence = Cadence(BrokerConfig(), 0)
    cadence.registered(0, failures=True)
    assert cadence.wait_ms(0) == 3_000
    assert cadence.due(3_000) == [Task.RETRY]
    cadence.registered(3_100, failures=True)
    assert cadence.due(6_100) == [Task.RETRY]
    cadence.registered(6_200, failures=False)
    assert cadence.wait_ms(6_200) == 3_800
    cadence.registered(9_000, failures=True)
    assert cadence.due(12_000) == [Task.ROUND]  # which asks everybody, those that failed too
    assert cadence.wait_ms(12_000) == 28_000
