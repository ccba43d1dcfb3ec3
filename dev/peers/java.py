# SPDX-License-Identifier: Apache-2.0
"""Java processes in tests and benchmarks: waited for by a condition, and gone at the end whatever happens."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from dev.peers.procfs import thread_states
from runtime.jars import ensure

# For tests, where a fast start matters more than peak speed: first compiler only, serial collector, shared class data.
QUICK_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData", "-Xss512k")
# Netty and RocketMQ's buffer cleaner reach into these.
_OPENS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)

# Below the range from which Linux takes the ports of outgoing connections.
_PORTS = range(20_000, 32_000)


class JavaProcessFailed(Exception):
    """The process ended or stayed unready; the message carries the end of its output."""


def java_executable() -> str:
    """The `java` of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise FileNotFoundError("no java on the PATH and no JAVA_HOME")
    return found


def classpath(set_name: str) -> str:
    """The class path of a set of jars, downloaded first if need be.

    Args:
        set_name: Name in jars.lock, such as "rocketmq" (5.5.0 namesrv, broker, tools) or "kafka".

    Returns:
        Absolute paths joined by os.pathsep.
    """
    return os.pathsep.join(str(jar) for jar in ensure(set_name))


_chance: Final = random.SystemRandom()
"""Hypothesis seeds the ordinary one: test processes side by side would choose the same ports."""

_named: Final[deque[int]] = deque(maxlen=1000)
"""Ports that this process returned last. The caller of `free_port` may listen there later, or never."""


def free_port(offsets: Sequence[int] = (0,)) -> int:
    """A port p on 127.0.0.1 such that p + offset is free for every offset.

    No other call of this test run returns the port for a long time, because it looks free until a server listens there,
    and again while that server restarts.

    Args:
        offsets: A broker also listens two below and one above its own port.
    """
    ports = _ports_of_this_worker()
    for _ in range(1000):
        port = _chance.choice(ports)
        wanted = [port + offset for offset in offsets]
        if not any(other in _named for other in wanted) and all(map(_is_free, wanted)):
            _named.extend(wanted)
            return port
    raise OSError("no free port found")


def _ports_of_this_worker() -> range:
    """All of them, or one worker's share where pytest-xdist has several."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    share = len(_PORTS) // workers
    return _PORTS[number * share : (number + 1) * share]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 (and closed again)
        except OSError:
            return False
    return True


def port_answers(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether something accepts connections at host:port."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], object], timeout_s: float, what: str, interval_s: float = 0.05) -> float:
    """Poll until a condition holds.

    Args:
        condition: Checked at once, then every `interval_s`.
        timeout_s: Maximum wait, in seconds.
        what: Name of the condition, for the error.
        interval_s: Pause between checks.

    Returns:
        The seconds it took.

    Raises:
        TimeoutError: The condition did not hold in time. The text has its last value, if that was more than False.
    """
    start = time.monotonic()
    while not (said := condition()):
        if time.monotonic() - start > timeout_s:
            last = "" if said is False else f"; last it was {said!r}"
            raise TimeoutError(f"{what}: not within {timeout_s} s{last}")
        time.sleep(interval_s)
    return time.monotonic() - start


class JavaProcess:
    """One JVM in a process group of its own, with a home directory of its own and its output in a file."""

    def __init__(
        self,
        main_class: str,
        args: Sequence[str],
        classpath: str,
        home: Path,
        *,
        heap_mb: int = 128,
        direct_mb: int = 128,
        memory: Sequence[str] | None = None,
        jvm_args: Sequence[str] = QUICK_JVM,
        ready: Callable[[JavaProcess], bool] = lambda process: True,
        start_timeout_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the process; `start` or `with` starts it.

        Args:
            main_class: Main class with package.
            args: Arguments of the program.
            classpath: See `classpath`.
            home: ROCKETMQ_HOME and user.home; holds `output.log`. Must exist.
            heap_mb: Largest heap.
            direct_mb: Maximum direct memory.
            memory: Options instead of those that heap_mb and direct_mb make.
            jvm_args: Compiler, collector and the like; by default what starts fast.
            ready: Condition, polled after the start.
            start_timeout_s: Maximum wait for `ready`, in seconds.
            environment: Variables on top of this process's own.
        """
        self.main_class = main_class
        self.home = home
        self.output = home / "output.log"
        self._ready = ready
        self._start_timeout_s = start_timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self.start_seconds = 0.0
        self._command = [
            java_executable(),
            *(memory or (f"-Xmx{heap_mb}m", "-Xms32m", f"-XX:MaxDirectMemorySize={direct_mb}m")),
            *jvm_args,
            *_OPENS,
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            "-Djava.net.preferIPv4Stack=true",
            main_class,
            *args,
        ]
        self._environment = {**os.environ, "ROCKETMQ_HOME": str(home), "CLASSPATH": classpath, **(environment or {})}

    def __enter__(self) -> JavaProcess:
        """Start the process and wait until it is ready."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill the process group."""
        self.sigkill()

    @property
    def pid(self) -> int:
        """Id of the running process."""
        if self._process is None:
            raise RuntimeError("not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Return whether the process was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start (again) and wait until ready.

        Raises:
            JavaProcessFailed: The process ended early or was not ready in time.
        """
        began = time.monotonic()
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.home,
                env=self._environment,
                start_new_session=True,
            )
        atexit.register(self.sigkill)
        try:
            wait_until(lambda: not self.running or self._ready(self), self._start_timeout_s, self.main_class)
        except TimeoutError as error:
            self.sigkill()
            raise JavaProcessFailed(f"{error}\n{self.tail()}") from error
        if not self.running:
            raise JavaProcessFailed(f"{self.main_class} ended with {self._process.returncode}\n{self.tail()}")
        self.start_seconds = time.monotonic() - began

    def tail(self, size: int = 4000) -> str:
        """The end of the output so far."""
        return self.output.read_text(errors="replace")[-size:] if self.output.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def sigkill(self) -> None:
        """Kill it at once and wait until it is gone."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(timeout=30)
        atexit.unregister(self.sigkill)

    def sigstop(self) -> None:
        """Freeze it; its connections stay open and silent.

        One thread takes the signal and then stops the others: on a busy machine they would go on for a while.
        """
        self.signal(signal.SIGSTOP)
        wait_until(
            lambda: not self.running or thread_states(self.pid) == {"T"}, 30, f"{self.main_class} to freeze", 0.001
        )

    def sigcont(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def terminate(self, timeout_s: float = 30.0) -> None:
        """Ask it to shut down in order, and wait until it has.

        Args:
            timeout_s: After this long it is killed.
        """
        self.signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self.sigkill()
        atexit.unregister(self.sigkill)
