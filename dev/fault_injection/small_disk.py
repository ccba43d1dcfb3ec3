# SPDX-License-Identifier: Apache-2.0
"""A disk that can be full: a tmpfs that only this process and its children see (`dev.fault_injection.inside`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_SPARE_BYTES: Final = 512 * 1024 * 1024
_A_MINUTE_BYTES: Final = 48 * 1024 * 1024
"""A run of five minutes leaves some 100 MiB; before old versions are vacuumed it is more."""


class SmallDisk:
    """A small disk at a folder.

    Args:
        folder: made; what is in it after `keep` stays.
        seconds: of the run.

    Raises:
        subprocess.CalledProcessError: it cannot be mounted.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        size_bytes = _SPARE_BYTES + round(seconds / 60 * _A_MINUTE_BYTES)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs", str(folder)], check=True)

    def fill(self) -> int:
        """Leave no byte.

        Returns:
            How many are left all the same.
        """
        with (self._folder / "filler").open("wb") as file:
            chunk_bytes, end = 1 << 26, 0
            while chunk_bytes >= _PAGE_BYTES:
                try:
                    os.posix_fallocate(file.fileno(), end, chunk_bytes)
                    end += chunk_bytes
                except OSError:
                    chunk_bytes //= 2
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def empty(self) -> None:
        """There is room again."""
        (self._folder / "filler").unlink(missing_ok=True)

    def keep(self) -> None:
        """Copy the files to the disk below, and unmount. A killed process may take a while to end."""
        kept = self._folder.with_name(f"{self._folder.name}-kept")
        with suppress(shutil.Error):  # what vanishes meanwhile
            shutil.copytree(self._folder, kept, symlinks=True)
        subprocess.run(["umount", "--lazy", str(self._folder)], check=True)
        self._folder.rmdir()
        kept.rename(self._folder)
