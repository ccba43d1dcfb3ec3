# SPDX-License-Identifier: Apache-2.0
"""Writes that are synced to the disk, and errors of a full or failing disk."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Final

from schemas.errors import SetupError, UnavailableError

_PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def at_start(error: Exception) -> type[UnavailableError | SetupError]:
    """Return the error class for this error at a start.

    A full or failing disk may recover, so a supervisor should start the process again (UnavailableError). Every other
    error needs an operator first (SetupError). delta-rs names the error only in its message.
    """
    number = error.errno if isinstance(error, OSError) else None
    passes = number in _PASSING or any(os.strerror(passing) in str(error) for passing in _PASSING)
    return UnavailableError if passes else SetupError


def advice(error: OSError, option: str) -> str:
    """Return the remedy for a folder that cannot be written, as a sentence.

    Args:
        error: Error of the write.
        option: Name of the option that chooses the folder.
    """
    do = {
        errno.ENOSPC: "Free some space on its disk",
        errno.EDQUOT: "Raise the disk quota of its owner",
        errno.EIO: "Check its disk (`dmesg`)",
        errno.EROFS: "Mount its file system for writing",
    }.get(error.errno or 0, "Change its owner")
    return f"{do}, or choose another {option}."


def sync_file_system(folder: Path) -> None:
    """Sync all data of a folder's file system to the disk. Without syncfs, sync all file systems.

    Source: syncfs(2). Since Linux 5.8 it reports failed writes.

    Raises:
        OSError: Some data could not be written.
    """
    if sys.platform != "linux":
        os.sync()
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(opened):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(opened)


def sync_folder(folder: Path) -> None:
    """Make created and renamed entries of a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_synced(path: Path, data: bytes) -> None:
    """Write a small file atomically and durably. Until the function returns, the previous file may still be there.

    If there is a link in place of the temporary file, it is removed and never followed.
    """
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    with temporary.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
