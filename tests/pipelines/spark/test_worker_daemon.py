# SPDX-License-Identifier: Apache-2.0
"""Spark's Python workers: what they load, and that Spark goes on when a process that forks some of them has ended."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.support.events import register, register_topic
from runtime.procfs import threads_below
from tests.pipelines.spark.harness import Stage

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


def processes(kind: str) -> list[int]:
    """Those that `pipelines.worker_daemon` forks for a kind of worker, and itself."""
    found = []
    for pid in threads_below(os.getpid()):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"pipelines.worker_daemon" in words and kind.encode() in words:
                found.append(pid)
    return found


def test_workers_fold_without_pandas_and_a_query_starts_after_the_daemons_of_the_last_start_have_ended(
    stage: Stage,
) -> None:
    stage.start()
    stage.wait(stage.append(register()))
    folding = processes("pyspark.worker")
    assert folding
    for pid in folding:
        assert "/pandas/" not in Path(f"/proc/{pid}/maps").read_text()
    stage.stop()
    at_start = processes("pyspark.sql.worker.create_data_source")
    for pid in at_start:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGALRM)  # as its alarm does after a minute
    wait_until(lambda: not set(at_start).intersection(processes("")), 30.0, "the daemons to end")
    stage.start()
    stage.wait(stage.append(register_topic("A")))
