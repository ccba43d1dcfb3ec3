# SPDX-License-Identifier: Apache-2.0
"""Cost of hash chain and intervals for clients: ``./routelake bench history-pairs [--rounds 5]``.

This routelake in turns with a copy of it that makes neither chain nor intervals (`NO_HISTORY`): freshness, acknowledged
heartbeats, and cores when idle. One of the two runs at a time. Prints the median of each and of the ratios within a
round; more than 1.05 times, where less is better, is more than history may cost.

How fast heartbeats are acknowledged wanders by a third within minutes on a machine that is not one's own, so that is
measured in short blocks, with, without, without, with (what wanders evenly falls out of a block's ratio), and what the
median of their ratios is known to is said with it: where that is wider than 5 %, nothing is shown.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from math import comb, inf
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
from deltalake import DeltaTable

from dev.benchmarks.acknowledge import QUOTAS
from dev.benchmarks.freshness import Scene
from dev.benchmarks.harness.background import heartbeat_frames, heartbeats
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.changed_copy import NO_INTERVALS, changed_copy
from dev.benchmarks.harness.comparison import sample
from dev.benchmarks.harness.frames import Link, brokers, register_all
from dev.benchmarks.harness.loadgen import Load, program
from dev.benchmarks.harness.machine import Meter
from dev.benchmarks.harness.peers import RoutelakeServer, only, routelake
from dev.benchmarks.harness.report import median, quantile
from dev.peers.routelake import ROOT
from schemas.intervals import TOPIC_QUEUE_HISTORY

WITH, WITHOUT = "with", "without"
BEHIND: Final = "intervals behind, s"

NO_HISTORY: Final = {
    "lake/write/hash_chain.py": """
EpochDigest.add_changes = EpochDigest.add_quarantine = lambda self, rows: rows
EpochDigest.link = lambda self, previous, commit: ""
blocks = lambda rows: ()
""",
    **NO_INTERVALS,
}
"""Text appended to these files of the copy that keeps neither."""

CONNECTIONS: Final = 64
BLOCK: Final = (WITH, WITHOUT, WITHOUT, WITH)
BLOCK_S: Final = 2.0
BLOCKS_A_ROUND: Final = 6
MOST: Final = 1.05
SURE: Final = 0.95
FRESH: Final = 100
IDLE_BROKERS: Final = 20
IDLE_S: Final = 20
"""Heartbeats reach the tables each ten seconds: two epochs."""


def measure(bench: Bench, server: RoutelakeServer, number: int) -> dict[str, float]:
    """One round of one side. Less is better."""
    found: dict[str, float] = {}
    with Scene.of(bench, server, first_topic=number * 10 * FRESH) as scene:
        seen = scene.samples(server, FRESH)
        if server.name == WITH:
            found[BEHIND] = until_interval(server.process.lake_dir, scene.last_topic)
    found["freshness, p50, ms"], found["freshness, p90, ms"] = median(seen), quantile(seen, 0.9)
    with ExitStack() as stack:
        fleet = brokers(IDLE_BROKERS, 50)
        register_all([stack.enter_context(Link(server.port)) for _ in fleet], fleet)
        stack.enter_context(heartbeats(bench.folder, server.port, fleet, IDLE_BROKERS))
        time.sleep(5)  # what the load has left to fold
        meter = Meter(*server.pids)
        time.sleep(IDLE_S)
        found["idle, cores"] = meter.read()[0] / IDLE_S
    return found


def acknowledged(bench: Bench, servers: Mapping[str, RoutelakeServer], blocks: int) -> list[float]:
    """Return, for each block, microseconds a heartbeat with history, divided by those without."""
    fleet = brokers(CONNECTIONS, 10)
    frames = heartbeat_frames(bench.folder / "acknowledge.frames", fleet)
    ratios: list[float] = []
    with ExitStack() as stack:
        links = {}
        for name, server in servers.items():
            with only(server, list(servers.values())):
                links[name] = [stack.enter_context(Link(server.port)) for _ in fleet]
        for number in range(-1, blocks):  # the first block is for compilers and caches
            spent = dict.fromkeys(servers, 0.0)
            for name in BLOCK if number % 2 else BLOCK[::-1]:
                server = servers[name]
                with only(server, list(servers.values())):
                    # the brokers left with the generator's connections that had registered them
                    register_all(links[name], fleet)
                    load = Load(
                        port=server.port,
                        frames=frames,
                        connections=CONNECTIONS,
                        seconds=BLOCK_S,
                        warmup_s=0.5,
                        own=True,
                    )
                    spent[name] += 1e6 / sample(load, server).load.per_second / 2
            if number >= 0:
                ratios.append(spent[WITH] / spent[WITHOUT])
                bench.say(f"block {number + 1}: " + ", ".join(f"{name} {us:.1f} us" for name, us in spent.items()))
    return ratios


def known_to(ratios: Sequence[float]) -> tuple[float, float]:
    """Between which values the median of what these were drawn from is, `SURE`; whatever their distribution is."""
    ordered, count = sorted(ratios), len(ratios)
    below, outside = 0.0, 0
    while True:
        below += comb(count, outside) / 2**count
        if 2 * below > 1 - SURE:
            break
        outside += 1
    return (ordered[outside - 1], ordered[-outside]) if outside else (0.0, inf)


def verdict(ratios: Sequence[float]) -> str:
    """Describe the result of the blocks."""
    low, high = known_to(ratios)
    if high <= MOST:
        shown = f"at most {MOST} times: shown"
    else:
        shown = f"more than {MOST} times: shown" if low > MOST else f"at most {MOST} times: not shown"
    return f"{median(ratios):.3f} times, {low:.3f} to {high:.3f} ({len(ratios)} blocks, {SURE:.0%} sure); {shown}"


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


def run(rounds: int, folder: Path, say: Callable[[str], None]) -> tuple[dict[str, dict[str, list[float]]], list[float]]:
    """{figure: {side: a value a round}}, and the ratios of acknowledging."""
    found: dict[str, dict[str, list[float]]] = {}
    (folder / "copy").mkdir()
    roots = {WITHOUT: changed_copy(folder / "copy", NO_HISTORY), WITH: ROOT}
    with ExitStack() as stack:
        bench = Bench(folder=folder, say=say)
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
        return found, acknowledged(bench, {server.name: server for server in servers}, rounds * BLOCKS_A_ROUND)


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    program()
    with tempfile.TemporaryDirectory(prefix="routelake-history-pairs-") as folder:
        found, ratios = run(rounds, Path(folder), lambda text: print(text, flush=True))
    print(f"\n{'':38}{'without':>10}{'with':>10}{'ratio':>8}   of each round")
    behind = found.pop(BEHIND)[WITH]
    for name, sides in found.items():
        rounds_ratios = [more / less for more, less in zip(sides[WITH], sides[WITHOUT], strict=True)]
        each = " ".join(f"{ratio:.2f}" for ratio in rounds_ratios)
        print(
            f"{name:38}{median(sides[WITHOUT]):10.4g}{median(sides[WITH]):10.4g}{median(rounds_ratios):8.3f}   {each}"
        )
    print(f"{BEHIND:38}{max(behind):20.2f}   at most")
    print(f"a heartbeat acknowledged: {verdict(ratios)}")


if __name__ == "__main__":
    main()
