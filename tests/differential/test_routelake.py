# SPDX-License-Identifier: Apache-2.0
"""routelake and the model of the NameServer answer alike, over the wire.

The model agrees with Apache RocketMQ's own NameServer 5.5.0 (test_model_against_namesrv.py), so by the same comparison it
judges routelake: gateway, event log, the real fold and the real Delta writer. Only Spark is left out here, for speed
(`FoldThread`); tests/e2e drives the whole.

Left out are what routelake answers differently on purpose (docs/reference/compatibility.md): 322 without a brokerName,
addresses shared by several broker names, and UPDATE/GET_NAMESRV_CONFIG.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dev.histories.audit import audit_requests
from dev.histories.seeded import random_histories
from dev.model import codes
from dev.model.deliberate import DeliberateModel
from dev.model.namesrv import NameServerModel
from dev.model.settings import Settings
from dev.support.local import LocalLake
from tests.differential.comparison import SharedComparison, TooSlow

CONFIG_CODES = frozenset({codes.UPDATE_NAMESRV_CONFIG, codes.GET_NAMESRV_CONFIG})
NOT_AUDITED = CONFIG_CODES | {codes.QUERY_DATA_VERSION}


AT_ONCE = 16
"""Histories that are played at the same time."""


class ModelWithConnections(DeliberateModel):
    """A lost connection unregisters as routelake has it (docs/reference/compatibility.md)."""

    def close_channel(self, channel: Hashable, now_ms: int) -> None:
        self.lose_connection(channel)

    def close_is_unspecified(self, channel: Hashable) -> bool:
        return False


class RoutelakeComparison(SharedComparison):
    """Reads back everything but what differs on purpose."""

    def _fresh_model(self, settings: Settings | None) -> NameServerModel:
        return ModelWithConnections(settings)

    def audit(self) -> None:
        for request in audit_requests(self._example):
            if request.code not in NOT_AUDITED:
                self.compare(request)
                self.reads_compared += 1


@pytest.fixture(scope="module", params=["folding", "the-fold-stands-still"])
def port(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[int]:
    """Of a gateway over a log on disk; with a fold, or with one that ends after the first epoch."""
    folder: Path = tmp_path_factory.mktemp("differential")
    with LocalLake(folder, log_url=f"sqlite://{folder / 'events.db'}") as lake, lake.gateway() as gateway:
        lake.fold.wait_for(lake.log.end().next_offset - 1)
        if request.param != "folding":
            lake.fold.pause()
        yield gateway.port


EXAMPLES = itertools.count(1)
"""Numbers of histories: each has names of its own."""


def _play_many(port: int, request: pytest.FixtureRequest, few: int, many: int, **narrowed: object) -> None:
    """Play so many steps; the same histories in every ordinary run, new ones with --deep."""
    deep = request.config.getoption("--deep", default=False)
    wanted, seed = (many, random.SystemRandom().randrange(1 << 32)) if deep else (few, 1)
    histories = random_histories(seed, shared_addresses=False, timeouts_ms=(600_000,), length=30, **narrowed)  # type: ignore[arg-type]
    steps = reads = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while steps < wanted:
            comparisons = [
                RoutelakeComparison("127.0.0.1", port, NameServerModel(), examples=EXAMPLES, unregisters_at_once=True)
                for _ in range(AT_ONCE)
            ]
            playing = [pool.submit(comparison.play, next(histories)[1]) for comparison in comparisons]
            for comparison, played in zip(comparisons, playing, strict=True):
                try:
                    played.result()
                except TooSlow:
                    continue
                finally:
                    comparison.close()
                steps += comparison.steps_compared
                reads += comparison.reads_compared
    print(f"{steps} steps agreed, and {reads} reads after them")


@pytest.mark.timeout(1800)
def test_main_codes(port: int, request: pytest.FixtureRequest) -> None:
    """The requests of the main job."""
    _play_many(port, request, 600, 5_000, request_codes=codes.MAIN_CODES)


@pytest.mark.timeout(1800)
def test_every_code(port: int, request: pytest.FixtureRequest) -> None:
    """Every request but the configuration of the NameServer."""
    _play_many(port, request, 600, 5_000, request_codes=frozenset(codes.ALL_CODES) - CONFIG_CODES)


@pytest.mark.timeout(1800)
def test_lost_connections(port: int, request: pytest.FixtureRequest) -> None:
    """A lost connection unregisters what was bound to it."""
    _play_many(port, request, 600, 2_000, request_codes=codes.MAIN_CODES, closes=True)
