# SPDX-License-Identifier: Apache-2.0
"""glibc's allocator: what a process has needed for a moment goes back to the system.

Left alone it learns from each large block that is freed to take the next ones of that size from its heaps, where one
small block that stays holds up megabytes; after a few frames of 30 MB nothing is given back any more. (mallopt(3),
"dynamic mmap threshold": setting it by hand turns that off.)
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

LARGE_BLOCK_BYTES: Final = 128 * 1024
"""Blocks from here on are the system's own, and are its again once they are freed."""

_SPARE_BYTES: Final = 8 * 1024 * 1024
_ARENAS: Final = 2


def give_back_large_blocks() -> None:
    """From now on, in this process. Does nothing with another C library."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)
