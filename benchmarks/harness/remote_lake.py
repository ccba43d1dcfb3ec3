# SPDX-License-Identifier: Apache-2.0
"""What `remote_epoch` and `remote_follow` have alike: versitygw near and far, and a lake there without Spark."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.harness.far import far
from benchmarks.harness.lake import Group, topic_name
from benchmarks.harness.shard import OneShard
from lake.ddl import open_lake
from lake.mirror import Mirror
from lake.store import open_store
from peers.versitygw import VersityGw
from pipelines.shards.fold import Record
from pipelines.tables.writer import LakeWriter
from schemas.events import encode, routing_key

GROUPS = 20
TOPICS = 200
ROUND_TRIPS_MS = (0.0, 20.0)
_numbers = itertools.count()


def in_each_place(module: str) -> None:
    """Run a module again with a server near, then far: delta-rs reads the environment as it starts."""
    with VersityGw() as server:
        for delay_ms in ROUND_TRIPS_MS:
            with ExitStack() as stack:
                port = stack.enter_context(far(server.port, delay_ms)) if delay_ms else server.port
                found = {**server.environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
                where = "loopback" if not delay_ms else f"+{delay_ms:.0f} ms"
                command = [sys.executable, "-m", module, "--where", where]
                subprocess.run(command, env={**os.environ, **found}, check=True)


class RemoteMaker:
    """Writes epochs: 20 groups with 200 topics each, then one topic of one group an epoch.

    Args:
        folder: For the copy.
        url: Where the lake is to be; None: only in the folder.

    Attributes:
        offset: Of the last event.
        published_s: When the last epoch was there for all, by `time.perf_counter`.
    """

    def __init__(self, folder: Path, url: str | None) -> None:
        self.mirror = None if url is None else Mirror(open_store(url), folder)
        if self.mirror is not None:
            self.mirror.fetch()
            self.mirror.fence("bench", 1)
        open_lake(folder, retention_days=30)
        self._writer = LakeWriter(folder, retention_days=30, liveness_interval_s=10.0, shards=1)
        self._shard = OneShard("bench")
        self._groups = [Group(number, TOPICS) for number in range(GROUPS)]
        self.offset = self._batches = 0
        self._epoch(self._groups)

    def change(self) -> tuple[float, float]:
        """An epoch: seconds until it is committed, and until it is published besides."""
        group = self._groups[self._batches % GROUPS]
        group.change(topic_name(self._batches % TOPICS))
        return self._epoch([group])

    def _epoch(self, groups: list[Group]) -> tuple[float, float]:
        records = []
        for group in groups:
            event = group.event()
            self.offset += 1
            records.append(Record(self.offset, time.time_ns() // 1_000_000, routing_key(event), encode(event)))
        batch = self._shard.batch(iter(records))
        began = time.perf_counter()
        self._writer.write("bench", self._batches, batch)
        committed = time.perf_counter()
        if self.mirror is not None:
            self.mirror.publish()
        self.published_s = published = time.perf_counter()
        if self.mirror is not None:
            self.mirror.publish_rest()
        self._batches += 1
        return committed - began, published - committed


@contextmanager
def new_url() -> Iterator[str]:
    """Of a lake that is not there yet."""
    yield f"s3://lake/bench-{os.getpid()}-{next(_numbers)}"
