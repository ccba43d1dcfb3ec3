# SPDX-License-Identifier: Apache-2.0
"""What chain and intervals cost whoever waits: ``python -m benchmarks.history_pairs [--rounds 3]``.

This routelake in turns with a copy of it that makes neither chain nor intervals (`NO_HISTORY`): freshness, acknowledged
heartbeats, and cores when idle. One of the two runs at a time. Prints the median of each and of the ratios within a
round; more than 1.05 times, where less is better, is more than history may cost.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
from deltalake import DeltaTable

from benchmarks.acknowledge import QUOTAS
from benchmarks.freshness import Scene
from benchmarks.harness.background import heartbeat_frames, heartbeats
from benchmarks.harness.bench import Bench
from benchmarks.harness.comparison import sample
from benchmarks.harness.frames import Link, brokers, register_all
from benchmarks.harness.loadgen import Load, program
from benchmarks.harness.machine import Meter
from benchmarks.harness.peers import RoutelakeServer, only, routelake
from benchmarks.harness.report import median, quantile
from peers.routelake import ROOT
from schemas.intervals import TOPIC_QUEUE_HISTORY

WITH, WITHOUT = "with", "without"
BEHIND: Final = "intervals behind, s"

NO_HISTORY: Final = {
    "lake/chain.py": """
EpochDigest.add_changes = EpochDigest.add_quarantine = lambda self, rows: rows
EpochDigest.link = lambda self, previous, commit, other=None: ""
""",
    "pipelines/intervals/keeper.py": """
IntervalKeeper.step = lambda self, epoch, version: None
""",
}
"""What is put at the end of these files of the copy."""

CONNECTIONS: Final = 64
FRESH: Final = 100
IDLE_BROKERS: Final = 20
IDLE_S: Final = 20
"""Heartbeats reach the tables each ten seconds: two epochs."""


def without_history(folder: Path) -> Path:
    """A copy of this routelake that keeps neither; what is not changed in it are links."""
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    for name, more in NO_HISTORY.items():
        room = folder
        for part in Path(name).parts[:-1]:  # a folder of links in place of the link
            room /= part
            if room.is_symlink():
                original = room.readlink()
                room.unlink()
                room.mkdir()
                for path in original.iterdir():
                    (room / path.name).symlink_to(path)
        changed = folder / name
        text = changed.read_text(encoding="utf-8")
        changed.unlink()
        changed.write_text(text + more, encoding="utf-8")
    return folder


def measure(bench: Bench, server: RoutelakeServer, number: int) -> dict[str, float]:
    """One round of one side. Less is better."""
    found: dict[str, float] = {}
    with Scene.of(bench, server, first_topic=number * 10 * FRESH) as scene:
        seen = scene.samples(server, FRESH)
        if server.name == WITH:
            found[BEHIND] = until_interval(server.process.lake_dir, scene.last_topic)
    found["freshness, p50, ms"], found["freshness, p90, ms"] = median(seen), quantile(seen, 0.9)
    with ExitStack() as stack:
        fleet = brokers(CONNECTIONS, 10)
        register_all([stack.enter_context(Link(server.port)) for _ in fleet], fleet)
        frames = heartbeat_frames(bench.folder / f"acknowledge-{server.name}.frames", fleet)
        load = Load(port=server.port, frames=frames, connections=CONNECTIONS, seconds=4.0, warmup_s=1.0, own=True)
        taken = sample(load, server)
    found["a heartbeat acknowledged, us"] = 1e6 / taken.load.per_second
    found["a heartbeat acknowledged, p99, ms"] = taken.load.p99_us / 1000
    with ExitStack() as stack:
        fleet = brokers(IDLE_BROKERS, 50)
        register_all([stack.enter_context(Link(server.port)) for _ in fleet], fleet)
        stack.enter_context(heartbeats(bench.folder, server.port, fleet, IDLE_BROKERS))
        time.sleep(5)  # what the load has left to fold
        meter = Meter(*server.pids)
        time.sleep(IDLE_S)
        found["idle, cores"] = meter.read()[0] / IDLE_S
    return found


def until_interval(lake_dir: Path, topic: str, timeout_s: float = 60.0) -> float:
    """Seconds until topicQueueHistory has a topic that a gateway has just shown."""
    began = time.monotonic()
    table = DeltaTable(str(lake_dir / TOPIC_QUEUE_HISTORY.table.name))
    while not table.to_pyarrow_dataset().count_rows(pc.field("topic") == topic):
        if time.monotonic() - began > timeout_s:
            raise TimeoutError(f"{topic} has no interval after {timeout_s:.0f} s")
        time.sleep(0.1)
        table.update_incremental()
    return time.monotonic() - began


def run(rounds: int, folder: Path, say: Callable[[str], None]) -> dict[str, dict[str, list[float]]]:
    """{figure: {side: a value a round}}."""
    found: dict[str, dict[str, list[float]]] = {}
    (folder / "copy").mkdir()
    roots = {WITHOUT: without_history(folder / "copy"), WITH: ROOT}
    with ExitStack() as stack:
        bench = Bench(folder=folder)
        servers = [
            stack.enter_context(routelake(folder / name, QUOTAS, name=name, root=root)) for name, root in roots.items()
        ]
        for number in range(rounds + 1):  # the first round is for compilers and caches
            for server in servers if number % 2 else reversed(servers):
                with only(server, servers):
                    taken = measure(bench, server, number)
                say(
                    f"round {number} {server.name}: "
                    + ", ".join(f"{name} {value:.4g}" for name, value in taken.items())
                )
                if number:
                    for name, value in taken.items():
                        found.setdefault(name, {}).setdefault(server.name, []).append(value)
    return found


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    program()
    with tempfile.TemporaryDirectory(prefix="routelake-history-pairs-") as folder:
        found = run(rounds, Path(folder), lambda text: print(text, flush=True))
    print(f"\n{'':38}{'without':>10}{'with':>10}{'ratio':>8}   of each round")
    behind = found.pop(BEHIND)[WITH]
    for name, sides in found.items():
        ratios = [more / less for more, less in zip(sides[WITH], sides[WITHOUT], strict=True)]
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{name:38}{median(sides[WITHOUT]):10.4g}{median(sides[WITH]):10.4g}{median(ratios):8.3f}   {each}")
    print(f"{BEHIND:38}{max(behind):20.2f}   at most")


if __name__ == "__main__":
    main()
