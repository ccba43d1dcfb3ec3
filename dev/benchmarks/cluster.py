# SPDX-License-Identifier: Apache-2.0
"""Cost of registrations for a fold with remote executors, part by part: ``./routelake bench cluster``.

A standalone master and two workers of one core, a real fold, and in its log the three waves of `storm`: all new, one
changed topic each, unchanged. Prints seconds until everything is in the tables of epochs, and milliseconds of processor
time a registration, of the fold's own processes (the driver) and of the executors; and from them, for executors with a
core each, how much more several fold than one, and how long 1,000 registrations take. That is computed, not measured:
first the driver's part, as if on one core though it uses several threads, and then the executors', shared evenly.
`--without-intervals` leaves out the work that epochs do not wait for.
"""

from __future__ import annotations

import argparse
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.benchmarks.harness.changed_copy import NO_INTERVALS, changed_copy
from dev.benchmarks.harness.cluster_cost import Cost
from dev.benchmarks.harness.lake import ACTOR, Group, log_file, topic_name
from dev.benchmarks.harness.machine import load_average, usage_of
from dev.peers.java import wait_until
from dev.peers.routelake import ROOT, Routelake
from dev.peers.spark_cluster import SparkMaster, SparkWorker, write_properties
from eventlog.sqlite.log import SqliteLog
from schemas.events import Clock, encode, routing_key
from schemas.tables import FOLD_STATUS_FILE

EXECUTORS = (1, 2, 4, 8)
PLANNED = 1_000
WAIT_S = 900.0


class Fold:
    """A fold on a cluster, over a log that this process writes."""

    def __init__(self, data_dir: Path, server: Routelake, workers: Sequence[SparkWorker]) -> None:
        self._server, self._workers = server, workers
        self.log = SqliteLog(log_file(data_dir))

    def wave(self, groups: Sequence[Group]) -> tuple[float, Cost]:
        """Every group registers; seconds, and what each costs."""
        began_s, before = time.monotonic(), self._used()
        for group in groups:
            event = group.event()
            self.log.append([(routing_key(event), encode(event))])
        self.settle()
        took_s, after = time.monotonic() - began_s, self._used()
        return took_s, Cost(*((now - then) * 1000 / len(groups) for now, then in zip(after, before, strict=True)))

    def settle(self) -> None:
        """Until everything is in the tables; a CLOCK behind it takes along what waits for one."""
        event = Clock(actor=ACTOR)
        offset = self.log.append([(routing_key(event), encode(event))])[0].offset
        wait_until(lambda: self._server.folded_offset() >= offset, WAIT_S, "the fold")

    def _used(self) -> tuple[float, float]:
        assert self._server.process is not None
        executors = [pid for worker in self._workers for pid in worker.executors()]
        return usage_of(self._server.process.pid).cpu_seconds, usage_of(*executors).cpu_seconds


@contextmanager
def fold_on_a_cluster(folder: Path, *, intervals: bool) -> Iterator[Fold]:
    """Master, two workers, fold."""
    root = ROOT
    if not intervals:
        (folder / "copy").mkdir()
        root = changed_copy(folder / "copy", NO_INTERVALS)
    properties = write_properties(folder / "spark.properties", secrets.token_hex(16))
    master = SparkMaster(folder / "master", properties)
    workers = [
        SparkWorker(folder / f"worker-{number}", properties, master.url, f"127.0.0.{number}") for number in (2, 3)
    ]
    options = ("--master", master.url, "--spark-config", str(properties))
    server = Routelake(folder / "data", "fold", options, root=root)
    try:
        master.start()
        for worker in workers:
            worker.start()
        server.start(None)
        wait_until((folder / "data" / "lake" / FOLD_STATUS_FILE).parent.exists, WAIT_S, "the fold to start")
        fold = Fold(folder / "data", server, workers)
        fold.settle()
        yield fold
    finally:
        server.kill()
        for worker in workers:
            worker.kill()
        master.kill()


def main() -> None:
    """Three waves; print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--without-intervals", action="store_true")
    arguments = parser.parse_args()
    groups = [Group(number, arguments.topics) for number in range(arguments.groups)]
    with (
        tempfile.TemporaryDirectory(prefix="routelake-cluster-") as folder,
        fold_on_a_cluster(Path(folder), intervals=not arguments.without_intervals) as fold,
    ):
        fold.wave([Group(9999, 10)] * 3)  # workers have imported everything
        for wave in ("all new", "one topic each", "unchanged"):
            if wave == "one topic each":
                for number, group in enumerate(groups):
                    group.change(topic_name(number * 33 % arguments.topics))
            took_s, cost = fold.wave(groups)
            gains = ", ".join(f"{count}: {cost.gain(count):.2f} x" for count in EXECUTORS[1:])
            print(
                f"{wave:15} {took_s:5.1f} s; driver {cost.driver:6.2f} ms, executors {cost.executors:6.2f} ms; "
                f"executors {gains}; {PLANNED:,} by four: {cost.seconds(4, PLANNED):.0f} s",
                flush=True,
            )
    print(f"load average {load_average()[0]:.1f}")


if __name__ == "__main__":
    main()
