# SPDX-License-Identifier: Apache-2.0
"""A clock that steps and a disk that is slow or fails, for processes that start with `Preload.environment`.

preload.c stands between them and libc; what is wrong at the moment, it reads in a mapped file.
"""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("preload.c")
_WRONG: Final = struct.Struct("=4q")


def can_preload() -> bool:
    """Return whether there is a C compiler to build the library with."""
    return shutil.which("cc") is not None


class Preload:
    """The library, built, and what it does now: nothing at first.

    Args:
        folder: gets two files.

    Attributes:
        environment: of the processes.

    Raises:
        subprocess.CalledProcessError: it cannot be built.
    """

    def __init__(self, folder: Path) -> None:
        library, control = folder / "preload.so", folder / "preload.wrong"
        command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        control.write_bytes(bytes(_WRONG.size))
        with control.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _WRONG.size)
        self.environment = {"LD_PRELOAD": str(library), "TORTURE_PRELOAD": str(control)}
        self._wrong = [0, 0, 0]

    def step_clock(self, by_ms: int) -> int:
        """Set the clocks, of all processes but JVMs, forward or back.

        Returns:
            By how much they are ahead now, ms.
        """
        self._set(0, self._wrong[0] + by_ms)
        return self._wrong[0]

    def slow_disk(self, late_ms: int) -> None:
        """Let each fsync take longer; 0 ends it."""
        self._set(1, late_ms)

    def failing_disk(self, fails: bool) -> None:
        """Let each fsync fail with EIO, or no more."""
        self._set(2, errno.EIO if fails else 0)

    @property
    def syncs_hit(self) -> int:
        """Number of syncs that were late or failed so far."""
        return int(_WRONG.unpack(self._map)[3])

    def _set(self, index: int, value: int) -> None:
        self._wrong[index] = value
        self._map[index * 8 : index * 8 + 8] = value.to_bytes(8, sys.byteorder, signed=True)

    def close(self) -> None:
        """Release the file."""
        self._map.close()
