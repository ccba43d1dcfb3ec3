# SPDX-License-Identifier: Apache-2.0
"""Common parts of all servers that are started here: a folder of its own, and an end."""

from __future__ import annotations

import os
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.peers.java import JavaProcess, classpath, free_port, port_answers, wait_until


class Served(ABC):
    """A server with a temporary home directory that goes away with it; `with` starts and ends it.

    Args:
        name: Name of the directory.
    """

    def __init__(self, name: str) -> None:
        self._cleanup = ExitStack()
        self.home = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it answers."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL; nothing where it does not run."""

    def close(self) -> None:
        """Kill the process and remove its files."""
        self.kill()
        self._cleanup.close()

    def __enter__(self) -> Self:
        """Start it."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it and remove its files."""
        self.close()


class Program(Served):
    """A native program that listens on a free port.

    Args:
        program: The file.
    """

    def __init__(self, program: Path) -> None:
        super().__init__(program.name)
        self.program = program
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """Arguments of the program."""

    def variables(self) -> Mapping[str, str]:
        """Environment variables that it needs, in addition to those of this process."""
        return {}

    def answers(self) -> bool:
        """Return whether it accepts connections."""
        return port_answers(self.port)

    def start(self) -> None:
        """Start it, also after it was killed; its files are kept."""
        output = self.home / "output.log"
        with output.open("ab") as log:
            process = self.process = subprocess.Popen(
                [str(self.program), *self.arguments()],
                cwd=self.home,
                env={**os.environ, **self.variables()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        def ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{self.program.name} ended: {output.read_text()[-1000:]}")
            return self.answers()

        wait_until(ready, 60.0, f"{self.program.name} to listen")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Peer(Served):
    """A JVM.

    Args:
        jar_set: Name of the set of its jars (runtime/jars.lock).
    """

    process: JavaProcess
    """Made by the class below, not yet started."""

    def __init__(self, jar_set: str) -> None:
        super().__init__(jar_set)
        self._classpath = classpath(jar_set)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process.start()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.sigkill()

    def _write_properties(self, name: str, properties: Mapping[str, str]) -> Path:
        path = self.home / name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return path
