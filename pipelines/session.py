# SPDX-License-Identifier: Apache-2.0
"""The Spark session of the fold, of tests and of the analyst's examples: one place for its settings.

Executors get the packages as one archive of byte code, so that workers compile nothing.
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
"""What Spark's workers import, of ours."""


def write_archive(folder: Path) -> Path:
    """Write the archive; for the Python of this process, which Spark asks of its workers, too.

    Args:
        folder: where it goes, made if need be.

    Raises:
        OSError: it cannot be written.
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
"""Where workers find routelake; pyspark is installed."""

_ATTEMPTS: Final = 4
"""Of a task, as on a cluster: a worker that was killed (out of memory) fails its task, not the query."""

_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The planner overflowed the default stack in a trial. The JVM only carries things to and fro:
    # its second compiler costs seconds at the start, and gains nothing. Its young generation is small: it would fill
    # 160 MB before it uses any of them again.
    "spark.driver.extraJavaOptions": (
        "-Xss4m -XX:+UseSerialGC -Xmn32m -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true "
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    ),
    # Hadoop's own local file system starts a process, chmod, for every file it makes: fifty in a batch, which was more
    # than half of a batch's time (reports/performance.md). Spark prefers FileContext, which this one does not serve.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A batch without records would change nothing: the state depends on the event log alone (ADR 24).
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.adaptive.enabled": "false",
    # Expressions are interpreted: the one that drops late records has the watermark in its code, which is another in
    # each batch, so each batch compiled it anew. A batch is a few hundred records at most; reports/performance.md.
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.worker.reuse": "true",
    # The driver has two ports for executors elsewhere, which cannot be closed: who asks there needs a secret.
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
    """A session.

    Args:
        name: application name.
        driver_memory: JVM heap.
        shards: shuffle partitions, one task each.
        delta: with Delta Lake's SQL, for readers.
        scratch_dir: where the JVM keeps temporary files; None for the system's place. Whoever gives one deletes it: a
            JVM that is killed leaves 17 MB there.
        jvm_options: more of the JVM's, with a space before them; None for its class data, if there is any.
        cluster: where its executors are; None: in its own JVM.

    Raises:
        SetupError: the JVM does not start, or has no place for temporary files.
        OSError: the scratch folder cannot be made.
        UnavailableError: the cluster's master does not answer, or does not take us.
    """
    driver_host = "127.0.0.1" if cluster is None else own_address(cluster)
    # Workers run in this interpreter, not in whatever python3 is on PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(_WORKER_PYTHON)
    os.environ["ROUTELAKE_WORKER_PYTHON"] = sys.executable
    os.environ["ROUTELAKE_WORKER_PYTHONPATH"] = str(_ROOT)
    if cluster is None:
        os.environ.setdefault("SPARK_LOCAL_IP", driver_host)
    else:
        os.environ["SPARK_LOCAL_IP"] = driver_host  # what starts us says 127.0.0.1, which no worker elsewhere reaches
    if locale.nl_langinfo(locale.CODESET).upper().replace("-", "") != "UTF8":
        os.environ["LC_ALL"] = "C.UTF-8"  # a JVM opens no file whose name its locale cannot write
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
        conf.set("spark.sql.warehouse.dir", str(scratch_dir / "warehouse"))  # else a folder where one happens to be
    if jars:
        conf.set("spark.jars", ",".join(map(str, jars)))
    if delta:
        conf.set("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        conf.set("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        # Delta reads the log of a table in 50 tasks, whatever its size. A lake's tables have some thousand files.
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
    """A folder for what the JVM unpacks and then loads, RocksDB first of all: a file system with noexec is none.

    A system's own place is often mounted so; else it would gather 17 MB at each start.

    Raises:
        SetupError: there is none.
        OSError: it cannot be made.
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
    """As it stands between double quotes in options of a JVM."""
    return str(path).replace("\\", r"\\").replace('"', r"\"")


def _launch(conf: SparkConf) -> Any:  # noqa: ANN401 (untyped there)
    """Start the JVM. Raises SetupError."""
    read_end, write_end = os.pipe()
    critical_thread(_pass_on, "spark-output", (os.fdopen(read_end, "rb"),)).start()
    try:
        # It prints what was wrong before it ends, through the pipe.
        return launch_gateway(conf, {"stdout": write_end, "stderr": write_end})  # type: ignore[no-untyped-call]
    except PySparkRuntimeError as error:
        raise SetupError(
            "Spark's JVM ended during its start. Its output is above. If it was not stopped, correct JAVA_HOME (Java "
            "17 or newer) or --driver-memory."
        ) from error
    finally:
        os.close(write_end)


def _use(cluster: Cluster, conf: SparkConf, driver_host: str, jars: list[Path]) -> None:
    """Have executors elsewhere. What the cluster's own file says is not put on a command line: it holds a secret."""
    python = cluster.config.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_PYTHON"] = python  # the script above is not on other machines
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
    """This process's."""
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
"""What the JVM and Spark's workers print at every start, and the frames of their stacks. No reader needs them."""


def _pass_on(output: IO[bytes]) -> None:
    """Copy the JVM's output to standard error, without the noise."""
    with output:
        for line in output:
            if not _NOISE.match(line):
                os.write(2, line)
