# SPDX-License-Identifier: Apache-2.0
"""freshness: from sending a registration until the gateway answers with the new route, 20 brokers heartbeating."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.harness.background import heartbeats
from benchmarks.harness.bench import Bench
from benchmarks.harness.frames import Link, brokers, register_all, registration, route_query, topic_name
from benchmarks.harness.machine import Meter
from benchmarks.harness.peers import RoutelakeServer, kafka_log, routelake
from benchmarks.harness.report import Figure, Result, median, quantile
from clients.broker.fleet_topics import FleetBroker

BROKERS = 20
TOPICS = 50
P50_S, P99_S = 0.6, 1.2
POLL_S = 0.001
WARM_UP = 10
"""Registrations that do not count: the JVM compiles."""


def run(bench: Bench) -> Result:
    """Measure with both event logs."""
    figures: list[Figure] = []
    details: dict[str, Any] = {}
    for log in ("SQLite", "Kafka"):
        bench.say(f"  {log}")
        with ExitStack() as stack:
            options = list(bench.serve_options)
            if log == "Kafka":
                options += ["--log", stack.enter_context(kafka_log())]
            lake = stack.enter_context(routelake(bench.folder / log, options))
            links = [stack.enter_context(Link(lake.port)) for _ in range(BROKERS)]
            fleet = brokers(BROKERS, TOPICS)
            register_all(links, fleet)
            stack.enter_context(heartbeats(bench.folder, lake.port, fleet[1:], BROKERS - 1))
            meter = Meter(*lake.pids)
            began = time.monotonic()
            visible, answered = samples(lake, links[0], fleet[0], bench.size(100, 3), 0 if bench.quick else WARM_UP)
            cores = meter.read()[0] / (time.monotonic() - began)
        details[log] = {"visibleS": visible, "answeredS": answered, "routelakeCores": cores}
        note = f"{len(visible)} registrations; answered p50 {median(answered):.2f} s; routelake used {cores:.2f} cores"
        figures += [
            Figure(f"{log} p50", median(visible), "s", P50_S, "at most", note),
            Figure(f"{log} p99", quantile(visible, 0.99), "s", P99_S, "at most", f"longest {max(visible):.2f} s"),
        ]
    return Result("freshness", figures, details=details)


def samples(
    lake: RoutelakeServer, broker_link: Link, broker: FleetBroker, count: int, warm_up: int
) -> tuple[list[float], list[float]]:
    """Change one topic after the other; seconds from sending until the route shows it, and until the answer came.

    The pause between two changes is random enough by itself: each ends somewhere in a micro-batch.
    """
    visible, answered = [], []
    with Link(lake.port) as reader:
        for number in range(warm_up + count):
            index = number % TOPICS
            broker.change(index, round(time.time() * 1000))
            wanted = broker.topic(index).write_queue_nums
            began = time.monotonic()
            opaque = broker_link.send(registration(broker))
            seen = _until_shown(reader, topic_name(index), broker.config.broker_name, wanted) - began
            answer = broker_link.answer(opaque)
            if answer.code:
                raise RuntimeError(f"the registration was refused: {answer.remark}")
            if number >= warm_up:
                visible.append(seen)
                answered.append(time.monotonic() - began)
            time.sleep(0.037 * (number % 7))  # not in step with the batches
    return visible, answered


def _until_shown(reader: Link, topic: str, broker_name: str, wanted: int, timeout_s: float = 60.0) -> float:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        answer = reader.call(route_query(topic))
        now = time.monotonic()
        if answer.code == 0:
            rows = json.loads(answer.body)["queueDatas"]
            if any(row["brokerName"] == broker_name and row["writeQueueNums"] == wanted for row in rows):
                return now
        time.sleep(POLL_S)
    raise TimeoutError(f"{topic} did not change within {timeout_s:.0f} s")
