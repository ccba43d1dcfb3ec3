"""Several gateways over one log and one lake: the same answers, one set of tables, and no way back in time.

The gateways are real and are asked over TCP; the fold and the Delta writer are real, too, without Spark (`MiniFold`).
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.app import create_app
from api.http.server import serve_http
from api.view.history import History
from schemas.events import ChannelClosed, decode
from tests.differential.duel import audit_requests
from tests.examples.parts import ADDR1, ADDR2, ADDR3, T1, T2, A, B, config, register, unregister, version
from tests.histories import CloseChannel, Send
from tests.model import codes
from tests.model.client import RemotingClient
from tests.model.wire import Request, Response
from tests.random_histories import random_histories
from tests.support.java import wait_until
from tests.support.local import LocalGateway, LocalLake

NAMES = ("one", "two", "three")


class Several:
    """Gateways over one lake, and one connection of an operator to each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        # Times of heartbeats make no table versions of their own here: every other one counts.
        self.lake = stack.enter_context(LocalLake(folder, liveness_interval_s=3600))
        self.gateways = [self.start(name) for name in NAMES]
        self._operators = [stack.enter_context(gateway.connect()) for gateway in self.gateways]

    def start(self, name: str, **settings: Any) -> LocalGateway:
        chosen = {"gateway_id": name, "clock_interval_s": 0.05, **settings}
        return self._stack.enter_context(self.lake.gateway(**chosen))

    def connect(self, gateway: int | LocalGateway) -> RemotingClient:
        """A connection of a broker; it stays open until the test ends, unless it is lost."""
        local = self.gateways[gateway] if isinstance(gateway, int) else gateway
        return self._stack.enter_context(local.connect())

    def ask(self, gateway: int, request: Request) -> Response:
        return self._operators[gateway].call(request)

    def common_answer(self, request: Request, *others: RemotingClient) -> Response:
        """What all gateways answer. A lost connection reaches the log a moment after it was lost, hence the patience."""
        answers: list[Response] = []

        def alike() -> bool:
            answers[:] = [client.call(request) for client in (*self._operators, *others)]
            return all(answer == answers[0] for answer in answers)

        wait_until(alike, 5, f"the same answers to {request}")
        return answers[0]

    def settle(self) -> None:
        """Wait until everything on the log is folded, and is in every view."""
        last = self.lake.log.end().next_offset - 1
        self.lake.fold.wait_for(last)
        for local in self.gateways:
            seen = asyncio.run_coroutine_threadsafe(local.gateway.wait_for(last, 10), local._loop)
            assert seen.result(20)

    def versions(self) -> tuple[int, dict[str, int]]:
        """Epoch, and the version of every table; heartbeats alone change none."""
        self.settle()
        return self.lake.fold.writer.epoch, {
            name: table.version() for name, table in self.lake.fold.writer.tables.items()
        }

    def have_route(self, topic: str = T1) -> list[bool]:
        """Which gateways answer a route."""
        self.settle()
        return [self.ask(gateway, route(topic)).code == codes.SUCCESS for gateway in range(len(NAMES))]

    def closings(self) -> int:
        """How many lost connections are on the log."""
        records = self.lake.log.read(0, max_records=100_000)
        return sum(isinstance(decode(record.payload), ChannelClosed) for record in records)

    def lose(self, connection: RemotingClient) -> None:
        """Close a broker's connection; returns when the log has it."""
        before = self.closings()
        connection.close()
        wait_until(lambda: self.closings() > before, 10, "the lost connection")


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Several]:
    with ExitStack() as stack:
        yield Several(tmp_path, stack)


def route(topic: str) -> Request:
    return Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).request()


def succeeds(connection: RemotingClient, send: Send) -> Response:
    answer = connection.call(send.request())
    assert answer.code == codes.SUCCESS, answer
    return answer


# --- the same answers ---


def test_all_answer_alike_whoever_was_told(several: Several) -> None:
    """A generated history is dealt out to three gateways; then every read of every gateway answers the same."""
    chance = random.Random(20261121)
    connections: dict[tuple[str, int], RemotingClient] = {}
    histories = random_histories(7, codes.MAIN_CODES | {codes.REGISTER_TOPIC_IN_NAMESRV}, length=40, closes=True)
    reads = 0
    for _ in range(2):
        for step in next(histories)[1]:
            if isinstance(step, Send):
                gateway = chance.randrange(len(NAMES))
                if (step.channel, gateway) not in connections:
                    connections[step.channel, gateway] = several.connect(gateway)
                connections[step.channel, gateway].call(step.request(), binary=step.binary)
            elif isinstance(step, CloseChannel):
                for key in [key for key in connections if key[0] == step.channel]:
                    connections.pop(key).close()
        several.settle()
        late = several.start(f"late-{reads}")
        with late.connect() as latecomer:
            for request in audit_requests():
                answer = several.common_answer(request, latecomer)
                reads += answer.code == codes.SUCCESS and bool(answer.body)
    assert reads > 20


def test_a_broker_may_register_with_one_or_some_or_all(several: Several) -> None:
    succeeds(several.connect(0), register(A, ADDR1, topics=[config(T1)] * 2 + [config("only-a")]))
    succeeds(several.connect(1), register(B, ADDR2))
    for gateway in range(3):
        succeeds(several.connect(gateway), register("broker-c", ADDR3))
    several.settle()
    for gateway in range(3):
        answer = several.ask(gateway, route(T1))
        assert {row["brokerName"] for row in json.loads(answer.body)["queueDatas"]} == {
            Send(0, {"name": name}).request().ext["name"] for name in (A, B, "broker-c")
        }


# --- no extra table versions ---


def test_registering_again_and_elsewhere_makes_no_table_version(several: Several) -> None:
    brokers = [several.connect(gateway) for gateway in range(3)]
    succeeds(brokers[0], register(A, ADDR1))
    before = several.versions()
    for _ in range(3):
        for broker in brokers:
            succeeds(broker, register(A, ADDR1))
    assert several.versions() == before


def test_a_change_told_to_all_at_once_is_one_epoch(several: Several) -> None:
    """As a stock broker does it: in parallel, to every address of namesrvAddr."""
    brokers = [several.connect(gateway) for gateway in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for counter in range(1, 7):
            before, _ = several.versions()
            changed = register(A, ADDR1, topics=[config(T1, queues=counter), config(T2)], at=version(counter=counter))
            list(pool.map(lambda broker, changed=changed: succeeds(broker, changed), brokers))
            assert several.versions()[0] == before + 1
            for gateway in range(3):
                row = json.loads(several.ask(gateway, route(T1)).body)["queueDatas"][0]
                assert row["readQueueNums"] == counter
        before, _ = several.versions()
        list(pool.map(lambda broker: succeeds(broker, unregister(A, ADDR1)), brokers))
        assert several.versions()[0] == before + 1
    assert several.have_route() == [False] * 3


# --- lost connections, lost gateways ---


def test_a_connection_lost_to_one_gateway_is_no_loss(several: Several) -> None:
    brokers = [several.connect(gateway) for gateway in range(3)]
    for broker in brokers:
        succeeds(broker, register(A, ADDR1))
    before = several.versions()
    several.lose(brokers[1])
    several.lose(brokers[0])
    assert several.have_route() == [True] * 3
    assert several.versions() == before
    several.lose(brokers[2])
    assert several.have_route() == [False] * 3


def test_it_may_come_back_to_the_gateway_it_lost(several: Several) -> None:
    first, second = several.connect(0), several.connect(1)
    succeeds(first, register(A, ADDR1))
    succeeds(second, register(A, ADDR1))
    several.lose(first)
    again = several.connect(0)
    succeeds(again, register(A, ADDR1))
    several.lose(second)
    assert several.have_route() == [True] * 3
    several.lose(again)
    assert several.have_route() == [False] * 3


def test_the_old_connection_ends_after_the_new_one_registered(several: Several) -> None:
    """A broker that reconnects before its old connection is seen to end, to the same gateway, is not unregistered."""
    old = several.connect(0)
    succeeds(old, register(A, ADDR1))
    new = several.connect(0)
    succeeds(new, register(A, ADDR1))
    several.lose(old)
    assert several.have_route() == [True] * 3


def test_a_gateway_that_stops_unregisters_nobody(several: Several) -> None:
    """Neither those that another one hears nor, before their time, those that it alone heard."""
    fourth = several.lake.gateway(gateway_id="four")
    with fourth:
        to_fourth = several.connect(fourth)
        succeeds(to_fourth, register(A, ADDR1))
        succeeds(several.connect(0), register(A, ADDR1))
        succeeds(to_fourth, register(B, ADDR2, topics=[config("only-b"), config(T2)]))
        before = several.versions()
    assert several.closings() == 0
    assert several.have_route() == [True] * 3
    assert several.have_route("only-b") == [True] * 3
    assert several.versions() == before


def test_a_gateway_that_is_gone_vouches_for_nobody_for_long(several: Several) -> None:
    """A broker that only it heard, or that leaves the others afterwards, is gone after its own timeout."""
    fourth = several.lake.gateway(gateway_id="four")
    last = several.connect(0)
    with fourth:
        to_fourth = several.connect(fourth)
        for broker in (to_fourth, last):
            succeeds(broker, register(A, ADDR1, heartbeatTimeoutMillis="1500"))
        succeeds(to_fourth, register(B, ADDR2, heartbeatTimeoutMillis="1500"))
    several.lose(last)
    wait_until(lambda: several.have_route() == [False] * 3, 10, "both brokers to be gone")


# --- offset tokens ---


@contextmanager
def http_door(gateway: LocalGateway) -> Iterator[httpx.Client]:
    """A client of a gateway's HTTP door, over TCP; the door runs on the gateway's own loop."""
    loop, stop, ports = gateway._loop, asyncio.Event(), []
    ready = threading.Event()

    def on_bound(port: int) -> None:
        ports.append(port)
        ready.set()

    async def serve() -> None:
        app = create_app(gateway.gateway, History(gateway._settings.lake_dir))
        await serve_http(app, "127.0.0.1", 0, stop=stop, on_bound=on_bound)

    serving = asyncio.run_coroutine_threadsafe(serve(), loop)
    assert ready.wait(10)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{ports[0]}", timeout=20) as client:
            yield client
    finally:
        loop.call_soon_threadsafe(stop.set)
        serving.result(20)


def over_http(counter: int) -> dict[str, Any]:
    """A registration whose topic has as many queues as it has changed."""
    topic = {"topicName": "orders", "readQueueNums": counter, "writeQueueNums": counter, "perm": 6}
    return {
        "clusterName": "c1", "brokerName": "broker-h", "brokerAddr": "10.0.0.9:10911", "brokerId": 0,
        "topicConfigSerializeWrapper": {
            "dataVersion": {"stateVersion": 0, "timestamp": 1_700_000_000_000, "counter": counter},
            "topicConfigTable": {"orders": topic, "other": {**topic, "topicName": "other", "readQueueNums": 1}},
        },
    }  # fmt: skip


@contextmanager
def unlike_gateways(folder: Path) -> Iterator[list[httpx.Client]]:
    """Three gateways: one sees an epoch at once, one late, and one very late."""
    with ExitStack() as stack:
        lake = stack.enter_context(LocalLake(folder))
        clients = []
        for name, poll_s in zip(NAMES, (0.002, 0.05, 0.25), strict=True):
            gateway = stack.enter_context(lake.gateway(gateway_id=name, poll_s=poll_s))
            clients.append(stack.enter_context(http_door(gateway)))
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
            answer = clients[chance.randrange(3)].get("/v1/topics/orders/route", params={"wait_for": token})
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
                while careless == sorted(careless):  # who passes no token does see an older route, sooner or later
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
                answer = client.get("/v1/topics/orders/route", params={"wait_for": written["offset"]})
                assert answer.raise_for_status().json()["queueDatas"][0]["readQueueNums"] == counter
                assert int(answer.headers["x-routelake-offset"]) >= written["offset"]


def test_a_gateway_that_lags_says_so_instead_of_going_back(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path) as lake,
        lake.gateway(gateway_id="one") as one,
        lake.gateway(gateway_id="stuck", visible_wait_s=0.1) as stuck,
        http_door(one) as client,
        http_door(stuck) as lagging,
    ):
        first = client.post("/v1/brokers/register", json=over_http(1)).raise_for_status().json()
        at_first = {"wait_for": first["offset"]}
        assert lagging.get("/v1/topics/orders/route", params=at_first).status_code == 200
        stuck.gateway.follower.stop()
        second = client.post("/v1/brokers/register", json=over_http(2)).raise_for_status().json()
        late = lagging.get("/v1/topics/orders/route", params={"wait_for": second["offset"], "wait_timeout": 200})
        assert late.status_code == 503, late.text
        assert lagging.get("/v1/topics/orders/route", params=at_first).json()["queueDatas"][0]["readQueueNums"] == 1
