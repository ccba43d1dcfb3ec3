# SPDX-License-Identifier: Apache-2.0
"""Programs that are built once from the Go module proxy, whose digests Go's checksum database vouches for."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from runtime.jars import cache_dir


class NoGoProgramError(Exception):
    """It is not there, and cannot be built."""


def go_program(package: str, version: str, *, build: bool = True) -> Path:
    """The program, built if need be: minutes.

    Args:
        package: Its path, such as ``github.com/versity/versitygw/cmd/versitygw``.
        version: Without the v.
        build: Whether to.

    Raises:
        NoGoProgramError: It is not there, and there is no `go` or no module proxy, or it was not to be built.
    """
    name = package.rpartition("/")[2]
    folder = cache_dir().parent / f"{name}-{version}"
    program = folder / name
    if program.exists():
        return program
    if not build or shutil.which("go") is None:
        raise NoGoProgramError(f"no {program}, and {'no `go` to build it with' if build else 'it is not to be built'}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        environment = {**os.environ, "GOBIN": scratch, "GOFLAGS": "-buildvcs=false"}
        command = ["go", "install", f"{package}@v{version}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            raise NoGoProgramError(f"{name} cannot be built: {done.stderr.strip()[-300:]}")
        (Path(scratch) / name).replace(program)
    return program
