# SPDX-License-Identifier: Apache-2.0
"""Writes the class data of Spark's JVM (`deploy.class_data`): what a fold has loaded when its first batches are committed.

    python -m tests.support.class_data

`./routelake test` does so beside the tests of a whole run, if the file is not there. It takes as long as a fold's start and a
few seconds more.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from deploy import class_data
from pipelines.job import FoldQuery, FoldSettings
from pipelines.log.sqlite import SqliteLog
from pipelines.spark import session
from schemas.events import encode, routing_key
from tests.support import events as make

_EXIT_S = 120.0
"""Until the JVM has written the file and ended: it takes a few seconds on a machine that is not busy."""


def record(target: Path) -> None:
    """Fold some events in a JVM that writes down what it has loaded when it ends.

    Args:
        target: Becomes the file, whole or not at all.
    """
    classes = target.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="routelake-class-data-") as folder:
        work = Path(folder)
        spark = session(
            "routelake-class-data",
            scratch_dir=work / "scratch",
            jvm_options=f' "-XX:ArchiveClassesAtExit={classes}" -Xlog:cds=off -Xlog:cds+dynamic=off',
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        url = f"sqlite://{work / 'events.db'}"
        settings = FoldSettings(work / "lake", work / "checkpoint", url, work / "scratch", trigger_ms=0)
        with closing(SqliteLog(work / "events.db")) as log:
            query = FoldQuery(spark, settings, None)
            for event in (make.register(), make.put("n", "k"), make.clock()):
                log.append([(routing_key(event), encode(event))])
                query.query.processAllAvailable()
            query.stop()
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_EXIT_S)
    classes.replace(target)


def main() -> None:
    """Write it, unless it is there; what was left of another Java or other jars goes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and take away what was written
    target = class_data.archive()
    if target.exists():
        return
    for old in target.parent.glob(class_data.PATTERN):
        old.unlink()
    record(target)
    print(f"{target.name}: {target.stat().st_size // 1024**2} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
