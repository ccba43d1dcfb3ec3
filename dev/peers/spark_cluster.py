# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster from the installed pyspark: a master and workers, each with its own folder and address."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from dev.peers.java import QUICK_JVM, JavaProcess, free_port, port_answers
from dev.peers.procfs import status_fields
from runtime.jars import pyspark_jars
from runtime.procfs import threads_below


def write_properties(file: Path, secret: str, *more: str) -> Path:
    """Write the properties that master, workers and fold are started with; return the file."""
    lines = ("spark.authenticate true", f"spark.authenticate.secret {secret}", "spark.master.rest.enabled false", *more)
    file.write_text("\n".join(lines) + "\n")
    return file


_SCALA: Final = "2.13"

_OPENS: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.lang.invoke",
        "java.net",
        "java.nio",
        "java.util",
        "java.util.concurrent",
        "sun.nio.ch",
    )
)


def _spark(folder: Path, main: str, arguments: Sequence[str], ready: Callable[[JavaProcess], bool]) -> JavaProcess:
    jars = pyspark_jars()
    assert jars is not None
    folder.mkdir(parents=True, exist_ok=True)
    return JavaProcess(
        f"org.apache.spark.deploy.{main}",
        arguments,
        f"{jars}/*",
        folder,
        heap_mb=256,
        jvm_args=[option for option in QUICK_JVM if not option.startswith("-Xss")] + list(_OPENS),
        ready=ready,
        start_timeout_s=180.0,
        # As bin/spark-class sets them: where a worker finds what executors are started with.
        environment={"SPARK_HOME": str(jars.parent), "SPARK_SCALA_VERSION": _SCALA},
    )


class SparkMaster:
    """A master.

    Args:
        folder: Folder of its own.
        properties: File for `--properties-file`.
        host: Address that it listens at.
    """

    def __init__(self, folder: Path, properties: Path, host: str = "127.0.0.1") -> None:
        self.host, self.port = host, free_port()
        arguments = [
            "--host",
            host,
            "--port",
            str(self.port),
            "--webui-port",
            "0",
            "--properties-file",
            str(properties),
        ]
        self.process = _spark(folder, "master.Master", arguments, lambda _: port_answers(self.port, host))

    @property
    def url(self) -> str:
        """For `--master`."""
        return f"spark://{self.host}:{self.port}"

    def start(self) -> SparkMaster:
        """Start it (again)."""
        self.process.start()
        return self

    def kill(self) -> None:
        """SIGKILL."""
        self.process.sigkill()


class SparkWorker:
    """A worker of a master.

    Args:
        folder: Folder of its own, also for the executors' output.
        properties: File for `--properties-file`.
        master: URL of the master.
        host: Address that it and its executors listen at.
        cores: Number of cores that it offers.
        memory: Memory that it offers.
    """

    def __init__(
        self, folder: Path, properties: Path, master: str, host: str = "127.0.0.1", cores: int = 1, memory: str = "1g"
    ) -> None:
        self.folder, self.host = folder, host
        arguments = [
            "--host", host, "--cores", str(cores), "--memory", memory, "--webui-port", "0",
            "--work-dir", str(folder / "work"), "--properties-file", str(properties), master,
        ]  # fmt: skip
        self.process = _spark(
            folder, "worker.Worker", arguments, lambda process: "registered with master" in process.tail(20_000)
        )

    def start(self) -> SparkWorker:
        """Start it (again), and wait until the master knows it."""
        self.process.output.unlink(missing_ok=True)
        self.process.start()
        return self

    def kill(self) -> None:
        """SIGKILL, with its executors: as if the machine were gone."""
        children = self.executors()
        self.process.sigkill()
        for pid in children:
            _kill(pid)

    def executors(self) -> list[int]:
        """Process ids of its executors."""
        if not self.process.running:
            return []
        return [pid for pid in threads_below(self.process.pid) if b"CoarseGrainedExecutorBackend" in _command(pid)]

    def kill_executors(self) -> int:
        """SIGKILL them alone; how many there were. The worker starts others."""
        return sum(map(_kill, self.executors()))

    def output(self) -> str:
        """Output of its executors, the newest last."""
        files = sorted(self.folder.glob("work/*/*/stderr"), key=lambda file: file.stat().st_mtime)
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files)


def _command(pid: int) -> bytes:
    """Return the command line of a process; nothing for an ended one, or for a thread."""
    try:
        is_process = status_fields(pid)["Tgid"] == str(pid)
        return Path(f"/proc/{pid}/cmdline").read_bytes() if is_process else b""
    except OSError:
        return b""


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
