# SPDX-License-Identifier: Apache-2.0
"""Writes class data (`runtime.class_data`): Spark's after a fold's first batches, RocketMQ's after a broker's start.

    python -m dev.support.class_data

`./routelake test` does so during the tests of a whole run, if the files are not there. It takes as long as those starts,
and some seconds more.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from dev.peers.broker import StockBroker
from dev.peers.class_data import archive_of
from dev.peers.rocketmq import StockNameServer
from dev.support import events as make
from eventlog.sqlite.log import SqliteLog
from pipelines.job import FoldQuery, FoldSettings
from pipelines.session import session
from runtime import class_data
from schemas.events import encode, routing_key

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
            jvm_options=f' "-XX:ArchiveClassesAtExit={classes}" {" ".join(class_data.QUIET)}',
        )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        url = f"sqlite://{work / 'events.db'}"
        settings = FoldSettings(work / "lake", work / "checkpoint", url, work / "scratch", trigger_ms=0, cores=0.0)
        with closing(SqliteLog(work / "events.db")) as log:
            query = FoldQuery(spark, settings)
            for event in (make.register(), make.put("n", "k"), make.clock()):
                log.append([(routing_key(event), encode(event))])
                query.query.processAllAvailable()
            query.stop()
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_EXIT_S)
    classes.replace(target)


def record_broker(target: Path) -> None:
    """Start a broker that writes down what it has loaded when it ends.

    Args:
        target: Becomes the file, whole or not at all.
    """
    classes = target.with_suffix(f".{os.getpid()}")
    options = (f"-XX:ArchiveClassesAtExit={classes}", *class_data.QUIET)
    with StockNameServer() as server, StockBroker(server.address, java_options=options) as broker:
        broker.process.terminate(_EXIT_S)
    classes.replace(target)


def main() -> None:
    """Write what is not there; Spark's of another Java or other jars goes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and take away what was written
    spark, rocketmq = class_data.archive(), archive_of("rocketmq")
    if not spark.exists():
        for old in spark.parent.glob(class_data.PATTERN):
            old.unlink()
        record(spark)
    if not rocketmq.exists():
        rocketmq.parent.mkdir(parents=True, exist_ok=True)
        record_broker(rocketmq)
    for each in (spark, rocketmq):
        print(f"{each}: {each.stat().st_size // 1024**2} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
