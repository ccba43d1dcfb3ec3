# SPDX-License-Identifier: Apache-2.0
"""one-frame: 100,000 topics in one registration. RocketMQ's NameServer closes the connection (frames up to 16 MiB)."""

from __future__ import annotations

import time
from contextlib import ExitStack

from clients.broker.registration import Registration
from clients.broker.topic_config import TopicConfig, encode_entries
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.frames import Link, brokers, register_all, registration
from dev.benchmarks.harness.peers import entered, nameserver, only, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from dev.benchmarks.harness.view_state import route_rows
from dev.peers.java import wait_until
from remoting.codec.frame import RemotingCommand
from schemas.broker import DataVersion

TOPICS = 100_000
TARGET_S = 3.0


def run(bench: Bench) -> Result:
    """Measure."""
    topics = bench.size(TOPICS, 2_000)
    rounds = min(bench.rounds, 3)
    took: list[float] = []
    with ExitStack() as stack:
        servers = entered(stack, routelake(bench.folder / "data", bench.serve_options), nameserver())
        lake, java = servers
        fleet, part = brokers(rounds + 1, 0), all_topics(topics)
        with only(lake, servers):
            register_all([stack.enter_context(Link(lake.port))], brokers(rounds + 2, 20)[-1:])  # compilers and caches
            reader = stack.enter_context(Link(lake.port))
            for broker in fleet[:-1]:
                link = stack.enter_context(Link(lake.port))
                command = registration(broker, part)
                began = time.monotonic()
                opaque = link.send(command)
                name = broker.config.broker_name
                wait_until(lambda name=name: name in route_rows(reader, long_name(topics - 1)), 120, "visible", 0.005)  # type: ignore[misc]
                took.append(time.monotonic() - began)
                bench.say(f"  {len(command.body) / 1e6:.1f} MB: visible after {took[-1]:.2f} s")
                if link.answer(opaque).code:
                    raise RuntimeError("the registration was refused")
        with only(java, servers):
            verdict = _on_nameserver(java.port, registration(fleet[-1], part))
        bench.say(f"  NameServer: {verdict}")
    figure = Figure(f"{topics:,} topics to visible", median(took), "s", TARGET_S, "at most", f"NameServer: {verdict}")
    return Result("one-frame", [figure], details={"topics": topics, "visibleS": took, "nameServer": verdict})


def long_name(number: int) -> str:
    """A name of a usual length; with short ones 100,000 topics just fit into RocketMQ's frame."""
    return f"orders.shipment.created.v1.{number:06d}"


def all_topics(count: int) -> Registration:
    """Return a registration with so many topics."""
    names = [long_name(number) for number in range(count)]
    table = {name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in names}
    return Registration(DataVersion(0, round(time.time() * 1000), 1), encode_entries(table))


def _on_nameserver(port: int, command: RemotingCommand) -> str:
    with Link(port) as link:
        began = time.monotonic()
        try:
            answer = link.call(command)
        except OSError:
            return f"closes the connection at {len(command.body) / 1e6:.1f} MB"
        return f"answers {answer.code} after {time.monotonic() - began:.2f} s"
