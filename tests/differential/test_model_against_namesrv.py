# SPDX-License-Identifier: Apache-2.0
"""The model and Apache RocketMQ's own NameServer 5.5.0 answer alike, whatever is asked of them.

This is what entitles the model to judge the product. One real NameServer serves all examples; see `comparison`.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dev.histories import strategies
from dev.histories.malformed import generators_with_malformed
from dev.histories.seeded import random_histories, shrunk
from dev.histories.steps import Advance, Step
from dev.model.codes import (
    ALL_CODES,
    BROKER_HEARTBEAT,
    GET_BROKER_CLUSTER_INFO,
    GET_ROUTEINFO_BY_TOPIC,
    MAIN_CODES,
    QUERY_DATA_VERSION,
    REGISTER_BROKER,
    UPDATE_NAMESRV_CONFIG,
)
from dev.model.namesrv import NameServerModel
from dev.model.settings import Settings
from dev.support.rocketmq import StockNameServer
from tests.differential.comparison import Comparison, Disagreement, SharedComparison, TooSlow
from tests.examples.all import EXAMPLES

pytestmark = pytest.mark.jvm

SCAN_INTERVAL_MS = 100
SHORT_TIMEOUT_MS = 1_500
# Long enough for the timeout, a scan, and the thread that unregisters.
PAST_TIMEOUT_MS = SHORT_TIMEOUT_MS + 3 * SCAN_INTERVAL_MS + 200

LIVENESS_CODES = frozenset(
    {REGISTER_BROKER, QUERY_DATA_VERSION, BROKER_HEARTBEAT, GET_ROUTEINFO_BY_TOPIC, GET_BROKER_CLUSTER_INFO}
)
FIXED_SETTINGS_CODES = ALL_CODES - {UPDATE_NAMESRV_CONFIG}


class Arena:
    """One stock NameServer for all histories, renewed when the model has lost track of it."""

    def __init__(self) -> None:
        self._server = ExitStack()
        self.steps_agreed = 0
        self.comparison = self._fresh()

    def _fresh(self) -> Comparison:
        server = self._server.enter_context(StockNameServer({"scanNotActiveBrokerInterval": str(SCAN_INTERVAL_MS)}))
        return Comparison(server.host, server.port, NameServerModel(started_ms=time.monotonic_ns() // 1_000_000))

    def play(self, history: list[Step], settings: Settings) -> None:
        """Play one history; after a disagreement the next one finds a new server, so that shrinking makes sense."""
        try:
            self.comparison.play(history, settings)
        except TooSlow:
            return
        except Exception:
            self.close()
            self.comparison = self._fresh()
            raise
        self.steps_agreed += len(history)

    def disagrees(self, settings: Settings, history: list[Step]) -> bool:
        """Whether the model and the server disagree on a history."""
        try:
            self.play(history, settings)
        except Disagreement:
            return True
        return False

    def close(self) -> None:
        """Stop the server."""
        self.comparison.close()
        self._server.close()


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    """The stock NameServer with the model of it."""
    arena = Arena()
    yield arena
    arena.close()


def _profile(request: pytest.FixtureRequest, few: int, many: int) -> hypothesis_settings:
    """The same few examples in every ordinary run, many new ones with --deep."""
    deep = request.config.getoption("--deep", default=False)
    return hypothesis_settings(
        max_examples=many if deep else few,
        derandomize=not deep,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )


def _play_many(
    arena: Arena,
    request: pytest.FixtureRequest,
    histories: st.SearchStrategy[list[Step]],
    few: int,
    many: int,
) -> None:
    """Play generated histories one after the other."""
    before = arena.steps_agreed

    @_profile(request, few, many)
    @given(history=histories, settings=strategies.settings())
    def agrees(history: list[Step], settings: Settings) -> None:
        arena.play(history, settings)

    agrees()
    print(f"{arena.steps_agreed - before} steps agreed")


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(arena: Arena, request: pytest.FixtureRequest, name: str) -> None:
    """The examples of the model, each with the switches it needs."""
    example = EXAMPLES[name]
    if any(isinstance(step, Advance) for step in example.plain_steps) and not request.config.getoption("--deep"):
        pytest.skip("waits in real time: run with --deep")
    arena.play(example.plain_steps, example.settings)


@pytest.mark.timeout(1800)
def test_main_codes(arena: Arena, request: pytest.FixtureRequest) -> None:
    """The requests of the main job."""
    histories = strategies.histories(MAIN_CODES, timeouts_ms=(60_000,))
    _play_many(arena, request, histories, few=25, many=600)


@pytest.mark.timeout(1800)
def test_every_code(arena: Arena, request: pytest.FixtureRequest) -> None:
    """Every request of the NameServer, its settings changed on line among them."""
    histories = strategies.histories(ALL_CODES, timeouts_ms=(60_000,))
    _play_many(arena, request, histories, few=25, many=900)


@pytest.mark.timeout(1800)
def test_lost_connections(arena: Arena, request: pytest.FixtureRequest) -> None:
    """A lost connection unregisters what was bound to it."""
    histories = strategies.histories(timeouts_ms=(60_000,), closes=True)
    _play_many(arena, request, histories, few=12, many=400)


@pytest.mark.timeout(1800)
def test_silence(arena: Arena, request: pytest.FixtureRequest) -> None:
    """A broker that misses its timeout is unregistered, and its connection closed."""
    histories = strategies.histories(
        LIVENESS_CODES,
        max_steps=24,
        timeouts_ms=(SHORT_TIMEOUT_MS, SHORT_TIMEOUT_MS),
        advances_ms=(PAST_TIMEOUT_MS,),
        closes=True,
    )
    _play_many(arena, request, histories, few=4, many=60)


@pytest.mark.timeout(1800)
def test_malformed_requests(arena: Arena, request: pytest.FixtureRequest) -> None:
    """What no stock peer sends: the tables may end half-changed, and both half-changed alike."""
    histories = strategies.histories(generators=generators_with_malformed(), timeouts_ms=(60_000,))
    _play_many(arena, request, histories, few=10, many=300)


@pytest.mark.timeout(1800)
def test_histories_at_the_same_time(request: pytest.FixtureRequest) -> None:
    """Histories that share a server do not disturb each other, so a slow server may play many at once."""
    at_once = 6
    settings = Settings(support_acting_master=True, order_message_enable=True)
    steps = 0
    with StockNameServer({"supportActingMaster": "true", "orderMessageEnable": "true"}) as server:
        numbers = itertools.count(1)

        @_profile(request, few=4, many=100)
        @given(
            st.lists(
                strategies.histories(FIXED_SETTINGS_CODES, timeouts_ms=(600_000,)), min_size=at_once, max_size=at_once
            )
        )
        def agree(histories: list[list[Step]]) -> None:
            nonlocal steps
            comparisons = [
                SharedComparison(server.host, server.port, NameServerModel(settings), examples=numbers)
                for _ in histories
            ]
            with ThreadPoolExecutor(at_once) as pool:
                playing = [
                    pool.submit(comparison.play, history, settings)
                    for comparison, history in zip(comparisons, histories, strict=True)
                ]
            for comparison in comparisons:
                comparison.close()
            for played in playing:
                played.result()
            steps += sum(comparison.steps_compared for comparison in comparisons)

        agree()
    print(f"{steps} steps agreed")


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_many_steps(arena: Arena) -> None:
    """At least 20,000 steps of every code, lost connections among them, new ones in every run."""
    seed = random.SystemRandom().randrange(1 << 32)
    before = arena.steps_agreed
    for settings, history in random_histories(seed, timeouts_ms=(60_000,), closes=True):
        try:
            arena.play(history, settings)
        except Disagreement as error:
            shorter = shrunk(history, partial(arena.disagrees, settings))
            raise AssertionError(f"seed {seed}, {settings}:\n" + "\n".join(map(repr, shorter))) from error
        if arena.steps_agreed - before >= 20_000:
            break
    print(f"{arena.steps_agreed - before} steps agreed")
