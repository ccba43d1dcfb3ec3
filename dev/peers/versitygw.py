# SPDX-License-Identifier: Apache-2.0
"""versitygw: a real S3 server over a folder, with conditional PUT; built once from the Go module proxy."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from dev.peers.built_program import NoProgramError, go_program
from dev.peers.java import free_port, port_answers, wait_until
from dev.peers.peer import Served

VERSION: Final = "1.8.0"
_PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw"
_ACCESS_KEY: Final = "test"
_SECRET_KEY: Final = "testtest"  # noqa: S105 (of a server on loopback)


NoVersityGwError = NoProgramError
"""Error for a versitygw that is not there, and cannot be built."""


class VersityGw(Served):
    """One server with one bucket, ``lake``, in a folder that goes away with it; `with` starts and ends it.

    Attributes:
        environment: Variables by which obstore, delta-rs and the AWS tools find it.
    """

    def __init__(self) -> None:
        self._program = go_program(_PACKAGE, VERSION)
        super().__init__("versitygw")
        (self.home / "objects" / "lake").mkdir(parents=True)
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def start(self) -> None:
        """Start it, also after it was killed; its objects are kept."""
        with (self.home / "versitygw.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(self._program), "--port", f"127.0.0.1:{self.port}", "--quiet",
                    "posix", str(self.home / "objects"),
                ],
                cwd=self.home,
                env={**os.environ, "ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip
        process = self.process

        def ready() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"versitygw ended: {(self.home / 'versitygw.log').read_text()[-1000:]}")
            return port_answers(self.port)

        wait_until(ready, 60.0, "versitygw to listen")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
