# SPDX-License-Identifier: Apache-2.0
"""Spark session of the fold, of tests and of the analyst's examples, with its settings in one place.

Executors get the packages as one archive of byte code, so that workers do not compile.
"""

from __future__ import annotations

import locale
import os
import re
import shlex
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import IO, Any, Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pipelines.cluster.master import AUTHENTICATE, Cluster, own_address, spark_options
from runtime import class_data
from runtime.jars import ensure
from runtime.supervised_tasks import critical_thread
from schemas.errors import SetupError, UnavailableError

ROOMS: Final = ("eventlog", "lake", "nameserver", "pipelines", "runtime", "schemas")
"""Packages of routelake that Spark's workers import."""


def write_archive(folder: Path) -> Path:
    """Write the archive for the Python version of this process. Spark requires the same version of its workers.

    Args:
        folder: folder of the archive, which is created if missing.

    Raises:
        OSError: the archive cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "routelake-code.zip"
    with zipfile.PyZipFile(str(path), "w", zipfile.ZIP_DEFLATED, optimize=sys.flags.optimize) as archive:
        for room in ROOMS:
            archive.writepy(str(_ROOT / room))
    return path


_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_WORKER_PYTHON: Final = Path(__file__).with_name("spark_python")
_ROOT: Final = Path(__file__).parents[1]
"""Folder in which workers find routelake. pyspark is installed."""

_ATTEMPTS: Final = 4
"""Maximum tries of a task, as on a cluster. So a killed worker (out of memory) fails its task and not the query."""

_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The planner overflowed the default stack in a trial. The JVM mainly moves data, so its second compiler takes
    # seconds at the start without a gain. The young generation is small, as it would otherwise fill 160 MB before any
    # of it is reused.
    "spark.driver.extraJavaOptions": (
        "-Xss4m -XX:+UseSerialGC -Xmn32m -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true "
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    ),
    # Hadoop's local file system starts a process, chmod, for every new file. Fifty of them in a batch took more than
    # half of its time (reports/performance.md). Spark prefers FileContext, which this file system does not support.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A batch without records would have no effect, as the state depends on the event log alone (ADR 24).
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.adaptive.enabled": "false",
    # Expressions are interpreted. The expression that drops late records contains the watermark, which differs in each
    # batch, so each batch would compile it again. A batch has a few hundred records at most (reports/performance.md).
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.worker.reuse": "true",
    # The driver has two ports for remote executors, which cannot be closed. Clients of these ports need a secret.
    "spark.authenticate": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}


def session(
    name: str,
    *,
    driver_memory: str = "1g",
    shards: int = 2,
    delta: bool = False,
    scratch_dir: Path | None = None,
    jvm_options: str | None = None,
    cluster: Cluster | None = None,
) -> SparkSession:
    """Start a Spark session.

    Args:
        name: application name.
        driver_memory: heap of the JVM, such as ``1g``.
        shards: number of shuffle partitions, with one task each.
        delta: include Delta Lake's SQL, for readers.
        scratch_dir: folder for temporary files of the JVM, or None for the system's folder. The caller deletes it, as a
            killed JVM leaves 17 MB there.
        jvm_options: further options of the JVM, with a leading space, or None for its class data archive, if it exists.
        cluster: cluster of the executors, or None to run them in the JVM of this session.

    Raises:
        SetupError: the JVM does not start, or has no folder for temporary files.
        OSError: the scratch folder cannot be created.
        UnavailableError: the master of the cluster does not answer, or refuses the application.
    """
    driver_host = "127.0.0.1" if cluster is None else own_address(cluster)
    # Workers run in this interpreter, not in the python3 on PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(_WORKER_PYTHON)
    os.environ["ROUTELAKE_WORKER_PYTHON"] = sys.executable
    os.environ["ROUTELAKE_WORKER_PYTHONPATH"] = str(_ROOT)
    if cluster is None:
        os.environ.setdefault("SPARK_LOCAL_IP", driver_host)
    else:
        os.environ["SPARK_LOCAL_IP"] = driver_host  # the start script sets 127.0.0.1, which remote workers cannot reach
    if locale.nl_langinfo(locale.CODESET).upper().replace("-", "") != "UTF8":
        os.environ["LC_ALL"] = "C.UTF-8"  # a JVM cannot open a file with a name outside its locale
    jars = ensure("delta") if delta else []
    conf = SparkConf(loadDefaults=False).setAppName(name).setAll(list(_OPTIONS.items()))
    classes = class_data.options() if jvm_options is None else jvm_options
    place = "" if scratch_dir is None else f' "-Djava.io.tmpdir={_quoted(place_for_libraries(scratch_dir))}"'
    conf.set("spark.driver.extraJavaOptions", _OPTIONS["spark.driver.extraJavaOptions"] + place + classes)
    conf.setMaster(f"local[{max(2, min(shards, os.cpu_count() or 2))},{_ATTEMPTS}]")
    local_fs = ensure("local-fs")
    conf.set("spark.driver.extraClassPath", ":".join(map(str, local_fs)))
    conf.set("spark.driver.memory", driver_memory)
    conf.set("spark.sql.shuffle.partitions", str(shards))
    conf.set("spark.hadoop.fs.permissions.umask-mode", f"{_umask():03o}")  # Hadoop sets the modes of its files itself
    if scratch_dir is not None:
        conf.set("spark.local.dir", str(scratch_dir))
        conf.set("spark.sql.warehouse.dir", str(scratch_dir / "warehouse"))  # else in the current directory
    if jars:
        conf.set("spark.jars", ",".join(map(str, jars)))
    if delta:
        conf.set("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        conf.set("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        # By default, Delta reads the log of a table in 50 tasks. The tables of a lake have only some thousand files.
        conf.set("spark.databricks.delta.snapshotPartitions", "1")
    if cluster is not None:
        _use(cluster, conf, driver_host, local_fs)
    gateway = _launch(conf) if SparkContext._gateway is None else None
    try:
        if gateway is not None:
            SparkContext(conf=conf, gateway=gateway)
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except Py4JJavaError as error:
        if cluster is None or gateway is None:
            raise
        why = _not_taken(cluster, error)
        gateway.proc.kill()
        raise UnavailableError(why) from None
    spark.sparkContext.setLogLevel("ERROR")
    if cluster is not None:
        spark.sparkContext.addPyFile(str(write_archive(cluster.shared_dir / "code")))
    return spark


def place_for_libraries(scratch_dir: Path) -> Path:
    """Find a folder for libraries that the JVM unpacks and loads, mainly RocksDB. Its file system must allow execution.

    The system's folder is often mounted with noexec. Otherwise each start would leave 17 MB there.

    Raises:
        SetupError: no such folder was found.
        OSError: the folder cannot be created.
    """
    own, system = scratch_dir / "tmp", Path(tempfile.gettempdir())
    own.mkdir(parents=True, exist_ok=True)
    for folder in (own, system):
        if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
    raise SetupError(
        f"{own} and {system} are mounted noexec, so Spark cannot load RocksDB. Mount one of them with exec, or set "
        "TMPDIR to a folder that is"
    )


def _quoted(path: Path) -> str:
    """Escape a path for double quotes in options of a JVM."""
    return str(path).replace("\\", r"\\").replace('"', r"\"")


def _launch(conf: SparkConf) -> Any:  # noqa: ANN401 (untyped there)
    """Start the JVM. Raises SetupError."""
    read_end, write_end = os.pipe()
    critical_thread(_pass_on, "spark-output", (os.fdopen(read_end, "rb"),)).start()
    try:
        # Before the JVM ends, it prints its error to the pipe.
        return launch_gateway(conf, {"stdout": write_end, "stderr": write_end})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise SetupError(
            "Spark's JVM ended during its start. Its output is above. If it was not stopped, correct JAVA_HOME (Java "
            "17 or newer) or --driver-memory."
        ) from error
    finally:
        os.close(write_end)


def _use(cluster: Cluster, conf: SparkConf, driver_host: str, jars: list[Path]) -> None:
    """Configure executors of a cluster. Its file may have a secret, so its properties go on no command line."""
    python = cluster.config.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_PYTHON"] = python  # other machines do not have the script above
    if cluster.config_file is not None:
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {shlex.quote(str(cluster.config_file))} pyspark-shell"
    for name, value in spark_options(cluster, driver_host, jars).items():
        conf.set(name, value)
    conf.setMaster(cluster.master)


def _not_taken(cluster: Cluster, error: Py4JJavaError) -> str:
    said = str(error.java_exception.getMessage() if error.java_exception is not None else error)
    return (
        f"{cluster.master} refused the fold: {said.strip().splitlines()[0]} Look whether its {AUTHENTICATE} and "
        f"secret are those of --spark-config, and whether it is of Spark's version {pyspark.__version__}; what it said "
        "itself stands in its log."
    )


def _umask() -> int:
    """Return the umask of this process."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_NOISE: Final = re.compile(
    rb"\s"
    rb"|WARNING: Using incubator modules"
    rb"|(Starting )?(Streaming )?TransformWithState\w* Python worker"
    rb"|Streaming TransformWithState"
    rb"|Setting default log level|To adjust logging level"
)
"""Lines that the JVM and Spark's workers print at every start, and frames of stack traces. No reader needs them."""


def _pass_on(output: IO[bytes]) -> None:
    """Copy the output of the JVM to standard error, without the lines that no reader needs."""
    with output:
        for line in output:
            if not _NOISE.match(line):
                os.write(2, line)
