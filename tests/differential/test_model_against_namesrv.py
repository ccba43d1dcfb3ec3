"""The model and Apache RocketMQ's own NameServer 5.5.0 answer alike, whatever is asked of them.

This is what entitles the model to judge the product. One real NameServer serves all examples; see `duel`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings

from tests import strategies
from tests.differential.duel import Duel, TooSlow
from tests.histories import Step
from tests.model.codes import ALL_CODES, MAIN_CODES
from tests.model.namesrv import NameServerModel
from tests.model.settings import Settings
from tests.support.rocketmq import StockNameServer

pytestmark = pytest.mark.jvm

SCAN_INTERVAL_MS = 100
SHORT_TIMEOUT_MS = 1_500
# Long enough for the timeout, a scan, and the thread that unregisters.
PAST_TIMEOUT_MS = SHORT_TIMEOUT_MS + 3 * SCAN_INTERVAL_MS + 200


@pytest.fixture(scope="module")
def duel() -> Iterator[Duel]:
    """The stock NameServer with the model of it."""
    with StockNameServer({"scanNotActiveBrokerInterval": str(SCAN_INTERVAL_MS)}) as server:
        duel = Duel(server.host, server.port, NameServerModel(started_ms=time.monotonic_ns() // 1_000_000))
        yield duel
        duel.close()


def _play_many(duel: Duel, request: pytest.FixtureRequest, few: int, many: int, **narrowed: Any) -> None:
    """Play generated histories, few in the ordinary run and many with --deep."""
    deep = request.config.getoption("--deep", default=False)
    before = duel.steps_compared, duel.reads_compared

    @hypothesis_settings(
        max_examples=many if deep else few,
        derandomize=not deep,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )
    @given(history=strategies.histories(**narrowed), settings=strategies.settings())
    def agrees(history: list[Step], settings: Settings) -> None:
        try:
            duel.play(history, settings)
        except TooSlow:
            return

    agrees()
    steps, reads = duel.steps_compared - before[0], duel.reads_compared - before[1]
    print(f"{steps} steps agreed, and {reads} reads after them")
    assert steps >= (many if deep else few)


@pytest.mark.timeout(1800)
def test_main_codes(duel: Duel, request: pytest.FixtureRequest) -> None:
    """The requests of the main job."""
    _play_many(duel, request, few=12, many=500, request_codes=MAIN_CODES, timeouts_ms=(60_000,))


@pytest.mark.timeout(1800)
def test_every_code(duel: Duel, request: pytest.FixtureRequest) -> None:
    """Every request of the NameServer, its settings changed on line among them."""
    _play_many(duel, request, few=15, many=800, request_codes=ALL_CODES, timeouts_ms=(60_000,))


@pytest.mark.timeout(1800)
def test_lost_connections(duel: Duel, request: pytest.FixtureRequest) -> None:
    """A lost connection unregisters what was bound to it."""
    _play_many(duel, request, few=6, many=300, timeouts_ms=(60_000,), closes=True)


@pytest.mark.timeout(1800)
def test_silence(duel: Duel, request: pytest.FixtureRequest) -> None:
    """A broker whose timeout passes is unregistered, and its connection closed."""
    _play_many(
        duel,
        request,
        few=2,
        many=40,
        max_steps=24,
        timeouts_ms=(SHORT_TIMEOUT_MS, SHORT_TIMEOUT_MS),
        advances_ms=(PAST_TIMEOUT_MS,),
        closes=True,
    )
