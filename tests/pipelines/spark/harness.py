# SPDX-License-Identifier: Apache-2.0
"""The real query in this process: a SQLite log with a clock of its own, one Spark session, waiting for what is folded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dev.support.generated_logs import START_MS
from dev.support.stamps import stamps_of
from eventlog.base import LogRecord
from eventlog.sqlite.log import SqliteLog
from pipelines.job import FoldQuery, FoldSettings
from schemas.events import AnyEvent, encode, routing_key

WAIT_S = 90.0
"""Longer than a batch ever takes, even on a machine that is busy with other things."""

AGES_HOURS = 1_000_000.0
"""Event times are of long ago: on a slow machine maintenance would trim records that a test has yet to look at."""


class Stage:
    """A data directory with a log. Event time is what `now_ms` says."""

    def __init__(self, spark: SparkSession, directory: Path, **settings: Any) -> None:
        self.spark = spark
        self.now_ms = START_MS
        self.lake_dir = directory / "lake"
        self.checkpoint_dir = directory / "checkpoint"
        self.log_path = directory / "events.db"
        self.log = SqliteLog(self.log_path, stamps=stamps_of(lambda: self.now_ms))
        self.settings = FoldSettings(
            lake_dir=self.lake_dir,
            checkpoint_dir=self.checkpoint_dir,
            log_url=f"sqlite://{self.log_path}",
            scratch_dir=directory / "scratch",
            **{
                "trigger_ms": 0,
                "cores": 0.0,
                "liveness_interval_s": 0.0,
                "log_retention_hours": AGES_HOURS,
                **settings,
            },
        )
        self.query: FoldQuery | None = None

    # --- the log ---

    def append(self, *events: AnyEvent, after_ms: int = 1) -> int:
        """Append events, each so many ms after the one before; returns the last one's offset."""
        offset = 0
        for event in events:
            self.now_ms += after_ms
            offset = self.log.append([(routing_key(event), encode(event))])[0].offset
        return offset

    def write(self, records: Sequence[LogRecord]) -> int:
        """Append given records at their own event times; returns the last one's offset."""
        offset = 0
        for record in records:
            self.now_ms = record.event_time_ms
            offset = self.log.append([(record.key, record.payload)])[0].offset
        return offset

    def records(self) -> list[LogRecord]:
        """The whole log."""
        return self.log.read(0)

    # --- the query ---

    def start(self) -> None:
        """Start the query, or go on with it."""
        assert self.query is None
        self.query = FoldQuery(self.spark, self.settings)

    def stop(self) -> None:
        """Stop it."""
        if self.query is not None:
            self.query.stop()
            self.query = None

    def wait(self, offset: int) -> None:
        """Until everything up to an offset is folded and committed."""
        assert self.query is not None
        deadline = time.monotonic() + WAIT_S
        while self.query.writer.log_offset < offset:
            error = self.query.query.exception()
            assert error is None, error
            assert time.monotonic() < deadline, f"at {self.query.writer.log_offset}, waiting for {offset}"
            time.sleep(0.01)
        with self.query._committing:  # the writer knows the offset before it has written it
            pass

    def wait_idle(self) -> None:
        """Until nothing is left to do."""
        assert self.query is not None
        self.wait(max((one.offset for one in self.records()), default=0))
        self.query.query.processAllAvailable()

    def close(self) -> None:
        self.stop()
        self.log.close()
