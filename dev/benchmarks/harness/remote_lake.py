# SPDX-License-Identifier: Apache-2.0
"""Common parts of the benches of a lake in S3: versitygw near and far, and a lake there without Spark."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from dev.benchmarks.harness.far import far
from dev.benchmarks.harness.lake import Group, topic_name
from dev.benchmarks.harness.shard import OneShard, spool_beside
from dev.peers.versitygw import VersityGw
from lake.delta.ddl import open_lake
from lake.publisher import Publisher
from lake.store import open_store
from lake.write.writer import LakeWriter
from pipelines.blocks import Record
from schemas.events import encode, routing_key

GROUPS = 20
TOPICS = 200
ROUND_TRIPS_MS = (0.0, 20.0)
URL: Final = "s3://lake/bench"


class Place(NamedTuple):
    """Place of a measurement.

    Attributes:
        name: Name for people.
        round_trip_ms: Round trip to the store, in milliseconds.
    """

    name: str
    round_trip_ms: float


def in_each_place(module: str, measure: Callable[[Place], None]) -> None:
    """Measure with a server near, then far, each in a process of its own: delta-rs reads the environment as it starts.

    Args:
        module: The one that calls this, by which it is started again.
        measure: Callback with the URL of the empty store.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--round-trip-ms", type=float, default=None, help=argparse.SUPPRESS)
    round_trip_ms = parser.parse_args().round_trip_ms
    if round_trip_ms is not None:
        measure(Place(f"+{round_trip_ms:.0f} ms" if round_trip_ms else "loopback", round_trip_ms))
        return
    for delay_ms in ROUND_TRIPS_MS:
        with VersityGw() as server, ExitStack() as stack:
            port = stack.enter_context(far(server.port, delay_ms)) if delay_ms else server.port
            found = {**server.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
            command = [sys.executable, "-m", module, "--round-trip-ms", str(delay_ms)]
            subprocess.run(command, env={**os.environ, **found}, check=True)


class RemoteMaker:
    """Writes epochs: 20 groups with 200 topics each, then one topic of one group an epoch.

    Args:
        folder: Folder for the copy.
        url: URL of the lake; None: only in the folder.

    Attributes:
        offset: Offset of the last event.
        published_s: Time of the publication of the last epoch, by `time.perf_counter`.
    """

    def __init__(self, folder: Path, url: str | None) -> None:
        self.publisher = None if url is None else Publisher(open_store(url), folder)
        if self.publisher is not None:
            self.publisher.fetch()
            self.publisher.fence("bench", 1)
        open_lake(folder, retention_days=30)
        self._writer = LakeWriter(folder, retention_days=30, liveness_interval_s=10.0, shards=1)
        self._shard = OneShard(spool_beside(folder), "bench")
        self._groups = [Group(number, TOPICS) for number in range(GROUPS)]
        self.offset = self._batches = 0
        self._epoch(self._groups)

    def change(self) -> tuple[float, float]:
        """An epoch: seconds until it is committed, and until it is also published."""
        group = self._groups[self._batches % GROUPS]
        group.change(topic_name(self._batches % TOPICS))
        return self._epoch([group])

    def _epoch(self, groups: list[Group]) -> tuple[float, float]:
        records = []
        for group in groups:
            event = group.event()
            self.offset += 1
            records.append(Record(self.offset, time.time_ns() // 1_000_000, routing_key(event), encode(event)))
        batch = self._shard.batch(iter(records), epoch=self._writer.epoch + 1)
        began = time.perf_counter()
        self._writer.write("bench", self._batches, batch)
        committed = time.perf_counter()
        batch.close()
        if self.publisher is not None:
            self.publisher.publish()
        self.published_s = published = time.perf_counter()
        if self.publisher is not None:
            self.publisher.publish_rest()
        self._batches += 1
        return committed - began, published - committed
