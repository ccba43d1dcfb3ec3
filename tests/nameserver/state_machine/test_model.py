# SPDX-License-Identifier: Apache-2.0
"""The fold and the model of RocketMQ's NameServer agree on every answer and every table, whatever happens.

The model is judged against the real NameServer in tests/differential. Both sides get the same generated requests; after
each of them their answers and all six tables are compared. What routelake does otherwise on purpose is in
`dev.model.deliberate`.
"""

from __future__ import annotations

import copy
import random
import time
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings

from dev.histories import strategies
from dev.histories.audit import audit_requests
from dev.histories.steps import Advance, CloseChannel, Send, Step
from dev.model.codes import QUERY_DATA_VERSION
from dev.model.deliberate import DeliberateModel
from dev.model.settings import Settings
from dev.model.wire import canonical
from tests.nameserver.state_machine.nameserver import FoldNameServer, comparable
from tests.nameserver.state_machine.volume import recombined, shortest

START_MS = 1_000_000


class Comparison:
    """Plays histories on both sides and counts."""

    def __init__(self, *, slim: bool = False) -> None:
        self.steps = 0
        self.slim_refused = 0
        self._slim = slim

    def play(self, history: list[Step], settings: Settings) -> None:
        """Play one history; fails at the first difference."""
        model = DeliberateModel(settings)
        fold = FoldNameServer(settings, slim=self._slim)
        now_ms = START_MS
        for step in history:
            now_ms += 1
            model.tick(now_ms)
            if isinstance(step, Advance):
                now_ms += step.ms
                model.tick(now_ms)
            elif isinstance(step, CloseChannel):
                model.lose_connection(step.channel)
                fold.close_channel(step.channel, now_ms)
            else:
                self._compare_answers(model, fold, step, now_ms)
            expected, actual = comparable(model.tables), comparable(fold.tables(now_ms))
            assert actual == expected, (step, now_ms)
            assert fold.kv() == {
                ns: {key: value for key, value in kv.items() if value is not None}
                for ns, kv in model.kv.config_table.items()
            }
            self.steps += 1
        for request in audit_requests():
            if request.code == QUERY_DATA_VERSION:  # names no broker; the live rows have been compared
                continue
            self._compare_answers(model, fold, Send(request.code, request.ext, request.body.decode()), now_ms)
        self.slim_refused += fold.slim_refused

    @staticmethod
    def _compare_answers(model: DeliberateModel, fold: FoldNameServer, step: Send, now_ms: int) -> None:
        request = step.request()
        expected = model.handle(request, now_ms, step.channel)
        allowed = [canonical(request, answer) for answer in (expected, *model.also_allowed)]
        actual = fold.handle(request, now_ms, step.channel)
        assert canonical(request, actual) in allowed, (step, actual, expected)


def play_many(
    request: pytest.FixtureRequest, few: int, deep_steps: int, comparison: Comparison, **narrowed: Any
) -> None:
    """So many histories drawn by Hypothesis, five times as many put together from them; with --deep so many steps."""
    deep = request.config.getoption("--deep")
    few = max(1, few // 10) if request.config.getoption("--fast") else few
    started = time.monotonic()
    drawn: list[tuple[list[Step], Settings]] = []

    @hypothesis_settings(
        max_examples=10 * few if deep else few,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    @given(history=strategies.histories(**narrowed), settings=strategies.settings())
    def agrees(history: list[Step], settings: Settings) -> None:
        drawn.append((history, copy.copy(settings)))
        comparison.play(history, settings)

    agrees()
    rng = random.Random() if deep else random.Random(few)
    histories = recombined([history for history, _ in drawn], rng)
    played = len(drawn)
    while comparison.steps < deep_steps if deep else played < 6 * few:
        history, settings = next(histories), rng.choice(drawn)[1]
        played += 1
        if _fails(comparison, history, settings):
            comparison.play(shortest(history, partial(_fails, comparison, settings=settings)), copy.copy(settings))
    print(f"{played} histories, {comparison.steps} steps agreed in {time.monotonic() - started:.0f} s")


def _fails(comparison: Comparison, history: list[Step], settings: Settings) -> bool:
    try:
        comparison.play(history, copy.copy(settings))
    except Exception:
        return True
    return False


@pytest.mark.timeout(7200)
def test_requests(request: pytest.FixtureRequest) -> None:
    """Every request code, names in several clusters."""
    play_many(request, 120, 400_000, Comparison(), shared_addresses=False, timeouts_ms=(60_000,))


@pytest.mark.timeout(7200)
def test_lost_connections_and_silence(request: pytest.FixtureRequest) -> None:
    """Time passes, brokers miss heartbeats, connections are lost."""
    narrowed = {"shared_addresses": False, "timeouts_ms": (3_000, 6_000), "advances_ms": (1_000, 3_000, 130_000)}
    play_many(request, 120, 400_000, Comparison(), closes=True, **narrowed)


@pytest.mark.timeout(7200)
def test_registrations_without_topics(request: pytest.FixtureRequest) -> None:
    """A gateway that leaves the topics out, and sends them when the fold asks, is as good as one that never does."""
    comparison = Comparison(slim=True)
    narrowed = {"shared_addresses": False, "timeouts_ms": (3_000, 60_000), "advances_ms": (3_000,)}
    play_many(request, 60, 200_000, comparison, closes=True, **narrowed)
    assert comparison.slim_refused > 100
