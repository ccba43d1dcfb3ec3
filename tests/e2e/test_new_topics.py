# SPDX-License-Identifier: Apache-2.0
"""A topic that its first message creates: stock broker, producer and consumer, the real NameServer and routelake.

A 5.5.0 broker registers such a topic inside the send and waits. A 4.9.7 broker registers it one-way, and answers the
send at once: a consumer that starts then, and finds no route, sleeps until its next poll. These clients poll every ten
minutes, so a consumer that gets a message has found the route at its first request.

An ordinary run has the 4.9.7 broker here, and one of 5.5.0 in `tests/clients/route/test_stock.py`.

routelake answers from the live view: half of its topics are created while the fold stands still. The gateway is a process.
Its answers do not depend on Spark, so the fold here is one without Spark.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dev.peers.broker import StockBroker
from dev.peers.java import wait_until
from dev.peers.java_client import JavaClient, bodies
from dev.peers.rocketmq import StockNameServer
from dev.peers.routelake import Routelake
from dev.support.fold import FoldThread
from eventlog.open import open_log
from tests.e2e.scenario import route

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

BUSY_S = 60
"""For one step, on a machine as busy as it may be."""
POLL_MS = 600_000
TEMPLATE = "TBW102"
TOPICS = 3
TRIES = 200
_numbers = count()


class Ours(NamedTuple):
    """A gateway and a fold."""

    gateway: Routelake
    fold: FoldThread

    @contextmanager
    def without_fold(self) -> Iterator[None]:
        """Nothing is folded meanwhile."""
        self.fold.pause()
        yield
        self.fold.resume()


class Scene:
    """A NameServer, a broker that knows no topic yet, and clients as old as the broker."""

    def __init__(self, namesrv: StockNameServer | Ours, client: JavaClient) -> None:
        self.client = client
        self._ours = namesrv if isinstance(namesrv, Ours) else None
        self.namesrv_addr = namesrv.gateway.namesrv_addr if isinstance(namesrv, Ours) else namesrv.address
        self._producer: Any = client.producer(self.namesrv_addr, f"producers-{next(_numbers)}", POLL_MS)

    def in_each_state(self) -> Iterator[tuple[str, AbstractContextManager[None]]]:
        """As it is; then, if it is routelake, while nothing is folded."""
        yield "", nullcontext()
        if self._ours is not None:
            yield "without the fold, ", self._ours.without_fold()

    def send(self) -> tuple[str, str]:
        """One message to a topic that does not exist yet, sent once; gives topic and body."""
        number = next(_numbers)
        topic, body = f"new-{number}", f"message {number}"
        assert route(self.namesrv_addr, topic) is None
        result = self._producer.send(self.client.message(topic, body), BUSY_S * 1000)
        assert result.getSendStatus().name() == "SEND_OK"
        return topic, body

    def refused(self) -> int:
        """How many route requests routelake has answered with 17; the real NameServer does not count them."""
        if self._ours is None:
            return 0
        address = f"http://127.0.0.1:{self._ours.gateway.http_port}/metrics"
        with urllib.request.urlopen(address, timeout=BUSY_S) as answer:
            found = re.search(r'^rocketmq_namesrv_route_errors_total\{code="17"\} (\d+)', answer.read().decode(), re.M)
        return int(found.group(1)) if found else 0

    def consume(self, topic: str, body: str) -> float:
        """Seconds from a new consumer's start to the message; whatever it asked was answered with a route."""
        refused = self.refused()
        began = time.monotonic()
        consumer = self.client.consumer(self.namesrv_addr, f"consumers-of-{topic}", topic, POLL_MS)
        try:
            received: list[str] = []

            def arrived() -> bool:
                received.extend(bodies(consumer.poll(200)))
                return received == [body]

            wait_until(arrived, BUSY_S, f"the message in {topic}", 0)
            took = time.monotonic() - began
            assert self.refused() == refused, f"a consumer of {topic} got 17; it had its message after {took:.1f} s"
            return took
        finally:
            consumer.shutdown()

    def close(self) -> None:
        self._producer.shutdown()


@pytest.fixture(scope="module")
def routelake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    data_dir = tmp_path_factory.mktemp("routelake") / "data"
    data_dir.mkdir()
    gateway = Routelake(data_dir, "gateway")
    with closing(open_log(f"sqlite://{data_dir / 'events.db'}")) as log, FoldThread(log, data_dir / "lake") as fold:
        try:
            gateway.start(wait_ready_s=None).wait_listening()
            yield Ours(gateway, fold)
            assert gateway.stop() == 0
        finally:
            gateway.kill()


@pytest.fixture(scope="module", params=[pytest.param("NameServer", marks=pytest.mark.deep), "routelake"])
def namesrv(request: pytest.FixtureRequest) -> Iterator[StockNameServer | Ours]:
    if request.param == "routelake":
        ours: Ours = request.getfixturevalue("routelake")
        yield ours
    else:
        with StockNameServer() as stock:
            yield stock


@pytest.fixture(scope="module", params=[pytest.param("5.5.0", marks=pytest.mark.deep), "4.9.7"])
def release(request: pytest.FixtureRequest) -> str:
    """Of broker and clients."""
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def scene(namesrv: StockNameServer | Ours, release: str) -> Iterator[Scene]:
    with ExitStack() as stack:
        found = Scene(namesrv, stack.enter_context(JavaClient(release)))
        stack.callback(found.close)
        # The broker before it, of another release, was killed: its routes went with its connection.
        wait_until(lambda: route(found.namesrv_addr, TEMPLATE) is None, BUSY_S, "no broker")
        stack.enter_context(StockBroker(found.namesrv_addr, release=release))
        wait_until(lambda: route(found.namesrv_addr, TEMPLATE) is not None, BUSY_S, "the broker to be registered")
        yield found


def told(what: str, seconds: float) -> None:
    print(f"{what}: {seconds * 1000:.0f} ms")


def test_the_first_send_makes_the_topic_and_a_consumer_finds_it_at_once(scene: Scene, release: str) -> None:
    for name, state in scene.in_each_state():
        with state:
            for _ in range(TOPICS):
                began = time.monotonic()
                topic, body = scene.send()
                told(f"{name}sent to {topic}", time.monotonic() - began)
                if release == "5.5.0":
                    assert route(scene.namesrv_addr, topic) is not None, "the broker had waited for it"
                else:
                    told(f"{name}received", scene.consume(topic, body))


@pytest.mark.deep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("namesrv", "release"), [("NameServer", "4.9.7"), ("routelake", "4.9.7")], indirect=True, scope="module"
)
def test_two_hundred_consumers_find_the_topic_at_once(scene: Scene) -> None:
    """A few may take 20 s more, as long as RebalanceService rests; a route that was missed would come after POLL_MS."""
    for name, state in scene.in_each_state():
        with state:
            took = sorted(scene.consume(*scene.send()) for _ in range(TRIES // 2))
            told(f"{name}{len(took)} consumers, the median", took[len(took) // 2])
            told(f"{name}{sum(seconds > 10 for seconds in took)} took more than 10 s, the slowest", took[-1])


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_a_go_consumer_starts_right_after_the_send(scene: Scene, go_client: Path) -> None:
    """Its start is refused if it finds no route."""
    for name, state in scene.in_each_state():
        with state:
            for _ in range(TOPICS):
                topic = f"go-{next(_numbers)}"
                done = subprocess.run(
                    [go_client, "-namesrv", scene.namesrv_addr, "-topic", topic, "-body", topic],
                    capture_output=True, text=True, check=False, timeout=4 * BUSY_S,
                )  # fmt: skip
                assert done.returncode == 0, done.stdout + done.stderr
                steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
                assert [step["step"] for step in steps] == ["sent", "started", "received"]
                assert steps[-1]["body"] == topic
                print(f"{name}{topic}: " + ", ".join(f"{step['step']} {step['ms']} ms" for step in steps))
                assert steps[-1]["ms"] < 30_000, "it has waited for its next poll"
