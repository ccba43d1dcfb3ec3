# SPDX-License-Identifier: Apache-2.0
"""Cost of registrations in the fold without Spark.

Run ``python -m dev.benchmarks.fold_load [--groups 40] [--topics 10000]``.

The three waves of `storm` (all new, one changed topic each, unchanged) as one micro-batch each, in one process: decoded
and folded as in a Spark worker, written as by the driver. Prints milliseconds of processor time for a group, part by
part, and the bytes that travel between worker, state store and driver. ``fold`` contains ``decode``. fold, finish and
emit are an executor's, merge and write the driver's; from them follows how much more four executors fold than one.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.benchmarks.harness.cluster_cost import Cost
from dev.benchmarks.harness.lake import Group, topic_name
from dev.benchmarks.harness.shard import OneShard, spool_beside
from lake.write.batch import Batch
from lake.write.writer import LakeWriter
from pipelines.blocks import Record
from schemas.events import decode, encode, routing_key

START_MS = 1_700_000_000_000

EXECUTORS = ("fold", "finish", "emit")
DRIVER = ("merge", "write")

Figures = dict[str, dict[str, float]]


class Bench:
    """A shard, its state store and a lake."""

    def __init__(self, lake_dir: Path, groups: list[Group]) -> None:
        """Empty."""
        self._groups = groups
        self._writer = LakeWriter(lake_dir, retention_days=30, liveness_interval_s=10.0, shards=1)
        self._shard = OneShard(spool_beside(lake_dir), "bench")
        self._batches = 0
        self._spent: dict[str, float] = {}

    def wave(self) -> dict[str, float]:
        """Register every group; figures for one."""
        self._spent = {}
        events = [group.event() for group in self._groups]
        first = self._batches * len(events)
        records = [
            Record(first + at, START_MS + first + at, routing_key(event), encode(event))
            for at, event in enumerate(events)
        ]
        del events
        gc.disable()  # as pipelines.processor does
        with self._timed("decode"):
            for record in records:
                decode(record.payload or b"")
        with self._timed("fold"):
            fold = self._shard.open(epoch=self._writer.epoch + 1)
            for record in records:
                fold.apply(record)
        with self._timed("finish"):
            fold.finish()
        with self._timed("emit"):
            parts = list(fold.emit())
        gc.enable()
        with self._timed("merge"):
            batch = Batch.merge(parts)
        with self._timed("write"):
            self._writer.write("bench", self._batches, batch)
            batch.close()
        self._batches += 1
        count = len(records)
        return {name: seconds * 1000 / count for name, seconds in self._spent.items()} | {
            "event_kib": sum(len(record.payload or b"") for record in records) / count / 1024,
            "state_kib": sum(map(len, self._shard.topics.values())) / count / 1024,
            "emitted_kib": sum(len(payload) for _, payload in parts) / count / 1024,
        }

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self._spent[part] = time.process_time() - began


def main() -> None:
    """Three waves; print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    groups = [Group(number, arguments.topics) for number in range(arguments.groups)]
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="routelake-fold-") as folder:
        bench = Bench(Path(folder) / "lake", groups)
        for wave in ("all new", "one topic each", "unchanged"):
            if wave == "one topic each":
                for number, group in enumerate(groups):
                    group.change(topic_name(number * 33 % arguments.topics))
            figures[wave] = bench.wave()
            print(f"{wave:16}" + "".join(f"{name} {value:<8.2f}" for name, value in figures[wave].items()))
            cost = Cost(*(sum(figures[wave][name] for name in names) for names in (DRIVER, EXECUTORS)))
            print(f"{'':16}driver {cost.driver:.2f}, executors {cost.executors:.2f}: four fold {cost.gain(4):.2f} x")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
