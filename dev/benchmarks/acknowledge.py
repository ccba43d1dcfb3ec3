# SPDX-License-Identifier: Apache-2.0
"""acknowledge: heartbeats that change nothing, over remoting, 64 connections; each answered when it is durable.

With SQLite and with Kafka, in turns with the NameServer; and whether the fold keeps up with 10,000 of them a second.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing
from typing import NamedTuple

from clients.broker.fleet_topics import FleetBroker
from dev.benchmarks.harness.background import heartbeat_frames, heartbeats, repeated_frames
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import Sample, builtins, describe, sample
from dev.benchmarks.harness.frames import Link, brokers, register_all
from dev.benchmarks.harness.loadgen import Load
from dev.benchmarks.harness.machine import Meter
from dev.benchmarks.harness.peers import NAMESERVER, RoutelakeServer, entered, kafka_log, nameserver, only, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from eventlog import EventLog, open_log
from schemas.tables import FOLD_STATUS_FILE

CONNECTIONS = 64
PER_SECOND = 10_000
P99_MS = 20.0
KINDS = ("heartbeat", "registration repeated")
SQLITE, KAFKA = "routelake", "routelake, Kafka"
KEEP_UP_S = 30
QUOTAS = ("--quota", "broker-requests-per-s=off,heartbeat-mb-per-h=off,broker-mb-per-h=off")
"""All of these brokers come from one address, which by default may not send as much as a thousand of them."""
LAG_S = 5.0
"""Maximum lag of the fold, in seconds: the interval of the CLOCK, with which heartbeats are applied at the latest."""


def run(bench: Bench) -> Result:
    """Measure, and also the NameServer, which stores nothing.

    With other options of routelake (`bench.serve_options`) these hold for both logs.
    """
    fleet = brokers(CONNECTIONS, 10)
    links: dict[str, list[Link]] = {}
    options = [*QUOTAS, *bench.serve_options]
    with ExitStack() as stack:
        kafka = stack.enter_context(kafka_log())
        lakes = [
            stack.enter_context(routelake(bench.folder / "data", options, name=SQLITE)),
            stack.enter_context(routelake(bench.folder / "kafka", [*options, "--event-log", kafka], name=KAFKA)),
        ]
        servers = [*lakes, *entered(stack, nameserver())]
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
        logs = {SQLITE: f"sqlite://{bench.folder / 'data' / 'events.db'}", KAFKA: kafka}
        lags = {}
        for lake in lakes:
            with only(lake, servers), closing(open_log(logs[lake.name])) as log:
                register_all(links[lake.name], fleet)
                lags[lake.name] = keep_up(bench, lake, log, fleet)
    figures = []
    for kind, of in found.items():
        rate = {name: median([taken.load.per_second for taken in samples]) for name, samples in of.items()}
        p99 = {name: median([taken.load.p99_us for taken in samples]) / 1000 for name, samples in of.items()}
        for name, label in ((SQLITE, kind), (KAFKA, f"{kind}, Kafka")):
            cost = median([taken.server_us for taken in of[name]])
            note = f"{cost:.0f} us/request in the gateway; "
            note += (
                f"NameServer, in memory only: {rate[NAMESERVER]:,.0f}"
                if name == SQLITE
                else f"{rate[KAFKA] / rate[SQLITE]:.2f} times SQLite"
            )
            figures.append(Figure(f"{label}, durable", rate[name], "/s", PER_SECOND, note=note, peers=rate))
            figures.append(Figure(f"{label}, p99", p99[name], "ms", P99_MS, "at most", peers=p99))
    for name, label in ((SQLITE, "SQLite"), (KAFKA, "Kafka")):
        lag = lags[name]
        note = f"median {median(lag.behind_s):.1f} s; {lag.per_second:,.0f} answered; used {lag.cores:.2f} cores"
        worst = max(lag.behind_s)
        figures.append(Figure(f"the fold behind 10,000/s, {label}", worst, "s", LAG_S, "at most", note))
    details = {"samples": builtins(found), "behindS": {name: lag.behind_s for name, lag in lags.items()}}
    return Result("acknowledge", figures, details=details)


class Lag(NamedTuple):
    """Lag of the fold.

    Attributes:
        behind_s: Lag in seconds: durable events that were not folded, by the rate. One value each half second.
        per_second: Heartbeats answered per second.
        cores: Cores used by all processes of routelake.
    """

    behind_s: list[float]
    per_second: float
    cores: float


def keep_up(bench: Bench, lake: RoutelakeServer, log: EventLog, fleet: list[FleetBroker]) -> Lag:
    """Heartbeats at a rate; the end of the log against what the fold says it has folded."""
    status = lake.process.lake_dir / FOLD_STATUS_FILE
    folder = bench.folder / lake.name
    folder.mkdir(exist_ok=True)
    behind: list[float] = []
    with heartbeats(folder, lake.port, fleet, PER_SECOND):
        time.sleep(bench.warmup_s)
        first, began, meter = log.end().next_offset, time.monotonic(), Meter(*lake.pids)
        while time.monotonic() - began < bench.size(KEEP_UP_S, 2):
            time.sleep(0.5)
            folded: int = json.loads(status.read_bytes())["logOffset"]
            behind.append(max(0, log.end().next_offset - 1 - folded) / PER_SECOND)
        took = time.monotonic() - began
        return Lag(behind, (log.end().next_offset - first) / took, meter.read()[0] / took)
