# SPDX-License-Identifier: Apache-2.0
"""A client that moves between gateways and passes the offset token never sees routes go back in time.

Real gateways over one log and one lake, asked over HTTP; the fold and the Delta writer without Spark (`FoldThread`).
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

from api.settings.gateway import Reads
from dev.support.http_api import broker
from dev.support.local import LocalGateway, LocalLake
from ops.backup.restore import restore
from ops.backup.take import take_backup

NAMES = ("one", "two", "three")
PATIENT = {"wait_timeout": 30_000}


@contextmanager
def over_tcp(gateway: LocalGateway) -> Iterator[httpx.Client]:
    """A client of a gateway's HTTP listener."""
    with httpx.Client(base_url=gateway.http_url, timeout=40) as client:
        yield client


def over_http(counter: int) -> dict[str, Any]:
    """A registration. Its topic has as many queues as it has changed."""
    return broker("broker-h", host=9, counter=counter, topics={"orders": counter, "other": 1})


@contextmanager
def unlike_gateways(folder: Path) -> Iterator[list[httpx.Client]]:
    """Three gateways: two at the head of the log, and one that answers from epochs and sees them late."""
    with ExitStack() as stack:
        lake = stack.enter_context(LocalLake(folder))
        clients = []
        for name, reads in zip(NAMES, (Reads.LIVE, Reads.LIVE, Reads.COMMITTED), strict=True):
            gateway = stack.enter_context(lake.gateway(http_port=0, gateway_id=name, poll_s=0.25, reads=reads))
            clients.append(stack.enter_context(over_tcp(gateway)))
        yield clients


def test_a_client_that_moves_never_sees_routes_go_back(tmp_path: Path) -> None:
    chance, stop = random.Random(1), threading.Event()
    with unlike_gateways(tmp_path) as clients:
        written = clients[0].post("/v1/brokers/register", json=over_http(1)).raise_for_status().json()

        def write() -> int:
            counter = 1
            while not stop.wait(0.02):  # fifty times a second
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
            assert writing.result(60) > 5
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
        follower: Any = stuck.gateway.replica if reads is Reads.LIVE else stuck.gateway.follower
        follower.stop()
        second = client.post("/v1/brokers/register", json=over_http(2)).raise_for_status().json()
        late = lagging.get("/v1/topics/orders/route", params={"wait_for": second["offset"], "wait_timeout": 200})
        assert late.status_code == 503, late.text
        assert lagging.get("/v1/topics/orders/route", params=at_first).json()["queueDatas"][0]["readQueueNums"] == 1


QUESTIONS = (
    "/v1/changes?from=1&limit=1",
    "/v1/topics/orders/changes?limit=1",
    "/v1/diff?from=1&limit=1",
    "/v1/reports/uneven?limit=1",
    "/v1/topics/orders/timeline?limit=1",
)


def kept_by(client: httpx.Client, writes: int, begin: int = 0) -> dict[str, str]:
    """The tokens that a client may keep, each with the request that it goes into, after some writes."""
    client.post("/v1/brokers/register", json=broker("broker-i", host=8, topics={"orders": 99, "other": 7}))
    for counter in range(begin + 1, begin + 1 + writes):
        written = client.post("/v1/brokers/register", json=over_http(counter)).raise_for_status()
        named = {"wait_for": written.headers["x-routelake-token"], "wait_timeout": "30000"}
        client.get("/v1/epochs", params=named).raise_for_status()
    kept = {"/v1/topics?wait_for=": written.headers["x-routelake-token"]}
    kept["/v1/clusters?wait_for="] = client.get("/v1/topics/orders/route").headers["x-routelake-token"]
    for question in QUESTIONS:
        kept[f"{question}&cursor="] = client.get(question).raise_for_status().json()["nextCursor"]
    with client.stream("GET", "/v1/events") as events:
        lines = events.iter_lines()
        kept["/v1/events?from="] = next(line for line in lines if line.startswith("id: ")).removeprefix("id: ")
    return kept


def what_comes(client: httpx.Client, asked: str) -> str:
    """A status; of events, the first one that is sent, or ``quiet``."""
    if not asked.startswith("/v1/events"):
        answer = client.get(asked)
        return f"{answer.status_code} {answer.json().get('type', '')}".rstrip()
    with client.stream("GET", asked) as events:
        blocks = [line for _, line in zip(range(8), events.iter_lines(), strict=False)]
    return next((line for line in blocks if line.startswith("event: ")), "quiet")


OTHER = "410 urn:routelake:problem:other-lake"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.http.events.QUIET_S", 0.05)


def test_a_token_is_valid_after_a_restart_and_invalid_after_a_restore(tmp_path: Path) -> None:
    """The restored lake goes on as far as the one before, so every number is there again, and means something else."""
    data, log_url = tmp_path / "data", f"sqlite://{tmp_path}/data/events.db"

    @contextmanager
    def client_of(folder: Path) -> Iterator[httpx.Client]:
        with (
            LocalLake(folder, log_url=log_url) as lake,
            lake.gateway(http_port=0, gateway_id="one") as gateway,
            over_tcp(gateway) as client,
        ):
            yield client

    data.mkdir()
    with client_of(data) as client:
        kept_by(client, 3)
    take_backup(data, log_url, tmp_path / "backup")
    with client_of(data) as client:
        kept = kept_by(client, 3, begin=3)
    with client_of(data) as client:
        assert {asked: what_comes(client, asked + token) for asked, token in kept.items()} == {
            asked: "event: epoch" if "events" in asked else "200" for asked in kept
        }
    restore(tmp_path / "backup", data, log_url, keep_log=False)
    with client_of(data) as client:
        kept_by(client, 9, begin=10)
        assert {asked: what_comes(client, asked + token) for asked, token in kept.items()} == {
            asked: "event: reset" if "events" in asked else OTHER for asked in kept
        }


def test_a_token_is_invalid_at_another_lake(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path / "a") as one,
        one.gateway(http_port=0) as gateway,
        LocalLake(tmp_path / "b") as two,
        two.gateway(http_port=0) as other,
        over_tcp(gateway) as client,
        over_tcp(other) as elsewhere,
    ):
        kept = kept_by(client, 4)
        kept_by(elsewhere, 8)
        for asked, token in kept.items():
            assert what_comes(elsewhere, asked + token) == ("event: reset" if "events" in asked else OTHER)
            assert what_comes(client, asked + token) in ("200", "event: epoch", "quiet")


def test_an_invalid_token_is_refused(tmp_path: Path) -> None:
    with LocalLake(tmp_path) as lake, lake.gateway(http_port=0) as gateway, over_tcp(gateway) as client:
        own = client.post("/v1/brokers/register", json=over_http(1)).headers["x-routelake-token"]
        for text in (
            "",
            "-",
            "1-",
            "1-xyz",
            f"{own}0",
            f"-{own}",
            f" {own}",
            "1-0000000G",
            "9" * 30,
            own.upper() + "-",
        ):
            answer = client.get("/v1/topics", params={"wait_for": text})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "wait_for"), text
        assert client.get("/v1/topics", params={"wait_for": own}).status_code == 200
