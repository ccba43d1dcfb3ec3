# SPDX-License-Identifier: Apache-2.0
"""events: 1,000 listeners to `GET /v1/events` while a topic changes every second; what reads lose, how late events are.

The epochs are committed by this process, without Spark, so that when each was there is known, and the gateway's other
work is what it is without listeners, too. Reads with and without listeners take turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dev.benchmarks.harness.background import every
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import Sample, describe, sample
from dev.benchmarks.harness.frames import http_get
from dev.benchmarks.harness.lake import Group, LakeMaker, topic_name, write_full
from dev.benchmarks.harness.listeners import Listeners
from dev.benchmarks.harness.loadgen import Load, write_frames
from dev.benchmarks.harness.machine import Meter, usage_of
from dev.benchmarks.harness.peers import RoutelakeServer, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from dev.benchmarks.harness.view_state import readiness
from dev.peers.java import wait_until
from schemas.events import encode, routing_key

GROUPS: Final = 20
TOPICS: Final = 100
EVERY_S: Final = 1.0
READS_LOST_PERCENT: Final = 5.0
WITHOUT, WITH = "without", "with"


def run(bench: Bench) -> Result:
    """Measure, over HTTP."""
    count = bench.size(1000, 20)
    data = bench.folder / "data"
    with LakeMaker(data) as maker:
        groups = write_full(maker, GROUPS, TOPICS)
        with routelake(data, bench.serve_options, "gateway") as gateway:
            newest = maker.writer.epoch
            wait_until(lambda: readiness(gateway).get("epoch") == newest, 60, "the gateway's view")
            with _epochs(maker, groups[0]) as committed:
                quiet_us, memory_bytes, quiet_s = _quiet(bench, gateway, count, committed)
                samples, loaded_s = _under_load(bench, gateway, count, committed)
    rates = {side: median([taken.load.per_second for taken in of]) for side, of in samples.items()}
    p99s = {side: median([taken.load.p99_us for taken in of]) / 1000 for side, of in samples.items()}
    costs = {side: median([taken.server_us for taken in of]) for side, of in samples.items()}
    lost = (1 - rates[WITH] / rates[WITHOUT]) * 100
    figures = [
        Figure("reads lost", lost, "%", READS_LOST_PERCENT, "at most",
               f"{rates[WITH]:,.0f} instead of {rates[WITHOUT]:,.0f} req/s, {count:,} listeners", rates),
        Figure("reads p99", p99s[WITH] / p99s[WITHOUT], "x", note=f"{p99s[WITH]:.2f} against {p99s[WITHOUT]:.2f} ms"),
        Figure(
            "processor time a read",
            costs[WITH] / costs[WITHOUT],
            "x",
            note=f"{costs[WITH]:.1f} against {costs[WITHOUT]:.1f} us, the listeners' share included",
        ),
        Figure("to the last listener, p50", median(quiet_s) * 1000, "ms", note="from the commit of its epoch"),
        Figure("to the last listener, longest", max(quiet_s) * 1000, "ms", note=f"of {len(quiet_s)} epochs"),
        Figure("to the last listener under load, p50", median(loaded_s) * 1000, "ms",
               note=f"longest {max(loaded_s) * 1000:.0f} ms of {len(loaded_s)}"),
        Figure("processor time a listener and epoch", quiet_us, "us", note="of the gateway, beyond that without any"),
        Figure("resident memory a listener", memory_bytes / 1024, "KiB"),
    ]  # fmt: skip
    details = {"samples": samples, "quietS": quiet_s, "loadedS": loaded_s, "listeners": count}
    return Result("events", figures, details=details)


def _quiet(
    bench: Bench, gateway: RoutelakeServer, count: int, committed: dict[int, float]
) -> tuple[float, float, list[float]]:
    """Without reads: microseconds a listener and epoch, bytes a listener, seconds until the last one had each epoch."""
    seconds = bench.size(20, 3)
    alone = Meter(*gateway.serving_pids)
    time.sleep(seconds)
    without_s = alone.read()[0]
    before = usage_of(*gateway.serving_pids).resident_bytes
    with Listeners(gateway.http_port, count) as listeners:
        held = usage_of(*gateway.serving_pids).resident_bytes - before
        first, meter = max(committed), Meter(*gateway.serving_pids)
        time.sleep(seconds)
        with_s, last = meter.read()[0], max(committed)
        late = _late(listeners, count, committed, first)
    bench.say(f"  quiet: to the last of {count} in {median(late) * 1000:.1f} ms, longest {max(late) * 1000:.1f}")
    return (with_s - without_s) / max(1, last - first) / count * 1e6, held / count, late


def _under_load(
    bench: Bench, gateway: RoutelakeServer, count: int, committed: dict[int, float]
) -> tuple[dict[str, list[Sample]], list[float]]:
    """Reads with listeners and without, in turn; and seconds until the last listener had each epoch meanwhile."""
    paths = [http_get(f"/v1/topics/{topic_name(number)}/route") for number in range(TOPICS)]
    load = Load(
        port=gateway.http_port,
        frames=write_frames(bench.folder / "events.frames", paths),
        protocol="http",
        connections=64,
        seconds=bench.size(10, 1),
        warmup_s=bench.warmup_s,
        check="code",
    )
    samples: dict[str, list[Sample]] = {WITHOUT: [], WITH: []}
    late: list[float] = []
    for number in range(-1, bench.rounds):  # the first round does not count
        for side in (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT):
            with Listeners(gateway.http_port, count if side == WITH else 0) as listeners:
                first = max(committed)
                taken = sample(load, gateway)
                if side == WITH:
                    late += _late(listeners, count, committed, first)
            if number >= 0:
                samples[side].append(taken)
                bench.say(f"  round {number + 1} {side} listeners: {describe(taken)}")
    return samples, late


def _late(listeners: Listeners, count: int, committed: dict[int, float], first: int) -> list[float]:
    """Seconds until the last listener had each epoch since one, but for the newest, which may be under way.

    Raises:
        RuntimeError: One of them was ended, or did not get one.
    """
    epochs = [epoch for epoch in sorted(committed) if epoch > first][:-1]
    wait_until(
        lambda: all(len(listeners.arrivals[epoch]) >= count for epoch in epochs),
        60,
        "every listener to have each epoch",
    )
    if listeners.still_there != count or any(len(listeners.arrivals[epoch]) != count for epoch in epochs):
        raise RuntimeError(f"{count} listeners began, {listeners.still_there} are there")
    return [listeners.arrivals[epoch][-1] - committed[epoch] for epoch in epochs]


@contextmanager
def _epochs(maker: LakeMaker, group: Group) -> Iterator[dict[int, float]]:
    """A topic changes every second; epoch -> when it was committed."""
    committed = {maker.writer.epoch: time.monotonic()}

    def change(number: int) -> None:
        group.change(topic_name(number % TOPICS))
        event = group.event()
        maker.append([(routing_key(event), encode(event))])
        maker.follow()
        committed[maker.writer.epoch] = time.monotonic()

    with every(EVERY_S, change):
        yield committed
