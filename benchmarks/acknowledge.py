# SPDX-License-Identifier: Apache-2.0
"""acknowledge: heartbeats that change nothing, over remoting, 64 connections; each answered when it is durable."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.harness.background import heartbeat_frames, repeated_frames
from benchmarks.harness.bench import Bench
from benchmarks.harness.comparison import Sample, builtins, describe, sample
from benchmarks.harness.frames import Link, brokers, register_all
from benchmarks.harness.loadgen import Load
from benchmarks.harness.peers import entered, nameserver, only, routelake
from benchmarks.harness.report import Figure, Result, median

CONNECTIONS = 64
PER_SECOND = 10_000
P99_MS = 20.0
KINDS = ("heartbeat", "registration repeated")


def run(bench: Bench) -> Result:
    """Measure. The NameServer's figures stand beside: it keeps nothing."""
    fleet = brokers(CONNECTIONS, 10)
    links: dict[str, list[Link]] = {}
    with ExitStack() as stack:
        servers = entered(stack, routelake(bench.folder / "data", bench.serve_options), nameserver())
        for server in servers:
            links[server.name] = [stack.enter_context(Link(server.port)) for _ in fleet]
        frames = {
            KINDS[0]: heartbeat_frames(bench.folder / "heartbeat.frames", fleet),
            KINDS[1]: repeated_frames(bench.folder / "repeated.frames", fleet),
        }
        found: dict[str, dict[str, list[Sample]]] = {kind: {s.name: [] for s in servers} for kind in KINDS}
        for number in range(-1, bench.rounds):
            for server in servers:
                with only(server, servers):
                    for kind in KINDS:
                        # the brokers left with the generator's connections that had registered them
                        register_all(links[server.name], fleet)
                        load = Load(
                            port=server.port,
                            frames=frames[kind],
                            connections=CONNECTIONS,
                            seconds=bench.seconds,
                            warmup_s=bench.warmup_s,
                            own=True,
                        )
                        taken = sample(load, server)
                        if number >= 0:
                            found[kind][server.name].append(taken)
                            bench.say(f"  round {number + 1} {kind} {server.name}: {describe(taken)}")
    figures = []
    for kind, of in found.items():
        rate = {name: median([taken.load.per_second for taken in samples]) for name, samples in of.items()}
        p99 = {name: median([taken.load.p99_us for taken in samples]) / 1000 for name, samples in of.items()}
        cost = median([taken.server_us for taken in of["routelake"]])
        note = f"{cost:.0f} us/request in the gateway; NameServer, in memory only: {rate['NameServer']:,.0f}"
        figures.append(Figure(f"{kind}, durable", rate["routelake"], "/s", PER_SECOND, note=note, peers=rate))
        figures.append(Figure(f"{kind}, p99", p99["routelake"], "ms", P99_MS, "at most", peers=p99))
    return Result("acknowledge", figures, details={"samples": builtins(found)})
