# SPDX-License-Identifier: Apache-2.0
"""The process that forks Spark's Python workers: pyspark.daemon, with less memory.

Spark starts one for each kind of worker. Some kinds are needed only while a query starts. Their process ends after a
minute. If Spark needs it again, Spark finds that it is gone and starts another
(PythonWorkerFactory.createThroughDaemon).

Workers find no pandas. pyarrow and pyspark import it if it is there, which takes 25 MB and 0.3 s in each worker.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

from pyspark.daemon import manager

from runtime.no_pandas import without_pandas

_WORKERS_AT_START: Final = frozenset(
    f"pyspark.sql.worker.{name}" for name in ("lookup_data_sources", "create_data_source", "plan_data_source_read")
)
"""Kinds of workers that Spark needs only while a query starts."""
_START_S: Final = 60
"""Time after which the process for these kinds ends, in seconds."""


def main() -> None:
    """Fork workers until Spark ends, or until they are needed no more."""
    if _WORKERS_AT_START.intersection(sys.argv):
        signal.alarm(_START_S)  # SIGALRM ends this process. Its workers do not inherit the alarm.
    with without_pandas():
        manager()


if __name__ == "__main__":
    main()
