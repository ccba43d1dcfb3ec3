# SPDX-License-Identifier: Apache-2.0
"""A client that moves between gateways and passes the offset token never sees routes go back in time.

Real gateways over one log and one lake, asked over HTTP; the fold and the Delta writer without Spark (`MiniFold`).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.gateway import Reads
from tests.support.http_api import broker
from tests.support.local import LocalGateway, LocalLake

NAMES = ("one", "two", "three")
PATIENT = {"wait_timeout": 30_000}


@contextmanager
def over_tcp(gateway: LocalGateway) -> Iterator[httpx.Client]:
    """A client of a gateway's HTTP listener."""
    with httpx.Client(base_url=gateway.http_url, timeout=40) as client:
        yield client


def over_http(counter: int) -> dict[str, Any]:
    """A registration whose topic has as many queues as it has changed."""
    return broker("broker-h", host=9, counter=counter, topics={"orders": counter, "other": 1})


@contextmanager
def unlike_gateways(folder: Path) -> Iterator[list[httpx.Client]]:
    """Three gateways: two at the head of the log, and one that answers from epochs and sees them late."""
    with ExitStack() as stack:
        lake = stack.enter_context(LocalLake(folder))
        clients = []
        for name, reads in zip(NAMES, (Reads.HEAD, Reads.HEAD, Reads.COMMITTED), strict=True):
            gateway = stack.enter_context(lake.gateway(http_port=0, gateway_id=name, poll_s=0.25, reads=reads))
            clients.append(stack.enter_context(over_tcp(gateway)))
        yield clients


def test_a_client_that_moves_never_sees_routes_go_back(tmp_path: Path) -> None:
    chance, stop = random.Random(1), threading.Event()
    with unlike_gateways(tmp_path) as clients:
        written = clients[0].post("/v1/brokers/register", json=over_http(1)).raise_for_status().json()

        def write() -> int:
            counter = 1
            while not stop.is_set():
                counter += 1
                clients[0].post("/v1/brokers/register", json=over_http(counter)).raise_for_status()
            return counter

        def read(token: int) -> tuple[int, int]:
            answer = clients[chance.randrange(3)].get("/v1/topics/orders/route", params={"wait_for": token, **PATIENT})
            queues = answer.raise_for_status().json()["queueDatas"][0]["readQueueNums"]
            return queues, int(answer.headers["x-routelake-offset"])

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                seen, token = [1], written["offset"]
                for _ in range(40):
                    queues, token = read(token)
                    seen.append(queues)
                careless = [1]
                deadline = time.monotonic() + 60
                while careless == sorted(careless):  # who passes no token does see an older route, sooner or later
                    assert time.monotonic() < deadline, (
                        f"{len(careless)} reads without a token, none older than another"
                    )
                    careless.append(read(0)[0])
            finally:
                stop.set()
            assert writing.result(20) > 5
    assert seen == sorted(seen)
    assert seen[-1] > seen[1], "the routes did move meanwhile"


def test_the_token_of_a_write_is_good_at_every_gateway(tmp_path: Path) -> None:
    with unlike_gateways(tmp_path) as clients:
        for counter in range(1, 7):
            writer = clients[counter % 3]
            written = writer.post("/v1/brokers/register", json=over_http(counter)).raise_for_status().json()
            for client in clients:
                answer = client.get("/v1/topics/orders/route", params={"wait_for": written["offset"], **PATIENT})
                assert answer.raise_for_status().json()["queueDatas"][0]["readQueueNums"] == counter
                assert int(answer.headers["x-routelake-offset"]) >= written["offset"]


@pytest.mark.parametrize("reads", Reads)
def test_a_gateway_that_lags_says_so_instead_of_going_back(tmp_path: Path, reads: Reads) -> None:
    with (
        LocalLake(tmp_path) as lake,
        lake.gateway(http_port=0, gateway_id="one") as one,
        lake.gateway(http_port=0, gateway_id="stuck", reads=reads) as stuck,
        over_tcp(one) as client,
        over_tcp(stuck) as lagging,
    ):
        first = client.post("/v1/brokers/register", json=over_http(1)).raise_for_status().json()
        at_first = {"wait_for": first["offset"], **PATIENT}
        assert lagging.get("/v1/topics/orders/route", params=at_first).status_code == 200
        follower: Any = stuck.gateway._head if reads is Reads.HEAD else stuck.gateway.follower
        follower.stop()
        second = client.post("/v1/brokers/register", json=over_http(2)).raise_for_status().json()
        late = lagging.get("/v1/topics/orders/route", params={"wait_for": second["offset"], "wait_timeout": 200})
        assert late.status_code == 503, late.text
        assert lagging.get("/v1/topics/orders/route", params=at_first).json()["queueDatas"][0]["readQueueNums"] == 1
