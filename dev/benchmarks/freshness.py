# SPDX-License-Identifier: Apache-2.0
"""freshness: from sending a registration with one new topic until a route request on another connection is answered.

A broker registers a topic that it has just created alone (BrokerController.registerIncrementBrokerData).

Asked of the gateway that took the registration, of another gateway over the same log, and of the first with the fold
stopped; with SQLite and with Kafka; and of the NameServer. 20 brokers heartbeat once a second each.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final

from clients.broker.fleet_topics import FleetBroker
from clients.broker.registration import Registration
from clients.broker.topic_config import TopicConfig, encode_entries, next_version
from dev.benchmarks.harness.background import heartbeats
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.frames import Link, brokers, register_all, registration, route_query
from dev.benchmarks.harness.machine import Meter, tree
from dev.benchmarks.harness.peers import Server, kafka_log, nameserver, routelake, rust_nameserver
from dev.benchmarks.harness.report import Figure, Result, median, quantile
from dev.peers.java import wait_until
from dev.peers.stopped import stopped

BROKERS = 20
TOPICS = 50
WARM_UP = 20
"""Registrations that do not count."""
TARGETS_MS: Final = {
    ("SQLite", "same gateway"): (5.0, 25.0),
    ("SQLite", "same gateway, fold stopped"): (5.0, 25.0),
    ("SQLite", "another gateway"): (15.0, 60.0),
    ("Kafka", "same gateway"): (30.0, 100.0),
    ("Kafka", "same gateway, fold stopped"): (30.0, 100.0),
    ("Kafka", "another gateway"): (30.0, 100.0),
}
"""p50 and p99."""


def run(bench: Bench) -> Result:
    """Measure with both event logs, then the NameServer."""
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    count = bench.size(300, 3)
    for log in ("SQLite", "Kafka"):
        with ExitStack() as stack:
            options = list(bench.serve_options)
            if log == "Kafka":
                options += ["--event-log", stack.enter_context(kafka_log())]
            data = bench.folder / log
            lake = stack.enter_context(routelake(data, options))
            other = stack.enter_context(routelake(data, [*options, "--gateway-id", "other"], "gateway"))
            wait_until(partial(_answers, other), 60, "the other gateway")
            scene = stack.enter_context(Scene.of(bench, lake))
            for place, asked in (("same gateway", lake), ("another gateway", other)):
                meter, began = Meter(*lake.pids), time.monotonic()
                seen = scene.samples(asked, count)
                cores = meter.read()[0] / (time.monotonic() - began)
                figures += _figures(bench, log, place, seen, f"routelake used {cores:.2f} cores")
                details[f"{log}, {place}"] = seen
            with stopped(tree(*lake.process.children("fold"))):
                seen = scene.samples(lake, count)
            figures += _figures(bench, log, "same gateway, fold stopped", seen, "")
            details[f"{log}, fold stopped"] = seen
    for peer in (nameserver(), rust_nameserver(bench.say)):
        with peer as server:
            if server is None:
                continue
            with Scene.of(bench, server) as scene:
                seen = scene.samples(server, count)
        details[server.name] = seen
        for name, value in (("p50", median(seen)), ("p99", quantile(seen, 0.99))):
            figures.append(Figure(f"{server.name} {name}", value, "ms", note="in memory only"))
    return Result("freshness", figures, details=details)


def _answers(server: Server) -> bool:
    with suppress(OSError), Link(server.port) as link:
        return link.call(route_query("none")).code != 0
    return False


def _figures(bench: Bench, log: str, place: str, seen: list[float], note: str) -> list[Figure]:
    p50, p99 = median(seen), quantile(seen, 0.99)
    bench.say(f"  {log}, {place}: p50 {p50:.1f}, p99 {p99:.1f} ms")
    target = TARGETS_MS[log, place]
    count = f"{len(seen)} registrations"
    return [
        Figure(f"{log}, {place}, p50", p50, "ms", target[0], "at most", f"{count}; {note}" if note else count),
        Figure(f"{log}, {place}, p99", p99, "ms", target[1], "at most", f"longest {max(seen):.1f} ms"),
    ]


class Scene:
    """Brokers that are registered at a server and heartbeat, one of which gets one new topic after the other.

    Attributes:
        last_topic: The newest one.
    """

    def __init__(self, link: Link, broker: FleetBroker, first_topic: int) -> None:
        """Prepare the changes of a broker that is registered over the link."""
        self._link = link
        self._broker = broker
        self._version = broker.data_version
        self._numbers = itertools.count(first_topic)
        self.last_topic = ""

    @staticmethod
    @contextmanager
    def of(bench: Bench, server: Server, first_topic: int = 0) -> Iterator[Scene]:
        """At a server that has no topic of that number or a higher one."""
        with ExitStack() as stack:
            links = [stack.enter_context(Link(server.port)) for _ in range(BROKERS)]
            fleet = brokers(BROKERS, TOPICS)
            register_all(links, fleet)
            stack.enter_context(heartbeats(bench.folder, server.port, fleet[1:], BROKERS - 1))
            scene = Scene(links[0], fleet[0], first_topic)
            scene.samples(server, min(WARM_UP, bench.size(WARM_UP, 2)))
            yield scene

    def samples(self, asked: Server, count: int) -> list[float]:
        """Milliseconds from sending until the route is there.

        The pause between two is random enough by itself: each ends somewhere in a micro-batch.
        """
        found = []
        with Link(asked.port) as reader:
            for number in range(count):
                topic = self.last_topic = f"fresh-{next(self._numbers):05d}"
                self._version = next_version(self._version, round(time.time() * 1000))
                part = Registration(self._version, encode_entries({topic: TopicConfig(topic_name=topic)}))
                command = registration(self._broker, part)
                began = time.monotonic()
                opaque = self._link.send(command)
                found.append((_until_found(reader, topic) - began) * 1000)
                answer = self._link.answer(opaque)
                if answer.code:
                    raise RuntimeError(f"the registration was refused: {answer.remark}")
                time.sleep(0.013 * (number % 7))  # not in step with the batches
        return found


def _until_found(reader: Link, topic: str, timeout_s: float = 60.0) -> float:
    end = time.monotonic() + timeout_s
    query = route_query(topic)
    while time.monotonic() < end:
        answer = reader.call(query)
        now = time.monotonic()
        if answer.code == 0:
            return now
    raise TimeoutError(f"{topic} did not appear within {timeout_s:.0f} s")
