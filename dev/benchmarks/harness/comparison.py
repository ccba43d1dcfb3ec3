# SPDX-License-Identifier: Apache-2.0
"""Two servers under the same load, turn by turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.frames import Link, route_query
from dev.benchmarks.harness.loadgen import Load, LoadResult, echo, run_load, write_frames
from dev.benchmarks.harness.machine import Meter
from dev.benchmarks.harness.peers import NAMESERVER, ROUTELAKE, Server, only
from dev.benchmarks.harness.report import Figure, median

AHEAD = 1.0
"""Times the throughput of a peer other than the NameServer."""


class Shape(msgspec.Struct, frozen=True):
    """Connections and requests under way on each."""

    connections: int
    depth: int

    def __str__(self) -> str:
        """Return connections and depth, such as ``64x4``."""
        return f"{self.connections}x{self.depth}"


class Sample(msgspec.Struct, frozen=True, rename="camel"):
    """One measurement.

    Attributes:
        load: Result of the generator.
        server_us: Processor microseconds of the answering processes per request.
        beside_cores: Cores that the server's other processes used, such as the fold.
        other_cores: Cores kept busy by neither server nor generator: the disturbance from outside.
    """

    load: LoadResult
    server_us: float
    beside_cores: float
    other_cores: float


def sample(load: Load, server: Server) -> Sample:
    """Measure once. Warm-up is part of the time over which processor time is taken, and of the requests."""
    serving, everything = Meter(*server.serving_pids), Meter(*server.pids)
    found = run_load(load)
    spent, _ = serving.read()
    all_spent, busy = everything.read()
    seconds = load.seconds + load.warmup_s
    generator = found.cpu_seconds * seconds / max(found.seconds, 1e-3)
    return Sample(
        found,
        spent / max(1, found.answered) * 1e6,
        (all_spent - spent) / seconds,
        max(0.0, busy - all_spent - generator) / seconds,
    )


Samples = dict[str, dict[str, list[Sample]]]
"""``{shape: {server: samples}}``."""


def measure_in_turn(bench: Bench, servers: Sequence[Server], load: Load, shapes: Sequence[Shape]) -> Samples:
    """Each round measures every shape on every server; who begins takes turns."""
    found: Samples = {str(shape): {s.name: [] for s in servers} for shape in shapes}
    for number in range(-1, bench.rounds):  # the first round is for compilers and caches, and does not count
        for server in servers if number % 2 else reversed(servers):
            with only(server, servers):
                for shape in shapes:
                    own = msgspec.structs.replace(
                        load,
                        port=server.port,
                        connections=shape.connections,
                        depth=shape.depth,
                        seconds=bench.seconds,
                        warmup_s=bench.warmup_s,
                    )
                    taken = sample(own, server)
                    if number >= 0:
                        found[str(shape)][server.name].append(taken)
                        bench.say(f"  round {number + 1} {shape} {server.name}: {describe(taken)}")
    return found


def describe(taken: Sample) -> str:
    """One line."""
    load = taken.load
    return (
        f"{load.per_second:,.0f}/s, p50 {load.p50_us / 1000:.2f} p99 {load.p99_us / 1000:.2f} p99.9 "
        f"{load.p999_us / 1000:.2f} ms, server {taken.server_us:.1f} us/request, fold "
        f"{taken.beside_cores:.2f}, others {taken.other_cores:.2f} cores"
    )


def figures(
    shape: str, samples: Mapping[str, Sequence[Sample]], target: float, p99_target: float | None, ceiling: float
) -> list[Figure]:
    """Throughput and p99 as ratios of medians."""
    rate = {name: median([taken.load.per_second for taken in of]) for name, of in samples.items()}
    p99 = {name: median([taken.load.p99_us for taken in of]) / 1000 for name, of in samples.items()}
    cost = {name: median([taken.server_us for taken in of]) for name, of in samples.items()}
    other = median([taken.other_cores for of in samples.values() for taken in of])
    beside = median([taken.beside_cores for taken in samples[ROUTELAKE]])
    note = (
        f"{rate[ROUTELAKE]:,.0f} against {rate[NAMESERVER]:,.0f} req/s; server {cost[ROUTELAKE]:.1f} against "
        f"{cost[NAMESERVER]:.1f} us/request; generator can {ceiling:,.0f}; "
        f"cores used by the fold {beside:.2f}, by others {other:.2f}"
    )
    found = [Figure(f"{shape} throughput", rate[ROUTELAKE] / rate[NAMESERVER], "x", target, note=note, peers=rate)]
    for peer in rate.keys() - {ROUTELAKE, NAMESERVER}:
        note = f"{rate[ROUTELAKE]:,.0f} against {rate[peer]:,.0f} req/s"
        found.append(Figure(f"{shape} throughput, {peer}", rate[ROUTELAKE] / rate[peer], "x", AHEAD, note=note))
    if p99_target is not None:
        note = f"p99 {p99[ROUTELAKE]:.2f} against {p99[NAMESERVER]:.2f} ms"
        ratio = p99[ROUTELAKE] / p99[NAMESERVER]
        found.append(Figure(f"{shape} p99", ratio, "x", p99_target, "at most", note, p99))
    cheaper = cost[NAMESERVER] / cost[ROUTELAKE] if cost[ROUTELAKE] else None
    found.append(Figure(f"{shape} requests a processor second", cheaper, "x", note="server side", peers=cost))
    return found


def ceiling(bench: Bench, load: Load, shape: Shape, answer: bytes, tls: tuple[Path, Path] | None = None) -> float:
    """Requests a second that the generator reaches against the echo server with an answer of this size."""
    path = write_frames(bench.folder / "echo.frames", [answer])
    with echo(path, load.protocol, tls) as port:
        shaped = msgspec.structs.replace(
            load,
            **{"port": port, "connections": shape.connections, "depth": shape.depth},
            **{"seconds": min(2.0, bench.seconds), "warmup_s": 0.2},
        )
        return run_load(shaped).per_second


def same_answers(ports: Sequence[int], topics: Sequence[str]) -> int:
    """Check that all servers answer these route queries alike; returns the size of the first body.

    Raises:
        RuntimeError: they do not.
    """
    bodies: list[list[Any]] = []
    size = 0
    for port in ports:
        with Link(port) as link:
            answers = [link.call(route_query(topic)) for topic in topics]
        size = size or len(answers[0].body)
        bodies.append([_canonical(json.loads(answer.body)) if answer.body else answer.code for answer in answers])
    if any(body != bodies[0] for body in bodies):
        raise RuntimeError("the servers do not answer alike; nothing would be proved by measuring them")
    return size


def _canonical(route: dict[str, Any]) -> dict[str, Any]:
    """The route without nulls; a NameServer lists brokers in the order of a hash table."""
    found = {name: value for name, value in route.items() if value is not None}
    for name in ("brokerDatas", "queueDatas"):
        rows = [{key: value for key, value in row.items() if value is not None} for row in found.get(name, ())]
        found[name] = sorted(rows, key=lambda row: str(row["brokerName"]))
    return found


def builtins(samples: Mapping[str, Mapping[str, Sequence[Sample]]]) -> dict[str, Any]:
    """For the JSON file."""
    found: dict[str, Any] = msgspec.to_builtins(samples)
    return found


def route_frames(path: Path, topics: Sequence[str]) -> Path:
    """Route queries for the generator."""
    from dev.benchmarks.harness.frames import for_generator

    return write_frames(path, for_generator([route_query(topic) for topic in topics]))
