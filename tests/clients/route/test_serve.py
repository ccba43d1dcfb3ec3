# SPDX-License-Identifier: Apache-2.0
"""The route client at a whole `routelake serve`, Spark and all: changes arrive, also after its gateway was killed."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import httpx
import pytest

from clients.route.blocking import BlockingRouteClient
from clients.route.cache import RouteChange
from clients.route.errors import NoRouteError
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.http_api import broker

pytestmark = [pytest.mark.jvm, pytest.mark.deep]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routelake]:
    with Routelake(tmp_path_factory.mktemp("serve") / "data") as routelake:
        yield routelake


def register(serve: Routelake, name: str, host: int) -> None:
    """Register a broker; it is visible when this returns."""
    url = f"http://127.0.0.1:{serve.http_port}/v1/brokers/register"
    answer = httpx.post(url, json=broker(name, topics=("orders", "TBW102"), host=host), timeout=30, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert answer.json()["visible"]


def test_changes_arrive_also_from_a_gateway_that_was_killed(serve: Routelake) -> None:
    changes: queue.Queue[tuple[float, RouteChange]] = queue.Queue()
    with BlockingRouteClient(f"http://127.0.0.1:{serve.http_port};{serve.namesrv_addr}") as client:
        client.listen(lambda change: changes.put((time.monotonic(), change)), "orders")
        with pytest.raises(NoRouteError):
            client.route("orders")
        for host in (1, 2, 3):
            register(serve, f"broker-{host}", host)
            visible = time.monotonic()
            heard, change = changes.get(timeout=60)
            assert heard - visible < 10  # not by the next question: a long poll ends after 20 s
            assert change.new is not None
            assert len(change.new.broker_datas) == host
        serve.kill_child("gateway")
        assert len(client.publish_queues("orders")) == 24  # what is known stays in use
        wait_until(serve.is_whole, 180, "the gateway to be back")
        register(serve, "broker-4", 4)
        _, change = changes.get(timeout=60)
        assert change.new is not None
        assert len(change.new.broker_datas) == 4
        with BlockingRouteClient(serve.namesrv_addr) as remoting:
            assert remoting.route("orders") == client.route("orders")
