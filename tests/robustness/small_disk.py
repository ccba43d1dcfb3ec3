# SPDX-License-Identifier: Apache-2.0
"""A disk that can be full: a tmpfs that only this process and its children see, in a mount namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

_INSIDE: Final = "TORTURE_INSIDE"
SIZE_BYTES: Final = 768 * 1024 * 1024
"""A run of five minutes leaves some 100 MiB."""


def _unshare() -> list[str]:
    return ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]


def can_mount() -> bool:
    """Whether this process may have a mount namespace."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_unshare(), "true"], capture_output=True, check=False).returncode == 0


def is_inside() -> bool:
    """Whether this process has one already."""
    return _INSIDE in os.environ


def go_inside(arguments: Sequence[str]) -> NoReturn:
    """Run `python -m tests.robustness` again, in a mount namespace of its own."""
    command = [*_unshare(), sys.executable, "-m", "tests.robustness", *arguments]
    os.execvpe(command[0], command, {**os.environ, _INSIDE: "1"})


class SmallDisk:
    """A small disk at a folder.

    Args:
        folder: made; what is in it after `keep` stays.

    Raises:
        subprocess.CalledProcessError: it cannot be mounted; see `go_inside`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(folder)], check=True)

    def fill(self) -> None:
        """Leave no byte."""
        with (self._folder / "filler").open("wb") as file, suppress(OSError):
            chunk = bytes(64 * 1024)
            while True:
                file.write(chunk)

    def empty(self) -> None:
        """There is room again."""
        (self._folder / "filler").unlink(missing_ok=True)

    def keep(self) -> None:
        """Copy what is there to the disk below, and unmount. Nobody may have a file open."""
        kept = self._folder.with_name(f"{self._folder.name}-kept")
        shutil.copytree(self._folder, kept, symlinks=True)
        subprocess.run(["umount", str(self._folder)], check=True)
        self._folder.rmdir()
        kept.rename(self._folder)
