"""one-frame: 100,000 topics in one registration. RocketMQ's NameServer closes the connection (frames up to 16 MiB)."""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks.harness.bench import Bench
from benchmarks.harness.frames import Link, brokers, register_all, registration, topic_name
from benchmarks.harness.peers import entered, nameserver, only, routelake
from benchmarks.harness.report import Figure, Result, median
from benchmarks.harness.settle import route_rows, wait_for

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
        fleet = brokers(rounds + 1, topics)
        with only(lake, servers):
            register_all([stack.enter_context(Link(lake.port))], brokers(rounds + 2, 20)[-1:])  # compilers and caches
            reader = stack.enter_context(Link(lake.port))
            for broker in fleet[:-1]:
                link = stack.enter_context(Link(lake.port))
                command = registration(broker)
                began = time.monotonic()
                opaque = link.send(command)
                name = broker.config.broker_name
                wait_for(lambda name=name: name in route_rows(reader, topic_name(topics - 1)), 120, "visible", 0.005)  # type: ignore[misc]
                took.append(time.monotonic() - began)
                bench.say(f"  {len(command.body) / 1e6:.1f} MB: visible after {took[-1]:.2f} s")
                if link.answer(opaque).code:
                    raise RuntimeError("the registration was refused")
        with only(java, servers):
            verdict = _on_nameserver(java.port, fleet[-1])
        bench.say(f"  NameServer: {verdict}")
    figure = Figure("100,000 topics to visible", median(took), "s", TARGET_S, "at most", f"NameServer: {verdict}")
    return Result("one-frame", [figure], details={"topics": topics, "visibleS": took, "nameServer": verdict})


def _on_nameserver(port: int, broker: object) -> str:
    from clients.broker.fleet_topics import FleetBroker

    assert isinstance(broker, FleetBroker)
    with Link(port) as link:
        began = time.monotonic()
        try:
            answer = link.call(registration(broker))
        except OSError:
            return "closes the connection"
        return f"answers {answer.code} after {time.monotonic() - began:.2f} s"
