# SPDX-License-Identifier: Apache-2.0
"""The NameServer of RocketMQ-Rust (crate ``rocketmq-namesrv``), built once from crates.io."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from dev.peers.built_program import cargo_program
from dev.peers.java import free_port, port_answers, wait_until
from dev.peers.peer import Served

VERSION: Final = "1.0.0"
_CRATE: Final = "rocketmq-namesrv"
_BINARY: Final = "rocketmq-namesrv-rust"


class RustNameServer(Served):
    """One server on a free port; `with` starts and ends it.

    Args:
        build: Build it if it is missing.

    Raises:
        NoProgramError: It is missing and cannot be built.
    """

    def __init__(self, *, build: bool = True) -> None:
        self._program = cargo_program(_CRATE, VERSION, _BINARY, build=build)
        super().__init__(_BINARY)
        self.host = "127.0.0.1"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        with (self.home / "output.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(self._program), "--rocketmqHome", str(self.home), "--listenPort", str(self.port),
                    "--bindAddress", self.host, "--kvConfigPath", str(self.home / "kvConfig.json"),
                    "--log-filter", "error",
                ],
                cwd=self.home,
                env={**os.environ, "HOME": str(self.home)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        process = self.process

        def ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{_BINARY} ended: {(self.home / 'output.log').read_text()[-1000:]}")
            return port_answers(self.port)

        wait_until(ready, 60.0, f"{_BINARY} to listen")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
