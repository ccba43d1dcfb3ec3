# SPDX-License-Identifier: Apache-2.0
"""Cost of hash chain and intervals for a fold without Spark: ``python -m dev.benchmarks.history_cost [--epochs 200]``.

The same epochs into two lakes in turn, one with the chain and the intervals and one without: in ``idle`` an epoch has
only heartbeats of 20 brokers (the fold writes one each ten seconds), in ``changing`` one topic changes (one a second).
Intervals are kept every third second. Prints milliseconds of processor time of the driver, all threads, for an epoch,
and how long it took until the epoch was there (median).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa

from dev.benchmarks.harness.lake import Group, topic_name
from dev.benchmarks.harness.shard import OneShard, spool_beside
from lake.history.intervals import STEP_INTERVAL_S, IntervalKeeper
from lake.write.hash_chain import EpochDigest
from lake.write.writer import LakeWriter
from pipelines.blocks import Record
from schemas.events import AnyEvent, encode, routing_key
from schemas.tables import ROUTE_CHANGE_TABLE

BROKERS: Final = 20
TOPICS: Final = 50
START_MS: Final = 1_700_000_000_000
EVERY_S: Final = {"idle": 10, "changing": 1}
"""Between two epochs of such a scene."""


class _NoDigest(EpochDigest):
    """Hashes nothing."""

    def add_changes(self, rows: pa.Table) -> pa.Table:
        return rows

    def link(self, previous: str, commit: Mapping[str, Any]) -> str:
        return ""


class _Side:
    """A lake, and what was spent on it."""

    def __init__(self, lake_dir: Path, *, whole: bool) -> None:
        self._whole = whole
        self._writer = LakeWriter(lake_dir, retention_days=30, liveness_interval_s=0.0, shards=1)
        self._keeper = IntervalKeeper(lake_dir) if whole else None
        self._shard = OneShard(spool_beside(lake_dir), "bench")
        self._batches = 0
        self.spent_s = 0.0
        self.took_s: list[float] = []

    def epoch(self, records: Sequence[Record], *, keeps: bool) -> None:
        batch = self._shard.batch(iter(records), epoch=self._writer.epoch + 1)
        began, begun = time.process_time(), time.perf_counter()
        if self._whole:
            self._writer.write("bench", self._batches, batch)
        else:
            with patch("lake.write.writer.EpochDigest", _NoDigest):
                self._writer.write("bench", self._batches, batch)
        self.took_s.append(time.perf_counter() - begun)
        if keeps and self._keeper is not None:
            self._keeper.catch_up(self._writer.epoch, self._writer.tables[ROUTE_CHANGE_TABLE.name].version)
        self.spent_s += time.process_time() - began
        self._batches += 1
        batch.close()


def measure(scene: str, epochs: int, folder: Path) -> tuple[tuple[float, float], ...]:
    """Milliseconds without chain and intervals and with them: of processor time an epoch, and until it was there.

    Args:
        scene: Name of a scene in `EVERY_S`.
        epochs: Measured epochs; a tenth as many before them warm up.
        folder: Folder for the lakes.
    """
    sides = [_Side(folder / name, whole=name == "with") for name in ("without", "with")]
    groups = [Group(number, TOPICS) for number in range(BROKERS)]
    offset = 0
    steps = max(1, round(STEP_INTERVAL_S / EVERY_S[scene]))
    warm_up = max(3, epochs // 10)
    for number in range(-warm_up, epochs):
        events: list[AnyEvent] = [group.heartbeat() for group in groups]
        if number == -warm_up:
            events = [group.event() for group in groups]
        elif scene == "changing":
            groups[0].change(topic_name(number % TOPICS))
            events = [groups[0].event()]
        records = [
            Record(offset + at, START_MS + 1000 * (number + warm_up), routing_key(event), encode(event))
            for at, event in enumerate(events)
        ]
        offset += len(records)
        if number == 0:
            for side in sides:
                side.spent_s, side.took_s = 0.0, []
        for side in sides if number % 2 else reversed(sides):
            side.epoch(records, keeps=number % steps == 0)
    without, with_them = sides
    return (
        (without.spent_s / epochs * 1000, with_them.spent_s / epochs * 1000),
        (median(without.took_s) * 1000, median(with_them.took_s) * 1000),
    )


def main() -> None:
    """Print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=200)
    epochs = parser.parse_args().epochs
    print(f"{'ms':34}{'without':>10}{'with':>10}{'ratio':>8}")
    for scene, every_s in EVERY_S.items():
        with tempfile.TemporaryDirectory(prefix="routelake-history-cost-") as folder:
            spent, took = measure(scene, epochs, Path(folder))
        more = (spent[1] - spent[0]) / every_s / 1000
        for name, (without, with_them) in (("processor time an epoch", spent), ("until it is there", took)):
            print(f"{scene + ', ' + name:36}{without:8.2f}{with_them:10.2f}{with_them / without:8.2f}")
        print(f"{scene}, more in all: {more:.5f} cores")


if __name__ == "__main__":
    main()
