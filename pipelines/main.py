# SPDX-License-Identifier: Apache-2.0
"""The fold process. It holds the lock of the lake and runs the streaming query until it is stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
import traceback
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eventlog.base import check_end
from eventlog.open import open_log
from eventlog.urls import is_kafka
from lake import checkpoint
from lake.commits import last_commit
from lake.delta.ddl import check_format, lock_lake, open_lake, write_whole
from lake.lease import LeasedLake
from lake.publisher import FencedError, Publisher
from lake.write.synced import sync_lake
from ops.doctor.rollback import go_back_to_whole
from pipelines.cluster.executors import WAIT_S, check, count, is_over, no_executors, wait_for_executors
from pipelines.cluster.master import Cluster
from pipelines.job import FoldQuery, FoldSettings, spark_session, with_shards
from runtime.children import give_way, on_parent_exit
from runtime.machine import raise_file_limit
from runtime.process import EXIT_FAILED, StopSignal, refusal, tell_ready
from runtime.supervised_tasks import on_death, watch_threads
from runtime.version import PROGRAM
from schemas.errors import RoutelakeError, SetupError, one_line
from schemas.tables import FOLD_FAILURE_FILE

if TYPE_CHECKING:
    from lake.announce import Announcer

log = structlog.get_logger("routelake.fold")

_LOOK_S: Final = 2.0
"""Seconds between checks whether the query dropped records."""

_FIRST_PAUSE_S: Final = 0.5
_MAX_PAUSE_S: Final = 10.0
_FAILURES_IN_A_ROW: Final = 8
"""Maximum number of failures without a batch in between. Then the fold ends and its supervisor starts a new JVM."""

STATE_LOST: Final = "CANNOT_LOAD_STATE_STORE"
"""Start of Spark's messages about missing or damaged files of the checkpoint."""
_STATE_TRIES: Final = 3
"""Number of errors about the checkpoint after which a new one is made. After `_FAILURES_IN_A_ROW` errors of any kind, a
new one is made, too. Spark has many messages for a damaged checkpoint, and a new checkpoint loses no data."""

_CAUSE: Final = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*([^ \t\n].*)")
_ERROR_OF_JAVA: Final = f"{Py4JJavaError.__module__}.{Py4JJavaError.__name__}: "
"""Start of a Python traceback line for an error in the JVM. The traceback names the error in a later line."""
_JAVA_ERROR: Final = re.compile(r"^: (.*)$", re.MULTILINE)
CLOCK_WENT_BACK: Final = "the clock of the event log went back"
STILL_COMMITS: Final = "a commit of the previous query still runs"
NO_EXECUTORS: Final = "the fold has no executors"
_HOPELESS: Final = (CLOCK_WENT_BACK, STILL_COMMITS, NO_EXECUTORS, "java.lang.OutOfMemoryError", "Py4JNetworkError")
"""Errors that a new query in this JVM would also meet."""
_SETUP_ERROR: Final = f"{SetupError.__module__}.{SetupError.__name__}: "
"""Start of a Python traceback line for a SetupError. Processes of Spark read the event log. Their errors reach this
process through the JVM as text, so the name in the traceback is the only sign of the type."""


def run_fold(settings: FoldSettings) -> int:
    """Run the fold until SIGTERM, SIGINT or the end of the parent process.

    Returns:
        Exit code. 0 after a stop. 1 after a failure: a supervisor starts the fold again, and no data is lost. 2 if the
        fold cannot continue without a change by the operator. The reason was printed and is in FOLD_FAILURE_FILE.

    Raises:
        SetupError: the fold cannot start without a change by the operator.
    """
    raise_file_limit()
    stop = StopSignal().listen()
    deaths: list[str] = []
    starts_spark = threading.Event()

    def end(what: str, _error: BaseException) -> None:
        deaths.append(what)
        stop.set()

    def orphaned() -> None:
        if starts_spark.is_set():  # no batch runs yet, and the next start waits for the end of this process
            os._exit(EXIT_FAILED)
        stop.set()

    watch_threads()
    forget = on_death(end)
    on_parent_exit(orphaned)
    try:
        code = _run(settings, stop, starts_spark)
    finally:
        forget()
    return EXIT_FAILED if deaths else code


def _run(settings: FoldSettings, stop: StopSignal, starts_spark: threading.Event) -> int:
    """Body of `run_fold`. The event is set while Spark starts."""
    if not settings.lake_url:
        check_format(settings.lake_dir)
    lock = lock_lake(settings.lake_dir)
    shutil.rmtree(settings.scratch_dir, ignore_errors=True)
    spark: SparkSession | None = None
    held: LeasedLake | None = None
    announcer: Announcer | None = None
    try:
        if settings.lake_url:
            held = LeasedLake.at(settings.lake_url, settings.lake_dir)
            if settings.standby:
                if settings.cluster is None:  # a standby session would occupy executors of the cluster
                    spark = spark_session(settings)  # takes longer than the rest of a takeover
                stop.listen()
                tell_ready()
            forget = partial(checkpoint.remove, settings.checkpoint_dir)
            if not held.take(stop.wait, standby=settings.standby, from_another=forget):
                return 0
            announcer = _announcer(settings.log_url, held.publisher)
        # Check before the JVM starts, so that a refusal is fast.
        if not settings.lake_url:
            go_back_to_whole(settings.lake_dir, settings.checkpoint_dir, settings.log_url)
        tables = open_lake(settings.lake_dir, retention_days=settings.retention_days)
        if not settings.lake_url:
            sync_lake(settings.lake_dir, {name: table.version() for name, table in tables.items()})
        _check_log(settings.log_url, settings.lake_dir)
        starts_spark.set()
        if stop.wait(0):  # the parent ended before `starts_spark` was set
            return 0
        spark = spark or spark_session(settings)
        starts_spark.clear()
        stop.listen()  # Spark has replaced the handler of SIGINT
        if settings.cluster is not None:
            if not wait_for_executors(spark.sparkContext, settings.cluster, stop.wait):
                return 0
            settings = with_shards(spark, settings, check(spark, settings.cluster, settings.log_url))
        return _fold(spark, settings, stop, None if held is None else held.publisher)
    except RoutelakeError as error:
        _note_failure(settings.lake_dir, str(error), str(error))
        return refusal(error)  # before `end_jvm` closes the standard streams
    except Exception as error:
        if stop.wait(0):
            return 0
        text = f"{type(error).__name__}: {one_line(error)}"
        _note_failure(settings.lake_dir, text, traceback.format_exc())
        log.error("fold stopped by an unexpected error", error=text, details=FOLD_FAILURE_FILE)
        return EXIT_FAILED
    finally:
        if held is not None:
            held.close()
        if announcer is not None:
            announcer.stop()
        if spark is not None:
            end_jvm(spark)
        lock.close()


def _announcer(log_url: str, publisher: Publisher) -> Announcer | None:
    """Return the announcer of epochs to gateways, or None if the event log is not in Kafka."""
    if not is_kafka(log_url):
        return None
    from lake.announce import Announcer

    announcer = Announcer(log_url)
    publisher.on_published = announcer.announce
    announcer.start()
    return announcer


def _fold(spark: SparkSession, settings: FoldSettings, stop: StopSignal, publisher: Publisher | None) -> int:
    """Run the query. After a failure, start it again in the same JVM from the checkpoint, so no event counts twice."""
    failures, pause_s = 0, _FIRST_PAUSE_S
    progress = _Progress()
    while True:
        progress.made = False
        details = _query(spark, settings, stop, progress, publisher)
        if publisher is not None and publisher.lost is not None:
            raise FencedError(publisher.lost)
        if details is None or stop.wait(0):  # a stop of all processes also ends the JVM, which fails the query
            return 0
        reason = cause(details)
        _note_failure(settings.lake_dir, reason, details)
        if _SETUP_ERROR in details:
            raise SetupError(reason.removeprefix(_SETUP_ERROR))
        if progress.made:
            failures, pause_s = 0, _FIRST_PAUSE_S
        failures += 1
        is_hopeless = failures >= _FAILURES_IN_A_ROW or any(word in details for word in _HOPELESS)
        is_of_checkpoint = STATE_LOST in details or str(settings.checkpoint_dir) in details
        if failures == _FAILURES_IN_A_ROW or (is_of_checkpoint and failures == _STATE_TRIES):
            log.warning("checkpoint is unusable: rebuilding it from the tables", reason=reason)
            checkpoint.remove(settings.checkpoint_dir)
        if CLOCK_WENT_BACK in details:
            checkpoint.remove(settings.checkpoint_dir)  # it is past what is missing
        log.error(
            "streaming query failed; the fold stops" if is_hopeless else "streaming query failed; starting another",
            error=reason,
            details=FOLD_FAILURE_FILE,
            advice=f"if this repeats, run {PROGRAM} doctor",
        )
        if is_hopeless:
            return EXIT_FAILED
        if stop.wait(pause_s):
            return 0
        pause_s = min(pause_s * 2, _MAX_PAUSE_S)


class _Progress:
    """Progress of a query. After its first batch the fold lowers its own priority.

    The start has normal priority, as a start at low priority takes minutes on a busy machine.
    """

    def __init__(self) -> None:
        self.made = False

    def look(self, query: FoldQuery) -> None:
        """Check the progress of the query. Called regularly."""
        if not self.made and query.query.lastProgress:
            self.made = True
            give_way()


class _Executors:
    """Monitors the executors of the cluster."""

    def __init__(self, spark: SparkSession, cluster: Cluster) -> None:
        self._context, self._cluster = spark.sparkContext, cluster
        self._seen_s = time.monotonic()

    def gone(self) -> str | None:
        """Return the reason to stop if there were no executors for too long, otherwise None."""
        if is_over(self._context):
            return f"{self._cluster.master} has removed it"
        if count(self._context):
            self._seen_s = time.monotonic()
        return no_executors(self._cluster) if time.monotonic() - self._seen_s > WAIT_S else None


def _query(
    spark: SparkSession, settings: FoldSettings, stop: StopSignal, progress: _Progress, publisher: Publisher | None
) -> str | None:
    """Run one query. Return the full reason for its end, or None after a stop."""
    try:
        query = FoldQuery(spark, settings, publisher)
    except (PySparkException, Py4JError) as error:
        return f"{type(error).__name__}: {error}"
    tell_ready()
    lake = settings.lake_url or str(settings.lake_dir)
    log.info("fold is running", log=settings.log_url, lake=lake, epoch=query.writer.epoch)
    next_look_s = 0.0
    executors = None if settings.cluster is None else _Executors(spark, settings.cluster)
    while query.query.isActive:
        if stop.wait(0.2):
            query.hold()
            log.info("stopped", epoch=query.writer.epoch, log_offset=query.writer.log_offset)
            return None
        if publisher is not None and publisher.lost is not None:
            query.hold()
            return publisher.lost
        if time.monotonic() < next_look_s:
            continue
        next_look_s = time.monotonic() + _LOOK_S
        progress.look(query)
        if executors is not None and (gone := executors.gone()):
            query.hold()
            return f"{NO_EXECUTORS}: {gone}"
        if dropped := query.dropped_as_late():
            query.hold()
            where = "docs/how-to/operate/fold-stopped.md"
            return f"{CLOCK_WENT_BACK}: {dropped} records were not processed ({where})"
    failed = query.query.exception()
    if not query.hold():
        return f"{STILL_COMMITS}: {failed}"
    query.stop()
    return "\n".join(filter(None, (str(failed), getattr(failed, "_stackTrace", None))))


def cause(details: str) -> str:
    """Extract the relevant line of Spark's message for a failed query: the Python error, or the innermost cause."""
    found = (
        [line for line in _PYTHON_ERROR.findall(details) if not line.startswith(_ERROR_OF_JAVA)]
        or _CAUSE.findall(details)
        or _JAVA_ERROR.findall(details)
        or details.splitlines()[:1]
    )
    return found[-1].strip() if found else "unknown"


def _check_log(log_url: str, lake_dir: Path) -> None:
    """Refuse an event log that ends before the tables. Raises SetupError."""
    last = last_commit(lake_dir)
    if last is None:
        return
    with closing(open_log(log_url)) as event_log:
        check_end(event_log.end(), last.log_offset)


def _note_failure(lake_dir: Path, reason: str, details: str) -> None:
    """Write the failure to a file for gateways (`/readyz`) and operators."""
    failure = {"timeMillis": time.time_ns() // 1_000_000, "error": reason, "details": details}
    with suppress(OSError):  # the disk may be the cause of the failure
        write_whole(lake_dir / FOLD_FAILURE_FILE, json.dumps(failure, indent=2))


def end_jvm(spark: SparkSession) -> None:
    """End Spark's JVM without waiting for the current batch, which the next start repeats.

    The query is not stopped first, as that interrupts the batch at a random place and only prints error messages. The
    next start deletes the files in the JVM's scratch folder (FoldSettings.scratch_dir).
    """
    gateway = spark.sparkContext._gateway
    # From here on, threads of this process print errors about the lost connection, which no reader needs.
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if gateway is not None:
        gateway.proc.kill()
        gateway.proc.wait()
