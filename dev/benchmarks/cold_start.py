# SPDX-License-Identifier: Apache-2.0
"""cold-start: a gateway from nothing to the first answer.

On a lake of 3,000,000 queue rows, on one of 10,000,000, and after an hour in which 300 brokers heartbeat each second,
registered each half minute, and nothing was folded.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.frames import Link
from dev.benchmarks.harness.lake import LakeMaker, topic_name, write_full
from dev.benchmarks.harness.machine import usage_of
from dev.benchmarks.harness.peers import nameserver, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from dev.benchmarks.harness.view_state import route_rows
from dev.peers.java import wait_until
from dev.peers.procfs import memory_bytes
from schemas.events import encode, routing_key

GROUPS, TOPICS = 300, 10_000
START_S, RESIDENT_GB = 5.0, 1.2
LARGE_GROUPS = 1_000
LARGE_START_S, LARGE_RESIDENT_GB = 6.0, 2.5
HOUR_S, HOUR_TOPICS, HOUR_START_S = 3_600, 50, 20.0
REGISTER_PERIOD_S = 30
"""BrokerConfig.registerNameServerPeriod."""


def run(bench: Bench) -> Result:
    """Measure."""
    topics = bench.size(TOPICS, 200)
    figures, details = [], dict[str, Any]()
    with nameserver() as java:
        java_s = java._stock.start_seconds
    note = f"NameServer: empty after {java_s:.1f} s, then waits up to {REGISTER_PERIOD_S} s for the brokers"
    for groups, start_s, resident_gb in (
        (bench.size(GROUPS, 5), START_S, RESIDENT_GB),
        (bench.size(LARGE_GROUPS, 8), LARGE_START_S, LARGE_RESIDENT_GB),
    ):
        data = bench.folder / f"of-{groups}"
        began = time.monotonic()
        with LakeMaker(data) as maker:
            write_full(maker, groups, topics)
        bench.say(f"  {groups * topics:,} rows written in {time.monotonic() - began:.0f} s")
        found = _starts(bench, data, groups, topics)
        name = f"{groups * topics:,} rows"
        peers = {"NameServer, empty": java_s}
        figures += [
            Figure(f"{name}, first answer", median(found["startS"]), "s", start_s, "at most", note, peers),
            Figure(
                f"{name}, resident",
                *(median(found["residentGb"]), "GB", resident_gb, "at most", f"peak {max(found['peakGb']):.2f} GB"),
            ),
        ]
        details[name] = found
        shutil.rmtree(data)
    groups, hour_topics = bench.size(GROUPS, 5), bench.size(HOUR_TOPICS, 5)
    data = bench.folder / "hour"
    count = write_hour(data, groups, hour_topics, bench.size(HOUR_S, 60))
    bench.say(f"  {count:,} records that no epoch holds")
    found = _starts(bench, data, groups, hour_topics)
    note = f"{count:,} records beyond the tables; {median(found['residentGb']):.2f} GB resident"
    figures.append(Figure("an hour without the fold", median(found["startS"]), "s", HOUR_START_S, "at most", note))
    return Result("cold-start", figures, details={**details, "hour": found, "nameServerS": java_s})


def _starts(bench: Bench, data: Path, groups: int, topics: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"startS": [], "residentGb": [], "peakGb": []}
    for number in range(min(bench.rounds, 3)):
        took, now_gb, peak_gb = start_gateway(data, bench.serve_options, groups, topics)
        bench.say(f"  start {number + 1}: {took:.2f} s, {now_gb:.2f} GB resident, at most {peak_gb:.2f} GB")
        for kept, value in zip(found.values(), (took, now_gb, peak_gb), strict=True):
            kept.append(value)
    return found


def write_hour(data: Path, groups: int, topics: int, seconds: int) -> int:
    """Brokers that are in the tables, and a log that goes on: each heartbeats each second and registers each thirty.

    A second is BrokerConfig.brokerHeartbeatInterval, of brokers in a controller's group; others send none.
    The log is as large as it would be, but written at once.
    """
    with LakeMaker(data) as maker:
        made = write_full(maker, groups, topics)
        # As a gateway writes a registration that changes nothing.
        repeats = [msgspec.structs.replace(group.event(), topic_config_table=None) for group in made]
        entries = [(routing_key(event), encode(event)) for event in repeats]
        beats = [group.heartbeat() for group in made]
        heartbeats = [(routing_key(event), encode(event)) for event in beats]
        for second in range(seconds):
            turn = [entry for at, entry in enumerate(entries) if at % REGISTER_PERIOD_S == second % REGISTER_PERIOD_S]
            maker.append([*heartbeats, *turn])
    return groups * seconds + groups * seconds // REGISTER_PERIOD_S


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
        peak = memory_bytes(gateway.serving_pids[0])
    return took, resident / 1e9, peak / 1e9
