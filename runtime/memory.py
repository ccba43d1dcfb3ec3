# SPDX-License-Identifier: Apache-2.0
"""glibc's allocator: what a process has needed for a moment goes back to the system.

Left alone it learns from each large block that is freed to take the next ones of that size from its heaps, where one
small block that stays holds up megabytes; after a few frames of 30 MB nothing is given back any more. (mallopt(3),
"dynamic mmap threshold": setting it by hand turns that off.)
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8

LARGE_BLOCK_BYTES: Final = 128 * 1024
"""Blocks from here on are the system's own, and are its again once they are freed."""

_SPARE_BYTES: Final = 8 * 1024 * 1024
_ARENAS: Final = 2
_LOOK_S: Final = 10.0
_LOOKS: Final = 3
"""A process that has grown is trimmed every so many looks: what it freed since the last time shows nowhere else."""
_GROWN_BYTES: Final = 32 * 1024 * 1024
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def give_back_large_blocks() -> None:
    """From now on, in this process. Does nothing with another C library."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


async def give_back_free_pages() -> None:
    """From now on, until it is cancelled: small blocks that are free go back, too, where the process has grown.

    Thousands of them leave pages free between others that are in use, and those only `malloc_trim` gives back. It runs
    in a thread, without the interpreter lock. Does nothing with another C library.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    least_bytes = trimmed_bytes = _resident_bytes()
    looks = 0
    while trim is not None:
        await asyncio.sleep(_LOOK_S)
        looks += 1
        now_bytes = _resident_bytes()
        if now_bytes > trimmed_bytes + _GROWN_BYTES or (now_bytes > least_bytes + _GROWN_BYTES and looks >= _LOOKS):
            await asyncio.to_thread(trim, 0)
            looks, trimmed_bytes = 0, _resident_bytes()
        least_bytes = min(least_bytes, now_bytes)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
