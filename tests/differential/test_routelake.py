"""routelake and the model of the NameServer answer alike, over the wire.

The model agrees with Apache RocketMQ's own NameServer 5.5.0 (test_model_against_namesrv.py), so by the same duel it
judges routelake: gateway, event log, the real fold and the real Delta writer. Only Spark is left out here, for speed
(`MiniFold`); tests/e2e drives the whole.

Left out are what routelake answers differently on purpose (docs/known-differences.md): 322 without a brokerName,
addresses shared by several broker names, and UPDATE/GET_NAMESRV_CONFIG.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings

from api.gateway import Gateway, GatewaySettings
from api.remoting.handlers import NameServerHandler
from api.remoting.server import RemotingServer
from pipelines.log.base import open_log
from tests import strategies
from tests.differential import duel as duels
from tests.differential.duel import Duel, TooSlow
from tests.histories import Step
from tests.model import codes
from tests.model.namesrv import NameServerModel
from tests.support.minifold import MiniFold

CONFIG_CODES = frozenset({codes.UPDATE_NAMESRV_CONFIG, codes.GET_NAMESRV_CONFIG})
NOT_AUDITED = CONFIG_CODES | {codes.QUERY_DATA_VERSION}


class RoutelakeDuel(Duel):
    """Reads back everything but what differs on purpose."""

    def audit(self) -> None:
        for request in duels.audit_requests(self._example):
            if request.code not in NOT_AUDITED:
                self.compare(request)
                self.reads_compared += 1


@pytest.fixture(scope="module")
def duel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duel]:
    """A gateway on a thread of its own, a fold on another, and the model."""
    folder: Path = tmp_path_factory.mktemp("differential")
    url = f"sqlite://{folder / 'events.db'}"
    event_log = open_log(url)
    fold_log = open_log(url)
    ready, stop = threading.Event(), asyncio.Event()
    found: dict[str, object] = {}

    async def serve() -> None:
        gateway = Gateway(GatewaySettings(gateway_id="duel", lake_dir=folder / "lake", poll_s=0.002), event_log)
        await gateway.start()
        handler = NameServerHandler(gateway)
        server = RemotingServer(handler)
        await server.start("127.0.0.1", 0)
        found.update(port=server.port, loop=asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        handler.stop()
        await server.close(1.0)
        await gateway.stop()

    with MiniFold(fold_log, folder / "lake"):
        thread = threading.Thread(target=asyncio.run, args=(serve(),), name="duel-gateway")
        thread.start()
        assert ready.wait(30)
        port, loop = found["port"], found["loop"]
        assert isinstance(port, int)
        assert isinstance(loop, asyncio.AbstractEventLoop)
        duel = RoutelakeDuel("127.0.0.1", port, NameServerModel(started_ms=time.monotonic_ns() // 1_000_000))
        yield duel
        duel.close()
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
    fold_log.close()
    event_log.close()


def _play_many(duel: Duel, request: pytest.FixtureRequest, few: int, many: int, **narrowed: object) -> None:
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
    @given(history=strategies.histories(shared_addresses=False, timeouts_ms=(60_000,), **narrowed))  # type: ignore[arg-type]
    def agrees(history: list[Step]) -> None:
        try:
            duel.play(history)
        except TooSlow:
            return

    agrees()
    steps, reads = duel.steps_compared - before[0], duel.reads_compared - before[1]
    print(f"{steps} steps agreed, and {reads} reads after them")
    assert steps >= (many if deep else few)


@pytest.mark.timeout(1800)
def test_main_codes(duel: Duel, request: pytest.FixtureRequest) -> None:
    """The requests of the main job."""
    _play_many(duel, request, few=2, many=300, request_codes=codes.MAIN_CODES)


@pytest.mark.timeout(1800)
def test_every_code(duel: Duel, request: pytest.FixtureRequest) -> None:
    """Every request but the configuration of the NameServer."""
    _play_many(duel, request, few=2, many=300, request_codes=frozenset(codes.ALL_CODES) - CONFIG_CODES)


@pytest.mark.timeout(1800)
def test_lost_connections(duel: Duel, request: pytest.FixtureRequest) -> None:
    """A lost connection unregisters what was bound to it."""
    _play_many(duel, request, few=2, many=150, request_codes=codes.MAIN_CODES, closes=True)
