# SPDX-License-Identifier: Apache-2.0
"""versitygw: a real S3 server over a folder, with conditional PUT; built once from the Go module proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from deploy.jars import cache_dir
from peers.java import free_port, port_answers, wait_until
from peers.peer import Served

VERSION: Final = "1.8.0"
_PACKAGE: Final = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
_ACCESS_KEY: Final = "test"
_SECRET_KEY: Final = "testtest"  # noqa: S105 (of a server on loopback)


class NoVersityGwError(Exception):
    """It is not there, and cannot be built."""


def versitygw_program(*, build: bool = True) -> Path:
    """The program, built if need be: four minutes.

    Args:
        build: Whether to.

    Raises:
        NoVersityGwError: It is not there, and there is no `go` or no module proxy, or it was not to be built.
    """
    folder = cache_dir().parent / f"versitygw-{VERSION}"
    program = folder / "versitygw"
    if program.exists():
        return program
    if not build or shutil.which("go") is None:
        raise NoVersityGwError(f"no {program}, and {'no `go` to build it with' if build else 'it is not to be built'}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        environment = {**os.environ, "GOBIN": scratch, "GOFLAGS": "-buildvcs=false"}
        done = subprocess.run(
            ["go", "install", _PACKAGE], env=environment, capture_output=True, text=True, timeout=1800, check=False
        )
        if done.returncode:
            raise NoVersityGwError(f"versitygw cannot be built: {done.stderr.strip()[-300:]}")
        (Path(scratch) / "versitygw").replace(program)
    return program


class VersityGw(Served):
    """One server with one bucket, ``lake``, in a folder that goes away with it; `with` starts and ends it.

    Attributes:
        environment: By which obstore, delta-rs and the AWS tools find it.
    """

    def __init__(self) -> None:
        self._program = versitygw_program()
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
