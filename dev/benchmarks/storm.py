# SPDX-License-Identifier: Apache-2.0
"""storm: 300 broker groups register 10,000 topics at once; then each with one changed topic; then each unchanged.

Apache RocketMQ's NameServer and RocketMQ-Rust's get the same registrations afterwards. They keep them in memory only.

All registrations are sent by the load generator, each over a connection of its own that stays open. Meanwhile a
second generator asks the gateway for the route of a broker that is not part of it, a thousand times a second; its
latencies count from the time each question was due.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from clients.broker.fleet_topics import FleetBroker
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import route_frames
from dev.benchmarks.harness.frames import Link, brokers, for_generator, register_all, registration, topic_name
from dev.benchmarks.harness.lake import last_offset
from dev.benchmarks.harness.loadgen import Load, RunningLoad, run_load, running_load, write_frames
from dev.benchmarks.harness.machine import TICKS, Meter, tree
from dev.benchmarks.harness.peers import RoutelakeServer, Server, nameserver, routelake, rust_nameserver
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
PEER_TIMEOUT_S = 120.0
"""Time after which another server has failed, in seconds. RocketMQ-Rust 1.0.0 closes connections in the first phase."""
WARM_UP = 30
"""Registrations before the measurement of the other servers, because a JVM compiles meanwhile."""


def run(bench: Bench) -> Result:
    """Measure routelake, then the servers that keep everything in memory."""
    groups, topics = bench.size(GROUPS, 10), bench.size(TOPICS, 200)
    wave = Wave.of(bench, groups, topics)
    figures: list[Figure] = []
    details: dict[str, Any] = {"groups": groups, "topics": topics}
    with routelake(bench.folder / "data", bench.serve_options) as lake:
        before = _cpu_s(lake)
        for phase, found in wave.phases(bench, lake):
            after = _cpu_s(lake)
            spent, before = {part: s - before.get(part, 0.0) for part, s in after.items()}, after
            bench.say(f"  processor seconds: {', '.join(f'{part} {s:.1f}' for part, s in spent.items())}")
            details[phase] = found | {f"{part} cpuS": s for part, s in spent.items()}
            note = f"answered after {found['answeredS']:.1f} s; routelake used {found['cores']:.1f} cores"
            figures.append(Figure(f"{phase}, visible", found["visibleS"], "s", TARGETS_S[phase], "at most", note))
            note = f"p99.9 {found['readP999Ms']:.1f}, longest {found['readMaxMs']:.0f} ms, {READS_PER_S}/s"
            figures.append(Figure(f"{phase}, reads p99", found["readP99Ms"], "ms", READ_P99_MS, "at most", note))
        details["peakMb"] = _peaks_mb(lake)
        bench.say(f"  peak memory, MB: {details['peakMb']}")
    for peer in (nameserver(), rust_nameserver(bench.say)):
        with peer as server:
            if server is None:
                continue
            wave.warm_up(bench, server)
            try:
                for phase, found in wave.phases(bench, server, PEER_TIMEOUT_S):
                    details[f"{phase}, {server.name}"] = found
                    note = f"in memory only; reads p99 {found['readP99Ms']:.1f} ms; it used {found['cores']:.1f} cores"
                    figures.append(Figure(f"{phase}, visible, {server.name}", found["visibleS"], "s", note=note))
            except OSError as error:
                figures.append(Figure(f"visible, {server.name}", None, "s", note=str(error)))
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


class Wave(NamedTuple):
    """The registrations that arrive at once.

    Attributes:
        fleet: Brokers, each with its changed topic.
        topics: Number of topics of each broker.
        bystander: Broker that readers ask for, which is registered before.
        early: Broker of the warm-up.
        frames: Files of the registrations, by phase. An unchanged registration has the bytes of the one before.
        reads: File of the requests of the readers.
    """

    fleet: list[FleetBroker]
    topics: int
    bystander: FleetBroker
    early: FleetBroker
    frames: dict[str, Path]
    reads: Path

    @classmethod
    def of(cls, bench: Bench, groups: int, topics: int) -> Wave:
        """Write the files."""
        bystander, early, *fleet = brokers(1, 0) + brokers(groups + 2, topics)[1:]
        reads = route_frames(bench.folder / "reads.frames", [bystander.config.broker_name])
        new, changed = bench.folder / "new.frames", bench.folder / "changed.frames"
        write_frames(new, for_generator([registration(broker) for broker in fleet]))
        for number, broker in enumerate(fleet):
            broker.change(_changed_topic(number, topics), round(time.time() * 1000))
        write_frames(changed, for_generator([registration(broker) for broker in fleet]))
        frames = {"all new": new, "one topic each": changed, "unchanged": changed}
        return cls(fleet, topics, bystander, early, frames, reads)

    def warm_up(self, bench: Bench, server: Server) -> None:
        """Register and read for some seconds. The end of the connections unregisters the brokers."""
        with Link(server.port) as link:
            for _ in range(bench.size(WARM_UP, 3)):
                for broker in (self.bystander, self.early):
                    link.call(registration(broker))
            run_load(Load(port=server.port, frames=self.reads, connections=16, depth=1, seconds=bench.size(5, 1)))

    def phases(
        self, bench: Bench, server: Server, timeout_s: float = TIMEOUT_S
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """Send the registrations of each phase, and give what was measured. The connections stay open to the end.

        Raises:
            OSError: the server closed a connection, or needs more time.
        """
        with ExitStack() as stack:
            register_all([stack.enter_context(Link(server.port))], [self.bystander])
            for phase in self.frames:
                yield phase, self._phase(bench, stack, server, phase, timeout_s)

    def _phase(self, bench: Bench, stack: ExitStack, server: Server, phase: str, timeout_s: float) -> dict[str, float]:
        port = server.port
        reading = Load(
            port=port, frames=self.reads, connections=16, depth=64, seconds=86_400.0, rate=READS_PER_S, check="code"
        )
        frames = self.frames[phase]
        wave = Load(port=port, frames=frames, connections=len(self.fleet), once=True, hold=True, seconds=timeout_s)
        with running_load(reading) as readers, Link(port) as link:
            time.sleep(reading.warmup_s + (0.2 if bench.quick else 2.0))
            meter, began = Meter(*server.pids), time.monotonic()
            sending = stack.enter_context(running_load(wave))
            self._wait_visible(phase, server, link, sending, timeout_s)
            visible_s = time.monotonic() - began
            cores = meter.read()[0] / visible_s
            answered = sending.result()
            readers.stop()
            read = readers.result()
        took = f"visible after {visible_s:.1f} s, answered {answered.seconds:.1f} s"
        bench.say(f"  {server.name}, {phase}: {took}, reads p99 {read.p99_us / 1000:.1f} ms")
        return {
            "visibleS": visible_s,
            "answeredS": answered.seconds,
            "cores": cores,
            "readP99Ms": read.p99_us / 1000,
            "readP999Ms": read.p999_us / 1000,
            "readMaxMs": read.max_us / 1000,
        }

    def _wait_visible(self, phase: str, server: Server, link: Link, sending: RunningLoad, timeout_s: float) -> None:
        """Wait until the server shows what a wave brought.

        An unchanged wave shows nothing: routelake has folded it at the head, the others have answered it.

        Raises:
            RuntimeError: the fold died of it.
            TimeoutError: it takes too long.
        """
        names = {broker.config.broker_name for broker in self.fleet}
        last = 0
        if phase == "unchanged":
            sending.result()
            if not isinstance(server, RoutelakeServer):
                return
            last = last_offset(server.process.data_dir)

        def visible() -> bool:
            if isinstance(server, RoutelakeServer):
                _check_fold(server, phase)
                if phase == "unchanged":
                    return is_visible(server, last)
            if phase == "all new":
                some = (self.topics - 1, 0, self.topics // 2)
                return all(names <= route_rows(link, topic_name(at)).keys() for at in some)
            changed = ((broker, _changed_topic(at, self.topics)) for at, broker in reversed([*enumerate(self.fleet)]))
            return all(
                route_rows(link, topic_name(at)).get(broker.config.broker_name) == broker.topic(at).write_queue_nums
                for broker, at in changed
            )

        wait_until(visible, timeout_s, f"{server.name}, {phase}: visible", 0.1)


def _changed_topic(number: int, topics: int) -> int:
    return number * 33 % topics


def _check_fold(lake: RoutelakeServer, phase: str) -> None:
    if "child process exited; starting it again" in (log := lake.process.log_tail(100_000)):
        cause = next((line for line in log.splitlines() if "Error" in line), "see its log")
        raise RuntimeError(f"{phase}: the fold died and was started again: {cause.strip()}")
