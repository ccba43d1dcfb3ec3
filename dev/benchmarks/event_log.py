# SPDX-License-Identifier: Apache-2.0
"""Rate at which the event log takes records, and delay and rate at which Spark sees them.

    python -m dev.benchmarks.event_log                     # SQLite in a temporary directory
    python -m dev.benchmarks.event_log --kafka             # and a Kafka started for this
    python -m dev.benchmarks.event_log --dir /data --no-spark

Everything is printed as Markdown rows: median of the runs, and the values that it was made of.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dev.benchmarks.harness.machine import usage_of
from eventlog import EventLog, open_log
from pipelines.blocks import unpack
from pipelines.source import MAX_BYTES_PER_BATCH, MAX_RECORDS_PER_BATCH, SourceSettings, read_stream

SMALL, LARGE = 300, 200_000
"""Payload bytes: a heartbeat, and a registration of 10,000 topics, both compressed."""

LATENCY_ROUNDS = 50
WARM_UP = 10


def append_rates(name: str, make: Callable[[], EventLog], seconds: float) -> None:
    """Records per second, one caller, for lists of 1, 16 and 64."""
    for size in (SMALL, LARGE):
        payload = os.urandom(size)
        for count in (1, 16, 64):
            with closing(make()) as log:
                entries = [("b:broker-a", payload)] * count
                log.append(entries)
                times = []
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    start = time.perf_counter()
                    log.append(entries)
                    times.append(time.perf_counter() - start)
            median, total = statistics.median(times), sum(times)
            p99 = sorted(times)[int(len(times) * 0.99)]
            print(
                f"| {name} | append {count} x {size} B | {count * len(times) / total:,.0f} records/s |"
                f" {median * 1e3:.2f} ms per append, p99 {p99 * 1e3:.1f} ms |",
                flush=True,
            )


class Follower:
    """A trivial query: collects the offsets of each batch."""

    def __init__(self, spark: SparkSession, url: str, start_offset: int, trigger: str, bounds: dict[str, Any]) -> None:
        self.seen = start_offset - 1
        self.seen_at = 0.0
        self.batches: list[int] = []
        self._checkpoint = tempfile.TemporaryDirectory(prefix="event-log-checkpoint-")
        self.query = (
            read_stream(spark, SourceSettings(url, start_offset, **bounds))
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", self._checkpoint.name)
            .trigger(processingTime=trigger)
            .start()
        )

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        records = unpack(row["records"] for row in frame.collect())
        self.seen_at = time.perf_counter()
        if records:
            self.batches.append(len(records))
            self.seen = records[-1].offset

    def wait_for(self, offset: int) -> None:
        """Until a batch with this offset has been processed."""
        while self.seen < offset:
            if (error := self.query.exception()) is not None:
                raise error
            time.sleep(0.0005)

    def close(self) -> None:
        """Stop the query."""
        self.query.stop()
        self._checkpoint.cleanup()


@contextmanager
def following(
    spark: SparkSession, url: str, start_offset: int, trigger: str, bounds: dict[str, Any]
) -> Iterator[Follower]:
    """A running `Follower`."""
    with closing(Follower(spark, url, start_offset, trigger, bounds)) as follower:
        yield follower


def read_latency(name: str, spark: SparkSession, url: str, trigger: str) -> None:
    """From before the append to the end of a foreachBatch that saw the record; then CPU while nothing comes."""
    with closing(open_log(url)) as log, following(spark, url, log.end().next_offset, trigger, {}) as follower:
        times = []
        for _ in range(LATENCY_ROUNDS + WARM_UP):
            start = time.perf_counter()
            (appended,) = log.append([("b:broker-a", os.urandom(SMALL))])
            follower.wait_for(appended.offset)
            times.append(follower.seen_at - start)
            time.sleep(0.02)
        times = sorted(times[WARM_UP:])
        time.sleep(2)
        before = usage_of(os.getpid()).cpu_seconds
        time.sleep(8)
        idle = (usage_of(os.getpid()).cpu_seconds - before) / 8
    print(
        f"| {name} | append to foreachBatch, trigger {trigger} | p50 {statistics.median(times) * 1e3:.0f} ms |"
        f" p90 {times[int(len(times) * 0.9)] * 1e3:.0f} ms, max {times[-1] * 1e3:.0f} ms;"
        f" idle CPU {idle * 100:.1f} % of a core |",
        flush=True,
    )


def backlog(name: str, spark: SparkSession, url: str, count: int, size: int, bounds: Sequence[dict[str, int]]) -> None:
    """Records that are all there when the query starts, with different bounds on a batch."""
    with closing(open_log(url)) as log:
        start_offset = log.end().next_offset
        per_append = max(1, min(1000, 4_000_000 // size))
        for _ in range(count // per_append):
            log.append([("b:broker-a", os.urandom(size)) for _ in range(per_append)])
        last = log.end().next_offset - 1
        for bound in bounds:
            with following(spark, url, start_offset, "0 seconds", bound) as follower:
                start = time.perf_counter()
                follower.wait_for(last)
                took = follower.seen_at - start
                progress = follower.query.recentProgress[1:] or follower.query.recentProgress
                longest = max((p["durationMs"]["triggerExecution"] for p in progress), default=0)
            print(
                f"| {name} | backlog {count:,} x {size} B, {describe(bound)} | {count / took:,.0f} records/s |"
                f" {len(follower.batches)} batches, largest {max(follower.batches):,} records, longest {longest} ms |",
                flush=True,
            )


def describe(bound: dict[str, int]) -> str:
    """The bounds of a batch, in words."""
    records = bound.get("max_records", MAX_RECORDS_PER_BATCH)
    megabytes = bound.get("max_bytes", MAX_BYTES_PER_BATCH) / 1024**2
    return f"<= {records:,} records, {megabytes:.0f} MiB"


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", help="where the SQLite files go (default: a temporary directory)")
    parser.add_argument("--kafka", action="store_true", help="also start Kafka and measure it")
    parser.add_argument("--no-spark", action="store_true", help="appends only")
    parser.add_argument("--seconds", type=float, default=3.0, help="per append measurement")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="event-log-", dir=arguments.dir)))
        bases = {"sqlite": f"sqlite://{directory}/log"}
        if arguments.kafka:
            from dev.peers.kafka import Kafka

            bases["kafka"] = f"kafka://{stack.enter_context(Kafka()).address}/log"
        number = 0

        def new_url(base: str) -> str:
            nonlocal number
            number += 1
            return f"{base}-{number}" + (".db" if base.startswith("sqlite") else "")

        print("| log | what | figure | made of |\n|---|---|---|---|")
        for name, base in bases.items():
            append_rates(name, lambda base=base: open_log(new_url(base)), arguments.seconds)  # type: ignore[misc]
        if arguments.no_spark:
            return
        from pipelines.session import session

        spark = session("event-log", driver_memory="2g")
        spark.sparkContext.setLogLevel("ERROR")
        stack.callback(spark.stop)
        for name, base in bases.items():
            for trigger in ("0 seconds", "50 milliseconds", "200 milliseconds"):
                read_latency(name, spark, new_url(base), trigger)
            records = [{"max_records": bound} for bound in (5_000, 20_000, 50_000)]
            backlog(name, spark, new_url(base), 200_000, SMALL, records)
            megabytes = [{"max_bytes": bound * 1024**2} for bound in (4, 16, 64)]
            backlog(name, spark, new_url(base), 300, LARGE, megabytes)


if __name__ == "__main__":
    main()
