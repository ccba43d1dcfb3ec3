# SPDX-License-Identifier: Apache-2.0
"""The load generator (dev/benchmarks/load): compiled when its source changed, run, its result read.

The program stands in the cache folder under a name that holds a digest of its source, so an old one is never used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from dev.peers.java import free_port, port_answers, wait_until
from runtime.jars import cache_dir
from schemas.errors import RoutelakeError, SetupError

SOURCE: Final = Path(__file__).resolve().parent.parent / "load"
FLAGS: Final = ("-O2", "-Wall")
TLS_FLAGS: Final = ("-DTLS",)
TLS_LIBRARIES: Final = ("-lssl", "-lcrypto")
OPAQUE: Final = 100_000_000
"""Nine digits, which the generator replaces."""

Protocol = Literal["remoting", "http"]


class LoadError(RoutelakeError):
    """The generator could not run, or an answer was wrong."""


class LoadResult(msgspec.Struct, frozen=True, rename="camel"):
    """Results of the generator; latencies in microseconds, as seen by it.

    ``windows`` holds (answers, largest latency) of each second.
    """

    requests: int
    seconds: float
    per_second: float
    sent: int
    answered: int
    lost: int
    wrong_code: int
    wrong_opaque: int
    wrong_body: int
    mean_us: float
    bytes_in: int
    body_bytes: int
    cpu_seconds: float
    windows: list[tuple[int, float]]
    p50_us: float = msgspec.field(name="p50Us")
    p90_us: float = msgspec.field(name="p90Us")
    p99_us: float = msgspec.field(name="p99Us")
    p999_us: float = msgspec.field(name="p999Us")
    max_us: float = msgspec.field(name="maxUs")

    @property
    def wrong(self) -> int:
        """Answers that were not as they had to be, and requests without one because the connection ended."""
        return self.lost + self.wrong_code + self.wrong_opaque + self.wrong_body


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Frames to send, and the code of their answers. ``rate`` 0: without pauses; see dev/benchmarks/load/load.c."""

    port: int
    frames: Path
    protocol: Protocol = "remoting"
    connections: int = 1
    depth: int = 1
    seconds: float = 5.0
    warmup_s: float = 1.0
    rate: float = 0.0
    own: bool = False
    once: bool = False
    hold: bool = False
    check: Literal["bytes", "length", "code"] = "bytes"
    code: int = 0
    tls: bool = False

    def command(self) -> list[str]:
        """The command line."""
        words: dict[str, object] = {
            **{"port": self.port, "frames": self.frames, "protocol": self.protocol, "connections": self.connections},
            **{"depth": self.depth, "seconds": self.seconds, "warmup": self.warmup_s, "rate": self.rate},
            "check": self.check,
            "code": self.code,
        }
        given = {"--own": self.own, "--once": self.once, "--hold": self.hold, "--tls": self.tls}
        switches = [name for name, is_given in given.items() if is_given]
        options = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        return [str(program(tls=self.tls)), "run", *options, *switches]


def compiler() -> str:
    """A C compiler, installed with apt-get where that is possible.

    Raises:
        SetupError: no compiler was found.
    """
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if shutil.which("apt-get") and (not sudo or (shutil.which("sudo") and not _status([*sudo, "true"]))):
        print("installing gcc and libc6-dev for the load generator, by apt-get", flush=True)
        install = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"]
        for command in (["apt-get", "-q", "update"], [*install, "gcc", "libc6-dev"]):
            _status([*sudo, *command])
        if found := shutil.which("cc"):
            return found
    raise SetupError("a C compiler is needed for the load generator: install gcc and libc6-dev, and start again.")


def _status(command: list[str]) -> int:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


def program(*, tls: bool = False) -> Path:
    """The compiled generator.

    Args:
        tls: With OpenSSL, which the others do without.

    Raises:
        SetupError: there is no compiler, or it refuses the source.
    """
    flags, libraries = (FLAGS + TLS_FLAGS, TLS_LIBRARIES) if tls else (FLAGS, ())
    texts = [path.read_bytes() for path in sorted(SOURCE.glob("*.[ch]"))]
    digest = hashlib.sha256(b"\0".join([" ".join(flags).encode(), *texts])).hexdigest()[:16]
    target = cache_dir().parent / "bench" / f"load-{digest}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "load"
            command = [compiler(), *flags, "-o", str(made), str(SOURCE / "load.c"), *libraries]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode and tls and "openssl/" in done.stderr:
                raise SetupError("OpenSSL's headers are needed to generate load over TLS: install libssl-dev.")
            if done.returncode:
                raise SetupError(f"the load generator does not compile ({' '.join(command)}):\n{done.stderr[-2000:]}")
            made.replace(target)
    return target


def write_frames(path: Path, frames: Sequence[bytes]) -> Path:
    """A file of frames, each behind its size."""
    with path.open("wb") as file:
        for frame in frames:
            file.write(struct.pack(">I", len(frame)) + frame)
    return path


def run_load(load: Load, *, may_fail: bool = False) -> LoadResult:
    """Run it to the end.

    Raises:
        LoadError: it cannot run; or, unless `may_fail`, an answer was wrong.
    """
    with running_load(load) as running:
        return running.result(may_fail=may_fail)


class RunningLoad:
    """A generator at work."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._found: LoadResult | None = None

    @property
    def alive(self) -> bool:
        """Return whether the generator's connections are still open."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Let it end now, with its result."""
        if self.alive:
            self._process.send_signal(signal.SIGTERM)

    def result(self, *, may_fail: bool = False) -> LoadResult:
        """Wait until it has measured; with `hold` its connections stay open after that. Raises LoadError."""
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._found is None:
            line = self._process.stdout.readline()
            if not line:
                said = self._process.stderr.read().decode().strip()
                raise LoadError(f"the load generator failed with {self._process.wait()}: {said}")
            self._found = msgspec.json.decode(line, type=LoadResult)
        found = self._found
        if found.wrong and not may_fail:
            raise LoadError(
                f"{found.wrong_code} answers were errors, {found.wrong_opaque} belonged to no request, "
                f"{found.wrong_body} had another body than before, {found.lost} did not come"
            )
        return found


@contextmanager
def running_load(load: Load) -> Iterator[RunningLoad]:
    """A load generator that runs during a measurement and is ended after it."""
    process = subprocess.Popen(load.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield RunningLoad(process)
    finally:
        process.terminate()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def echo(answer: Path, protocol: Protocol, tls: tuple[Path, Path] | None = None) -> Iterator[int]:
    """The echo server, which shows the generator's ceiling; gives its port. With a certificate and its key over TLS."""
    port = free_port()
    words = ["--port", str(port), "--frames", str(answer), "--protocol", protocol]
    words += [] if tls is None else ["--cert", str(tls[0]), "--key", str(tls[1])]
    process = subprocess.Popen([str(program(tls=tls is not None)), "echo", *words])
    try:
        wait_until(lambda: port_answers(port), 10, "the echo server")
        yield port
    finally:
        process.terminate()
        process.wait()
