# SPDX-License-Identifier: Apache-2.0
"""time-travel: the route of a topic as of an epoch 1,000 commits ago, on a lake of 3,000,000 queue rows."""

from __future__ import annotations

import time
import urllib.request
from contextlib import suppress

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.lake import LakeMaker, topic_name, write_full
from dev.benchmarks.harness.peers import RoutelakeServer, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from dev.benchmarks.harness.view_state import readiness
from dev.peers.java import wait_until

GROUPS, TOPICS, AGO = 300, 10_000, 1_000
FIRST_S, REPEATED_S = 0.5, 0.005


def run(bench: Bench) -> Result:
    """Measure, over HTTP."""
    groups, topics, ago = bench.size(GROUPS, 5), bench.size(TOPICS, 200), bench.size(AGO, 20)
    data = bench.folder / "data"
    began = time.monotonic()
    with LakeMaker(data) as maker:
        made = write_full(maker, groups, topics)
        then = maker.writer.epoch
        for number in range(ago):
            group = made[number % groups]
            group.change(topic_name(number * 31 % topics))
            maker.batch([group.event()])
        newest = maker.writer.epoch
    bench.say(f"  {groups * topics:,} rows and {newest - then} epochs after them in {time.monotonic() - began:.0f} s")
    first, repeated, other_topic = [], [], []
    for _ in range(min(bench.rounds, 3)):
        with routelake(data, bench.serve_options, "gateway") as gateway:
            wait_until(lambda gateway=gateway: readiness(gateway).get("epoch") == newest, 300, "the gateway's view")  # type: ignore[misc]
            with suppress(OSError):
                _ask(gateway, topic_name(7), newest)  # connection, imports: not what is measured
            first.append(_ask(gateway, topic_name(7), then))
            repeated += [_ask(gateway, topic_name(7), then) for _ in range(20)]
            other_topic.append(_ask(gateway, topic_name(8), then))
            bench.say(f"  first {first[-1]:.3f} s, repeated {median(repeated) * 1000:.1f} ms")
    figures = [
        Figure("first", median(first), "s", FIRST_S, "at most", f"epoch {then} of {newest}, {groups * topics:,} rows"),
        Figure("repeated", median(repeated) * 1000, "ms", REPEATED_S * 1000, "at most", "over a connection each"),
        Figure("another topic, same epoch", median(other_topic), "s"),
    ]
    details = {"firstS": first, "repeatedS": repeated, "otherTopicS": other_topic}
    return Result("time-travel", figures, details=details)


def _ask(gateway: RoutelakeServer, topic: str, epoch: int) -> float:
    """Seconds for one question; a connection of its own. Raises OSError."""
    url = f"http://127.0.0.1:{gateway.http_port}/v1/topics/{topic}/route?as_of={epoch}"
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=120) as answer:
        answer.read()
    return time.monotonic() - began
