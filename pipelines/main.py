"""The fold process: holds the lake's lock, runs the streaming query until told to stop."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time

import structlog
from pyspark.sql import SparkSession

from deploy.children import give_way, on_parent_exit
from pipelines.job import FoldQuery, FoldSettings, spark_session
from pipelines.tables.ddl import check_format, lock_lake

log = structlog.get_logger("routelake.fold")

_LOOK_S = 2.0
"""How often the query is asked whether it dropped records."""


def run_fold(settings: FoldSettings) -> int:
    """Run the fold until SIGTERM, SIGINT or the parent's end.

    Returns:
        0 after a stop, 1 when the query failed (a supervisor starts it again: nothing is lost).

    Raises:
        SetupError: it cannot start as things are.
    """
    give_way()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    on_parent_exit(stop.set)
    check_format(settings.lake_dir)
    lock = lock_lake(settings.lake_dir)
    shutil.rmtree(settings.scratch_dir, ignore_errors=True)
    spark: SparkSession | None = None
    try:
        spark = spark_session(settings)
        query = FoldQuery(spark, settings, None)
        next_look_s = 0.0
        log.info("folding", log=settings.log_url, lake=str(settings.lake_dir), epoch=query.writer.epoch)
        while not stop.wait(0.2):
            if not query.query.isActive:
                log.error("the streaming query ended", error=str(query.query.exception()))
                return 1
            if time.monotonic() >= next_look_s:
                next_look_s = time.monotonic() + _LOOK_S
                if dropped := query.dropped_as_late():
                    query.hold()
                    log.error(
                        "the clock of the event log went back: records were not folded",
                        records=dropped,
                        advice="see docs/operations.md, 'The stream stands still'",
                    )
                    return 1
        query.hold()
        log.info("stopped", epoch=query.writer.epoch, log_offset=query.writer.log_offset)
        return 0
    finally:
        if spark is not None:
            end_jvm(spark)
        lock.close()


def end_jvm(spark: SparkSession) -> None:
    """End Spark's JVM without waiting for a batch under way: it is repeated at the next start.

    The query is not stopped first: that interrupts the batch at a random place and only prints what was interrupted.
    What the JVM leaves in its scratch folder goes at the next start (FoldSettings.scratch_dir).
    """
    gateway = spark.sparkContext._gateway
    # What this process's threads print about the lost connection from here on is no news to anybody.
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()


def exit_now(code: int) -> None:
    """End the process without waiting for Spark's Python threads, which can abort it at interpreter exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
