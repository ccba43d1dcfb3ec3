# SPDX-License-Identifier: Apache-2.0
"""storm: 300 broker groups register 10,000 topics at once; then each with one changed topic; then each unchanged.

All registrations are sent by the load generator, each over a connection of its own that stays open. Meanwhile a
second generator asks the gateway for the route of a broker that is not part of it, a thousand times a second; its
latencies count from the time each question was due.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from clients.broker.fleet_topics import FleetBroker
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import route_frames
from dev.benchmarks.harness.frames import Link, brokers, for_generator, register_all, registration, topic_name
from dev.benchmarks.harness.lake import last_offset
from dev.benchmarks.harness.loadgen import Load, RunningLoad, running_load, write_frames
from dev.benchmarks.harness.machine import TICKS, Meter, tree
from dev.benchmarks.harness.peers import RoutelakeServer, routelake
from dev.benchmarks.harness.report import Figure, Result
from dev.benchmarks.harness.view_state import is_visible, route_rows
from dev.peers.java import wait_until
from dev.peers.procfs import memory_bytes
from runtime.procfs import stat_fields

GROUPS, TOPICS = 300, 10_000
TARGETS_S = {"all new": 12.0, "one topic each": 8.0, "unchanged": 2.0}
READ_P99_MS = 20.0
READS_PER_S = 1_000
TIMEOUT_S = 900.0


def run(bench: Bench) -> Result:
    """Measure."""
    groups, topics = bench.size(GROUPS, 10), bench.size(TOPICS, 200)
    fleet = brokers(groups + 1, topics)[1:]
    bystander = brokers(1, 0)[0]
    figures: list[Figure] = []
    details: dict[str, Any] = {"groups": groups, "topics": topics}
    with ExitStack() as stack:
        lake = stack.enter_context(routelake(bench.folder / "data", bench.serve_options))
        register_all([stack.enter_context(Link(lake.port))], [bystander])
        reads = route_frames(bench.folder / "reads.frames", [bystander.config.broker_name])
        for phase, target_s in TARGETS_S.items():
            if phase == "one topic each":
                for number, broker in enumerate(fleet):
                    broker.change(_changed_topic(number, topics), round(time.time() * 1000))
            path = bench.folder / f"{phase}.frames"
            write_frames(path, for_generator([registration(broker) for broker in fleet]))
            before = _cpu_s(lake)
            found = _phase(bench, stack, lake, phase, path, fleet, topics, reads)
            path.unlink()
            found |= {f"{part} cpuS": spent - before.get(part, 0.0) for part, spent in _cpu_s(lake).items()}
            details[phase] = found
            read, answered = found["readP99Ms"], found["answeredS"]
            note = f"answered after {answered:.1f} s; routelake used {found['cores']:.1f} cores"
            bench.say(f"  processor seconds: {', '.join(f'{k[:-5]} {v:.1f}' for k, v in found.items() if 'cpuS' in k)}")
            figures.append(Figure(f"{phase}, visible", found["visibleS"], "s", target_s, "at most", note))
            note = f"p99.9 {found['readP999Ms']:.1f}, longest {found['readMaxMs']:.0f} ms, {READS_PER_S}/s"
            figures.append(Figure(f"{phase}, reads p99", read, "ms", READ_P99_MS, "at most", note))
        details["peakMb"] = _peaks_mb(lake)
        bench.say(f"  peak memory, MB: {details['peakMb']}")
    return Result("storm", figures, details=details)


def _parts(lake: RoutelakeServer) -> dict[int, str]:
    """Process id -> gateway, fold (the driver), fold's JVM, or fold's Python workers."""
    found: dict[int, str] = {}
    for part in ("gateway", "fold"):
        children = lake.process.children(part)
        for pid in tree(*children):
            with suppress(OSError):
                java = Path(f"/proc/{pid}/comm").read_text().startswith("java")
                found[pid] = part if pid in children else f"{part}'s {'JVM' if java else 'workers'}"
    return found


def _cpu_s(lake: RoutelakeServer) -> dict[str, float]:
    """Processor seconds of each part so far. One that ended meanwhile is not counted."""
    spent: dict[str, float] = {}
    for pid, part in _parts(lake).items():
        with suppress(OSError):
            fields = stat_fields(Path(f"/proc/{pid}/stat"))
            spent[part] = spent.get(part, 0.0) + (int(fields[11]) + int(fields[12])) / TICKS
    return spent


def _peaks_mb(lake: RoutelakeServer) -> dict[str, int]:
    """The most memory that each process had resident, added up by part."""
    peaks: dict[str, int] = {}
    for pid, part in _parts(lake).items():
        with suppress(OSError):
            peaks[part] = peaks.get(part, 0) + memory_bytes(pid) // 1024**2
    return peaks


def _changed_topic(number: int, topics: int) -> int:
    return number * 33 % topics


def _phase(
    bench: Bench,
    stack: ExitStack,
    lake: RoutelakeServer,
    phase: str,
    frames: Path,
    fleet: list[FleetBroker],
    topics: int,
    reads: Path,
) -> dict[str, float]:
    """One wave; its connections live as long as the stack."""
    reading = Load(
        port=lake.port, frames=reads, connections=16, depth=64, seconds=86_400.0, rate=READS_PER_S, check="code"
    )
    wave = Load(port=lake.port, frames=frames, connections=len(fleet), once=True, hold=True, seconds=TIMEOUT_S)
    with running_load(reading) as readers, Link(lake.port) as link:
        time.sleep(reading.warmup_s + (0.2 if bench.quick else 2.0))
        meter, began = Meter(*lake.pids), time.monotonic()
        sending = stack.enter_context(running_load(wave))
        _wait_visible(phase, lake, link, fleet, topics, sending)
        visible_s = time.monotonic() - began
        cores = meter.read()[0] / visible_s
        answered = sending.result()
        readers.stop()
        read = readers.result()
    took = f"visible after {visible_s:.1f} s, answered {answered.seconds:.1f} s"
    bench.say(f"  {phase}: {took}, reads p99 {read.p99_us / 1000:.1f} ms")
    return {
        "visibleS": visible_s,
        "answeredS": answered.seconds,
        "cores": cores,
        "readP99Ms": read.p99_us / 1000,
        "readP999Ms": read.p999_us / 1000,
        "readMaxMs": read.max_us / 1000,
    }


def _wait_visible(
    phase: str, lake: RoutelakeServer, link: Link, fleet: list[FleetBroker], topics: int, sending: RunningLoad
) -> None:
    """Wait until the gateway shows what a wave brought; for an unchanged one, until it has been folded at the head.

    Raises:
        RuntimeError: the fold died of it.
        TimeoutError: it takes too long.
    """
    last = 0
    if phase == "unchanged":
        sending.result()
        last = last_offset(lake.process.data_dir)

    def visible() -> bool:
        if "child process exited; starting it again" in (log := lake.process.log_tail(100_000)):
            cause = next((line for line in log.splitlines() if "Error" in line), "see its log")
            raise RuntimeError(f"{phase}: the fold died and was started again: {cause.strip()}")
        if phase == "unchanged":
            return is_visible(lake, last)
        if phase == "all new":
            return all(len(route_rows(link, topic_name(at))) >= len(fleet) for at in (topics - 1, 0, topics // 2))
        changed = ((broker, _changed_topic(number, topics)) for number, broker in reversed(list(enumerate(fleet))))
        return all(
            route_rows(link, topic_name(at)).get(broker.config.broker_name) == broker.topic(at).write_queue_nums
            for broker, at in changed
        )

    wait_until(visible, TIMEOUT_S, f"{phase}: visible", 0.1)
