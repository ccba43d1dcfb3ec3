# SPDX-License-Identifier: Apache-2.0
"""Executors of a cluster: wait for the first one, and check that they meet the needs of the fold."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import structlog
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from eventlog.open import open_tail
from pipelines.cluster.master import Cluster
from pipelines.shard_fold import ShardFold
from schemas.errors import RoutelakeError, SetupError, UnavailableError

log = structlog.get_logger("routelake.fold")

WAIT_S: Final = 60.0
"""Seconds without executors after which the fold ends, so that its supervisor starts it again. A restarted master does
not know the fold, and kills its executors."""

_PYTHON_ERROR: Final = re.compile(r"^(?:ModuleNotFoundError|ImportError): (.*)$", re.MULTILINE)
_VERSIONS: Final = re.compile(r"PYTHON_VERSION_MISMATCH\]\s*(.*?)(?:\n|$)")
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]*)"')


def count(context: SparkContext) -> int:
    """Return the number of executors."""
    status = context._jsc.sc().getExecutorMemoryStatus()
    return int(status.size()) - 1  # the driver is included


def is_over(context: SparkContext) -> bool:
    """Return True if Spark has stopped, because the master has removed the application."""
    return bool(context._jsc.sc().isStopped())


def wait_for_executors(context: SparkContext, cluster: Cluster, stop: Callable[[float], bool]) -> bool:
    """Wait for the first executor. Return False after a stop.

    Raises:
        UnavailableError: no executor registered within `WAIT_S`.
    """
    deadline = time.monotonic() + WAIT_S
    while count(context) < 1:
        if stop(0.2):
            return False
        if is_over(context) or time.monotonic() > deadline:
            raise UnavailableError(no_executors(cluster))
    return True


def no_executors(cluster: Cluster) -> str:
    """Message about missing executors."""
    asked = cluster.config.get("spark.executor.memory", "1g")
    look = "`kubectl get pods`" if cluster.is_kubernetes else "the master's web page"
    return (
        f"no executor from {cluster.master} for {WAIT_S:.0f} s. Look in {look} for workers with a core and "
        f"{asked} of free memory. Start some, or ask for less with spark.executor.memory and spark.executor.cores in "
        "--spark-config"
    )


def check(spark: SparkSession, cluster: Cluster, log_url: str) -> int:
    """Check that executors meet the needs of the fold. Return the number of their cores.

    Raises:
        SetupError: an executor does not. The message names the executor and what it lacks.
    """
    context = spark.sparkContext
    cores = int(context.defaultParallelism)
    token = f".routelake-{os.getpid()}-{time.time_ns()}"
    seen = cluster.shared_dir / token
    seen.write_text(token)
    try:
        tasks = context.parallelize(range(2 * cores), 2 * cores)
        answers = tasks.mapPartitions(_Trial(str(seen), token, log_url)).collect()
    except Py4JJavaError as error:
        raise SetupError(_what_is_missing(str(error), cluster)) from error
    finally:
        seen.unlink(missing_ok=True)
    if objections := sorted({answer for answer in answers if answer}):
        raise SetupError(objections[0])
    log.info("Spark executors", master=cluster.master, executors=count(context), cores=cores)
    return cores


class _Trial:
    """Check that runs in an executor. It is pickled by name, so that a worker must import this module and the fold."""

    def __init__(self, seen: str, token: str, log_url: str) -> None:
        self._seen, self._token, self._log_url = seen, token, log_url

    def __call__(self, _rows: Iterable[int]) -> Iterator[str]:
        """Yield problems, if any."""
        assert callable(ShardFold)
        where = f"the executor on {socket.gethostname()}"
        seen = Path(self._seen)
        try:
            there = seen.read_text() == self._token
            with tempfile.TemporaryFile(dir=seen.parent) as own:
                own.write(b"-")
        except OSError as error:
            yield (
                f"{where} cannot use {seen.parent}: {error.strerror}. Set --shared-dir to a folder that the fold and "
                "all executors can write under the same path."
            )
            return
        if not there:
            yield f"{where} sees another {seen.parent} than the fold. Set --shared-dir to a folder that both see."
            return
        try:
            with closing(open_tail(self._log_url)) as tail:
                tail.next_offset()
        except (RoutelakeError, OSError) as error:
            yield f"{where} cannot read the event log: {error}"


def _what_is_missing(text: str, cluster: Cluster) -> str:
    python = cluster.config.get("spark.pyspark.python", sys.executable)
    if match := _NO_PYTHON.search(text):
        return (
            f"the workers of {cluster.master} have no Python at {match[1]}. Install routelake's there "
            "(requirements.lock), or set spark.pyspark.python in --spark-config; the fold uses it, too."
        )
    if match := _VERSIONS.search(text):
        return f"the workers of {cluster.master} have a different Python at {python}: {match[1].strip()}"
    if match := _PYTHON_ERROR.search(text):
        return f"the Python of the workers, {python}, lacks a package: {match[1]}. Install requirements.lock there."
    return (
        f"the executors of {cluster.master} do not work: {text.strip().splitlines()[0] if text.strip() else 'unknown'}"
    )
