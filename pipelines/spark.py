"""The Spark session of the fold, of tests and of the analyst's examples: one place for its settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from deploy.jars import ensure

_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The planner overflowed the default stack in a trial (docs/performance.md).
    "spark.driver.extraJavaOptions": "-Xss4m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true",
    # Hadoop's own local file system starts a process, chmod, for every file it makes: fifty in a batch, which was more
    # than half of a batch's time (docs/performance.md). Spark prefers FileContext, which this one does not serve.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}


def session(
    name: str,
    *,
    driver_memory: str = "1g",
    shards: int = 2,
    kafka: bool = False,
    delta: bool = False,
    scratch_dir: Path | None = None,
) -> SparkSession:
    """A local session.

    Args:
        name: application name.
        driver_memory: JVM heap.
        shards: shuffle partitions, one task each.
        kafka: with the Kafka connector.
        delta: with Delta Lake's SQL, for readers.
        scratch_dir: where the JVM keeps temporary files; None for the system's place.
    """
    # Workers run in this interpreter, not in whatever python3 is on PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = [*(ensure("kafka-source") if kafka else ()), *(ensure("delta") if delta else ())]
    builder = SparkSession.builder.appName(name).master(f"local[{max(2, min(shards, os.cpu_count() or 2))}]")
    for key, value in _OPTIONS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.driver.extraClassPath", ":".join(map(str, ensure("local-fs"))))
    builder = builder.config("spark.driver.memory", driver_memory).config("spark.sql.shuffle.partitions", str(shards))
    if scratch_dir is not None:
        builder = builder.config("spark.local.dir", str(scratch_dir))
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    if delta:
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
