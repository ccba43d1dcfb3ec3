# SPDX-License-Identifier: Apache-2.0
"""A 4.9.7 and a 5.5.0 broker in one cluster, RocketMQ's own producer and consumer, and routes that only routelake has.

The fold and one of two gateways are killed with SIGKILL and started again meanwhile. No send may fail, no broker may be
missing from a route that anybody answers, and what was sent has to arrive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from dev.model.client import ConnectionClosed
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.java_client import JavaConsumer, JavaProducer
from dev.support.rocketmq import StockBroker
from tests.e2e.scenario import admin, route

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(900)]

CLUSTER, TOPIC = "mixed-cluster", "mixed-orders"
BROKERS = {"broker-old": "4.9.7", "broker-new": "5.5.0"}


class Deployment:
    """One fold and two gateways, each a process of its own, over one data directory."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.fold = Routelake(folder / "data", "fold")
        self.gateways = [
            Routelake(folder / "data", "gateway", options=("--gateway-id", name)) for name in ("one", "two")
        ]
        for process in (self.fold, *self.gateways):
            stack.callback(process.kill)
        self.fold.start(wait_ready_s=None)
        for gateway in self.gateways:
            gateway.start(wait_ready_s=None)
        for gateway in self.gateways:
            gateway.wait_ready()

    @property
    def namesrv_addr(self) -> str:
        return ";".join(gateway.namesrv_addr for gateway in self.gateways)

    def all_route(self, topic: str, seconds: float) -> None:
        """Wait until every gateway names both brokers in the topic's route."""
        for gateway in self.gateways:
            namesrv_addr = gateway.namesrv_addr

            def both(namesrv_addr: str = namesrv_addr) -> bool:
                return brokers_of(namesrv_addr, topic) == {*BROKERS}

            wait_until(both, seconds, f"both brokers of {topic}")


class Watch(threading.Thread):
    """Looks again and again until it is stopped or a look fails.

    Args:
        look: Raises when something is wrong.
    """

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._look, self._stop_looking = look, threading.Event()
        self.looks = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop_looking.set()
        self.join(30)

    def run(self) -> None:
        try:
            while not self._stop_looking.wait(0.05):
                self._look()
                self.looks += 1
        except BaseException as error:
            self.error = error


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with ExitStack() as stack:
        yield Deployment(tmp_path, stack)


def brokers_of(namesrv_addr: str, topic: str = TOPIC) -> set[str]:
    """Broker names in a topic's route."""
    found = route(namesrv_addr, topic)
    return {row["brokerName"] for row in found["queueDatas"]} if found else set()


def test_producer_and_consumer_notice_nothing(deployment: Deployment) -> None:
    began = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s {what}")

    one, two = deployment.gateways
    with ExitStack() as stack:
        for name, release in BROKERS.items():
            stack.enter_context(StockBroker(deployment.namesrv_addr, CLUSTER, name, release=release))
        deployment.all_route("TBW102", 60)
        admin(two.namesrv_addr, "updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")
        deployment.all_route(TOPIC, 60)
        told("two brokers, one topic")

        def routes_hold() -> None:
            assert brokers_of(two.namesrv_addr) == {*BROKERS}
            try:
                found = brokers_of(one.namesrv_addr)
            except (OSError, ConnectionClosed):
                return  # it is dead at the moment
            assert found == {*BROKERS}

        consumer = stack.enter_context(JavaConsumer(deployment.namesrv_addr, TOPIC))
        producer = stack.enter_context(JavaProducer(deployment.namesrv_addr, TOPIC))
        watch = stack.enter_context(Watch(routes_hold))

        def goes_on(what: str) -> None:
            """A hundred messages more, and none of the three has failed."""
            count = len(producer.sent) + 100
            wait_until(lambda: len(producer.sent) >= count or producer.error is not None, 60, f"messages {what}")
            assert (producer.error, consumer.error, watch.error) == (None, None, None), what
            told(f"{len(producer.sent)} sent, {len(consumer.received)} received {what}")

        goes_on("at first")
        deployment.fold.kill()
        goes_on("without the fold")
        one.kill()
        goes_on("without the fold and a gateway")
        one.start(wait_ready_s=None)
        wait_until(lambda: _answers(one), 90, "the gateway to answer from the tables, without the fold")
        goes_on("with both gateways, still without the fold")
        deployment.fold.start(wait_ready_s=None)
        one.wait_ready()
        goes_on("with everything back")
        admin(one.namesrv_addr, "updateTopic", "-c", CLUSTER, "-t", "afterwards")
        deployment.all_route("afterwards", 60)
        producer.stop()
        wait_until(lambda: set(consumer.received) >= set(producer.sent), 60, "all messages to arrive")
        told(f"{len(producer.sent)} sent, {len(consumer.received)} received, routes looked at {watch.looks} times")
        assert (producer.error, consumer.error, watch.error) == (None, None, None)
    assert set(consumer.received) == set(producer.sent)
    assert set(producer.sent.values()) == {*BROKERS}, "both brokers took messages"
    assert watch.looks > 50


def _answers(gateway: Routelake) -> bool:
    try:
        return brokers_of(gateway.namesrv_addr) == {*BROKERS}
    except (OSError, ConnectionClosed):
        return False
