# SPDX-License-Identifier: Apache-2.0
"""growth: freshness, commit time and gateway start after 100,000 epochs, against those of an empty lake."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dev.benchmarks.cold_start import start_gateway
from dev.benchmarks.freshness import Scene
from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.lake import LakeMaker, topic_name, write_full
from dev.benchmarks.harness.machine import folder_bytes
from dev.benchmarks.harness.peers import routelake
from dev.benchmarks.harness.report import Figure, Result, median

GROUPS, TOPICS = 20, 50
AT_MOST = 1.5
EPOCHS_AN_HOUR = 3_600
"""The lake is made as fast as it goes, but with the housekeeping of one that gets an epoch each second."""
WARM = 50
SAMPLE = 300
"""Commits of either lake, in turn, over which the median is taken: the machine is not the same one an hour later."""


def run(bench: Bench) -> Result:
    """Let a lake grow with the real log, fold and writer, and compare it with a new lake."""
    young, old = bench.folder / "young", bench.folder / "old"
    began = time.monotonic()
    with LakeMaker(old) as maker, LakeMaker(young) as beside:
        grown = _Changes(maker)
        took: list[float] = []
        for number in range(bench.epochs):
            took.append(grown.commit())
            if number % EPOCHS_AN_HOUR == EPOCHS_AN_HOUR - 1:
                maker.hour()
            if number % 5_000 == 4_999:
                bench.say(f"  {number + 1:,} epochs, {1000 * median(took[-SAMPLE:]):.1f} ms a commit")
        grown_s = time.monotonic() - began
        new = _Changes(beside)
        for _ in range(min(WARM, bench.epochs // 4)):
            new.commit()
        pairs = [(new.commit(), grown.commit()) for _ in range(max(1, min(SAMPLE, bench.epochs // 4)))]
    commit = {"young": median([pair[0] for pair in pairs]), "old": median([pair[1] for pair in pairs])}
    found = {"young": _measure(bench, young), "old": _measure(bench, old)}
    figures = [
        _ratio("gateway start", {name: of["startS"] for name, of in found.items()}),
        _ratio("commit time", commit),
        _ratio("freshness p50", {name: of["freshnessS"] for name, of in found.items()}),
        Figure("size of the old lake", folder_bytes(old / "lake") / 1e6, "MB", note=f"{bench.epochs:,} epochs"),
    ]
    details: dict[str, Any] = {"epochs": bench.epochs, "grownInS": grown_s, "commitS": commit, **found}
    return Result("growth", figures, details=details)


class _Changes:
    """One lake, in which each commit changes one topic of one broker."""

    def __init__(self, maker: LakeMaker) -> None:
        """Register the brokers."""
        self._maker = maker
        self._made = write_full(maker, GROUPS, TOPICS)
        self._number = 0

    def commit(self) -> float:
        """Change the next topic; returns the seconds that the commit took."""
        group = self._made[self._number % GROUPS]
        group.change(topic_name(self._number % TOPICS))
        self._number += 1
        return self._maker.batch([group.event()])


def _ratio(name: str, of: dict[str, float]) -> Figure:
    note = f"{of['old']:.4f} s after, {of['young']:.4f} s before"
    return Figure(name, of["old"] / of["young"], "x", AT_MOST, "at most", note, of)


def _measure(bench: Bench, data: Path) -> dict[str, float]:
    """Start of a gateway, then freshness of a whole routelake on it."""
    starts = [start_gateway(data, bench.serve_options, GROUPS, TOPICS)[0] for _ in range(min(bench.rounds, 3))]
    with routelake(data, bench.serve_options) as lake, Scene.of(bench, lake) as scene:
        visible_s = median(scene.samples(lake, bench.size(100, 3))) / 1000
    bench.say(f"  {data.name}: start {median(starts):.2f} s, visible p50 {visible_s * 1000:.1f} ms")
    return {"startS": median(starts), "freshnessS": visible_s}
