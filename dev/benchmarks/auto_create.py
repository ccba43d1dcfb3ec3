# SPDX-License-Identifier: Apache-2.0
"""auto-create: how long the send takes that makes its topic, by a stock 5.5.0 broker and a stock 5.5.0 producer.

The broker registers the new topic inside the send and waits for it (TopicConfigManager.createTopicInSendMessageMethod).
Each side has a broker of its own; one client has a producer for each.
"""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack, suppress
from typing import Any

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.frames import Link, route_query
from dev.benchmarks.harness.peers import NAMESERVER, ROUTELAKE, Server, entered, nameserver, only, routelake
from dev.benchmarks.harness.report import Figure, Result, median, quantile
from dev.peers.broker import StockBroker
from dev.peers.java import wait_until
from dev.peers.java_client import JavaClient

RATIO = 1.3
TEMPLATE = "TBW102"
"""TopicValidator.AUTO_CREATE_TOPIC_KEY_TOPIC: a broker with this topic creates topics at the first message."""
WARM_UP, THAWED = 20, 3
"""Sends of each side that do not count: at first, and in each turn, as who was frozen has things to make up for."""
BUSY_S = 60
"""For one send, on a machine as busy as it may be."""


def run(bench: Bench) -> Result:
    """Measure in turns."""
    count = bench.size(100, 3)
    rounds = min(bench.rounds, count)
    shares = [count // rounds + (number < count % rounds) for number in range(rounds)]
    took: dict[str, list[float]] = {ROUTELAKE: [], NAMESERVER: []}
    with ExitStack() as stack:
        servers = entered(stack, routelake(bench.folder / "data", bench.serve_options), nameserver())
        client = stack.enter_context(JavaClient("5.5.0"))
        sides = {server.name: stack.enter_context(Side(server, client)) for server in servers}
        for number, share in enumerate([min(WARM_UP, bench.size(WARM_UP, 1)), *shares]):
            for server in servers if number % 2 else reversed(servers):
                with only(server, servers):
                    sides[server.name].sends(min(THAWED, count))
                    seen = sides[server.name].sends(share)
                    if number:
                        took[server.name] += seen
                        bench.say(f"  round {number} {server.name}: p50 {median(seen):.1f}, longest {max(seen):.1f} ms")
        driver_ms = _driver_ms(client)
    figures = [_figure(took, "p50", 0.5), _figure(took, "p99", 0.99)]
    figures.append(Figure("Py4J's part of each send", driver_ms, "ms", note="of both sides"))
    return Result("auto-create", figures, details={"tookMs": took})


def _driver_ms(client: JavaClient) -> float:
    """Measure the cost of a call from here alone, in milliseconds."""
    system, found = getattr(client.jvm, "java.lang.System"), []
    for _ in range(50):
        began = time.monotonic()
        system.nanoTime()
        found.append((time.monotonic() - began) * 1000)
    return median(found)


def _figure(took: dict[str, list[float]], name: str, share: float) -> Figure:
    peers = {server: quantile(seen, share) for server, seen in took.items()}
    note = f"{peers[ROUTELAKE]:.1f} against {peers[NAMESERVER]:.1f} ms, {len(took[ROUTELAKE])} sends each"
    return Figure(f"send, {name}", peers[ROUTELAKE] / peers[NAMESERVER], "x", RATIO, "at most", note, peers)


class Side(ExitStack):
    """A server with a broker and a producer of its own."""

    def __init__(self, server: Server, client: JavaClient) -> None:
        """Nothing is started before it is entered."""
        super().__init__()
        self._server, self._client = server, client
        self._numbers = itertools.count()

    def __enter__(self) -> Side:
        """Start broker and producer."""
        super().__enter__()
        with ExitStack() as stack:
            address = f"127.0.0.1:{self._server.port}"
            stack.enter_context(StockBroker(address))
            self._producer: Any = self._client.producer(address, f"bench-{self._server.port}")
            stack.callback(self._producer.shutdown)
            self.push(stack.pop_all())
        return self

    def sends(self, count: int) -> list[float]:
        """Milliseconds of each of so many sends, each to a topic that does not exist yet.

        Raises:
            py4j.protocol.Py4JJavaError: One failed; there is no second try.
        """
        wait_until(self._registered, BUSY_S, "the broker to be registered")
        found = []
        for _ in range(count):
            message = self._client.message(f"auto-{next(self._numbers):05d}", "made by its first message")
            began = time.monotonic()
            result = self._producer.send(message, BUSY_S * 1000)
            found.append((time.monotonic() - began) * 1000)
            if (status := result.getSendStatus().name()) != "SEND_OK":
                raise RuntimeError(f"sent with {status}")
        return found

    def _registered(self) -> bool:
        with suppress(OSError), Link(self._server.port) as link:
            return link.call(route_query(TEMPLATE)).code == 0
        return False
