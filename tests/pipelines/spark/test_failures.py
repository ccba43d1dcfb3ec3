# SPDX-License-Identifier: Apache-2.0
"""What is said when a query has failed: one line of the many that Spark has for it."""

from __future__ import annotations

import pytest

from pipelines.main import cause
from pipelines.session import _NOISE

CONNECT = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] terminated
\tat org.apache.spark.sql.execution.streaming.runtime.StreamExecution.runStream(StreamExecution.scala:372)
Caused by: org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:230)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back
\t... 31 more
"""
SOURCE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Failed when Python streaming data source perform initialOffset: Traceback (most recent call last):
  File "python_streaming_source_runner.py", line 267, in main
    offset = initial_offset_func(reader)
  File "source.py", line 176, in initialOffset
    tail.check_readable_from(start)
schemas.errors.SetupError: the event log ends before offset 1. Restore it.
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1881)
"""
CALL = """Py4JJavaError: An error occurred while calling o269.load.
: java.io.IOException: Stream closed
\tat java.base/java.lang.ProcessBuilder$NullOutputStream.write(ProcessBuilder.java:445)
"""
IN_A_TASK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback (most recent call last):
  File "py4j/clientserver.py", line 619, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
  File "batch.py", line 80, in collect
py4j.protocol.Py4JJavaError: An error occurred while calling o578.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 11.0 failed 4 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
Caused by: java.lang.UnsatisfiedLinkError: /tmp/librocksdbjni1.so: failed to map segment from shared object
\tat java.base/jdk.internal.loader.NativeLibraries.load(Native Method)
"""


@pytest.mark.parametrize(
    ("details", "line"),
    [
        (CONNECT, "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back"),
        (SOURCE, "schemas.errors.SetupError: the event log ends before offset 1. Restore it."),
        (IN_A_TASK, "java.lang.UnsatisfiedLinkError: /tmp/librocksdbjni1.so: failed to map segment from shared object"),
        (CALL, "java.io.IOException: Stream closed"),
        ("[STREAM_FAILED] no more\nthan this", "[STREAM_FAILED] no more"),
        ("", "unknown"),
    ],
)
def test_the_cause_of_a_spark_failure_is_one_line(details: str, line: str) -> None:
    assert cause(details) == line


def test_frames_are_not_passed_on() -> None:
    kept = [line for line in (CONNECT + SOURCE + CALL).splitlines() if not _NOISE.match(line.encode())]
    assert not [line for line in kept if "\tat " in line or "File " in line or "more" in line.split()[-1:]]
    assert "schemas.errors.SetupError: the event log ends before offset 1. Restore it." in kept
