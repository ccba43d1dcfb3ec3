# SPDX-License-Identifier: Apache-2.0
"""Settings of glibc's allocator, so that a process returns memory to the system after a short peak.

By default the allocator raises a threshold with each large block that is freed. It then takes blocks of that size from
its heaps, where one small block keeps megabytes from being returned. After a few frames of 30 MB it returns nothing any
more. A fixed threshold turns this off (mallopt(3), "dynamic mmap threshold").
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
"""Size of a block, in bytes, from which on it comes directly from the system and returns to it when freed."""

_SPARE_BYTES: Final = 8 * 1024 * 1024
_ARENAS: Final = 2
_LOOK_S: Final = 10.0
_LOOKS: Final = 3
"""Number of checks after which a process that has grown is trimmed again, because freed memory is not visible."""
_GROWN_BYTES: Final = 32 * 1024 * 1024
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def give_back_large_blocks() -> None:
    """Return large blocks to the system when they are freed, from now on. Without glibc this does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


async def give_back_free_pages() -> None:
    """Return pages of free small blocks to the system, each time that the process has grown, until cancelled.

    Thousands of small blocks leave free pages between pages in use. Only `malloc_trim` returns those pages. It runs in
    a thread, without the interpreter lock. Without glibc this does nothing.
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
