# SPDX-License-Identifier: Apache-2.0
"""cold-start: a gateway from nothing to the first answer, on a lake of 3,000,000 queue rows."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from benchmarks.harness.bench import Bench
from benchmarks.harness.frames import Link
from benchmarks.harness.lake import LakeMaker, topic_name, write_full
from benchmarks.harness.machine import usage_of
from benchmarks.harness.peers import nameserver, routelake
from benchmarks.harness.report import Figure, Result, median
from benchmarks.harness.view_state import route_rows
from peers.java import wait_until

GROUPS, TOPICS = 300, 10_000
START_S, RESIDENT_GB = 5.0, 1.2
REGISTER_PERIOD_S = 30
"""BrokerConfig.registerNameServerPeriod."""


def run(bench: Bench) -> Result:
    """Measure."""
    groups, topics = bench.size(GROUPS, 5), bench.size(TOPICS, 200)
    data = bench.folder / "data"
    began = time.monotonic()
    with LakeMaker(data) as maker:
        write_full(maker, groups, topics)
    bench.say(f"  {groups * topics:,} rows written in {time.monotonic() - began:.0f} s")
    starts, resident, peak = [], [], []
    for number in range(min(bench.rounds, 3)):
        took, now_gb, peak_gb = start_gateway(data, bench.serve_options, groups, topics)
        bench.say(f"  start {number + 1}: {took:.2f} s, {now_gb:.2f} GB resident, at most {peak_gb:.2f} GB")
        starts.append(took)
        resident.append(now_gb)
        peak.append(peak_gb)
    with nameserver() as java:
        java_s = java._stock.start_seconds
    note = f"NameServer: empty after {java_s:.1f} s, then waits up to {REGISTER_PERIOD_S} s for the brokers"
    figures = [
        Figure("first answer", median(starts), "s", START_S, "at most", note, {"NameServer, empty": java_s}),
        Figure("resident", median(resident), "GB", RESIDENT_GB, "at most", f"peak {max(peak):.2f} GB"),
    ]
    details = {"rows": groups * topics, "startS": starts, "residentGb": resident, "peakGb": peak, "nameServerS": java_s}
    return Result("cold-start", figures, details=details)


def start_gateway(data: Path, options: tuple[str, ...], groups: int, topics: int) -> tuple[float, float, float]:
    """Seconds to the first whole answer, resident memory then (settled for a second) and at its peak, GB."""
    began = time.monotonic()
    with routelake(data, options, "gateway") as gateway:
        answers = False

        def serves() -> bool:
            nonlocal answers
            with suppress(OSError), Link(gateway.port) as link:
                answers = len(route_rows(link, topic_name(topics - 1))) == groups
            return answers

        wait_until(serves, 300, "the gateway's first answer", 0.02)
        took = time.monotonic() - began
        time.sleep(1.0)
        resident = usage_of(*gateway.serving_pids).resident_bytes
        status = Path(f"/proc/{gateway.serving_pids[0]}/status").read_text()
        peak_bytes = int(status.split("VmHWM:")[1].split()[0]) * 1024
    return took, resident / 1e9, peak_bytes / 1e9
