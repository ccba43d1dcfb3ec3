# SPDX-License-Identifier: Apache-2.0
"""route-read-under-change: route-read while one topic a second changes and 600 brokers heartbeat each second."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext

from dev.benchmarks.harness.background import changing_topics, heartbeats
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import Sample, Shape, describe, route_frames, sample
from dev.benchmarks.harness.frames import Link, brokers, register_all, topic_name
from dev.benchmarks.harness.loadgen import Load
from dev.benchmarks.harness.peers import Server, entered, nameserver, only, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from dev.benchmarks.route_read import TARGETS, TOPICS

HEARTBEATING = 600
AT_MOST_PERCENT = 15.0
QUIET, CHANGING = "quiet", "under change"


def run(bench: Bench) -> Result:
    """Measure."""
    count = bench.size(HEARTBEATING, 30)
    first, *others = brokers(count + 1, 0)
    first = brokers(1, TOPICS)[0]
    names = [topic_name(number) for number in range(TOPICS)]
    found: dict[str, dict[str, dict[str, list[Sample]]]] = {}
    figures: list[Figure] = []
    with ExitStack() as stack:
        servers = entered(stack, routelake(bench.folder / "data", bench.serve_options), nameserver())
        frames = route_frames(bench.folder / "route.frames", names)
        for server in servers:
            with only(server, servers):
                links = [stack.enter_context(Link(server.port)) for _ in range(count + 1)]
                register_all(links, [first, *others])
                found[server.name] = {str(shape): {QUIET: [], CHANGING: []} for shape in TARGETS}
                for number in range(-1, bench.rounds):
                    for state in (QUIET, CHANGING) if number % 2 else (CHANGING, QUIET):
                        with ExitStack() as beside:
                            if state == CHANGING:
                                beside.enter_context(heartbeats(bench.folder, server.port, others, count))
                                beside.enter_context(changing_topics(links[0], first, TOPICS, 1.0))
                            else:
                                beside.enter_context(nullcontext())
                            for shape in TARGETS:
                                taken = sample(_load(bench, server, frames, shape), server)
                                if number >= 0:
                                    found[server.name][str(shape)][state].append(taken)
                                    bench.say(f"  round {number + 1} {server.name} {shape} {state}: {describe(taken)}")
    for name, shapes in found.items():
        for shape_name, states in shapes.items():
            rate = {state: median([taken.load.per_second for taken in of]) for state, of in states.items()}
            lost = 100 * (1 - rate[CHANGING] / rate[QUIET])
            note = f"{rate[CHANGING]:,.0f} instead of {rate[QUIET]:,.0f} req/s"
            target = AT_MOST_PERCENT if name == "routelake" else None
            figures.append(Figure(f"{name} {shape_name} lost", lost, "%", target, "at most", note, rate))
    return Result("route-read-under-change", figures, details={"samples": _plain(found)})


def _load(bench: Bench, server: Server, frames: object, shape: Shape) -> Load:
    return Load(
        port=server.port,
        frames=frames,  # type: ignore[arg-type]
        connections=shape.connections,
        depth=shape.depth,
        seconds=bench.seconds,
        warmup_s=bench.warmup_s,
        check="code",
    )


def _plain(found: object) -> object:
    import msgspec

    return msgspec.to_builtins(found)
