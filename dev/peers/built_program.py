# SPDX-License-Identifier: Apache-2.0
"""Programs that are built once from a package registry: Go modules, and Rust crates.

Go's checksum database vouches for the digests of modules. A crate is built with its own ``Cargo.lock``, which has the
digests of all crates below it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from runtime.jars import cache_dir

BUILD_LIMIT_S: Final = 3_600.0
"""A crate with 300 others below it takes ten minutes on two idle cores."""


Build = Callable[[Path], tuple[Sequence[str], Mapping[str, str], Path]]
"""Takes a folder; returns the command that builds a program in it, more environment variables, and the program."""


class NoProgramError(Exception):
    """The program is not there, and cannot be built."""


def go_program(package: str, version: str, *, build: bool = True) -> Path:
    """Return a program of the Go module proxy. Builds it if it is missing, which takes minutes.

    Args:
        package: Its path, such as ``github.com/versity/versitygw/cmd/versitygw``.
        version: Without the v.
        build: Build it if it is missing.

    Raises:
        NoProgramError: It is missing, and there is no `go` or no module proxy, or ``build`` is False.
    """

    def build_in(folder: Path) -> tuple[Sequence[str], Mapping[str, str], Path]:
        name = package.rpartition("/")[2]
        environment = {"GOBIN": str(folder), "GOFLAGS": "-buildvcs=false"}
        return ["go", "install", f"{package}@v{version}"], environment, folder / name

    return _built(package.rpartition("/")[2], version, build_in, may_build=build)


def cargo_program(crate: str, version: str, binary: str, *, build: bool = True) -> Path:
    """Return a program of crates.io. Builds it if it is missing, which takes minutes.

    Args:
        crate: Such as ``rocketmq-namesrv``.
        version: Of the crate.
        binary: One of its programs.
        build: Build it if it is missing.

    Raises:
        NoProgramError: It is missing, and there is no `cargo` or no registry, or ``build`` is False.
    """

    def build_in(folder: Path) -> tuple[Sequence[str], Mapping[str, str], Path]:
        options = ["--version", version, "--locked", "--bin", binary, "--root", str(folder)]
        return (
            ["cargo", "install", crate, *options],
            {"CARGO_TARGET_DIR": str(folder / "target")},
            folder / "bin" / binary,
        )

    return _built(binary, version, build_in, may_build=build)


def _built(name: str, version: str, build_in: Build, *, may_build: bool) -> Path:
    """Return the program of the cache, where it is built if it is missing."""
    folder = cache_dir().parent / f"{name}-{version}"
    program = folder / name
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        arguments, environment, result = build_in(Path(scratch))
        if not may_build or shutil.which(arguments[0]) is None:
            why = f"no `{arguments[0]}` to build it with" if may_build else "it is not to be built"
            raise NoProgramError(f"no {program}, and {why}")
        done = subprocess.run(
            arguments,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
        if done.returncode:
            raise NoProgramError(f"{name} cannot be built: {done.stderr.strip()[-300:]}")
        result.replace(program)
    return program
