# SPDX-License-Identifier: Apache-2.0
"""Files that may be incomplete while they are written: a change counts after consecutive looks with the same result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

SETTLED_LOOKS: Final = 2
"""Number of consecutive looks with the same result after which no write is in progress."""


class WatchedFiles:
    """Recent state of some files, without their content. It reads the disk, so use it off the event loop.

    Attributes:
        same_looks: Number of consecutive looks, the last one included, with the same result.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        """Take the current state of the files."""
        self._seen = stamps_of(files)
        self.same_looks = 1

    def look(self, files: Iterable[Path]) -> dict[Path, object]:
        """Return the current state of the files."""
        found = stamps_of(files)
        self.same_looks = self.same_looks + 1 if found == self._seen else 1
        self._seen = found
        return found


def stamps_of(files: Iterable[Path]) -> dict[Path, object]:
    """Return the properties that change with a file: its inode, size and time, or the error of a failed look."""
    return {path: _stamp(path) for path in files}


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_mtime_ns
