# SPDX-License-Identifier: Apache-2.0
"""What a process has needed for a while goes back to the system, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_GROWN_TWICE = """
import asyncio
from runtime import memory

memory._LOOK_S = 0.02
MIB = 1 << 20


async def main():
    before = memory._resident_bytes()
    giving = asyncio.create_task(memory.give_back_free_pages())
    await asyncio.sleep(0)
    # In use over many looks, so that it is trimmed while there is nothing to give; one in a hundred stays.
    blocks = [bytes(20_000) for _ in range(10_000)]
    most = memory._resident_bytes()
    await asyncio.sleep(0.5)
    kept = blocks[::100]
    blocks.clear()
    for _ in range(1_000):
        left = memory._resident_bytes() - before
        if left < 40 * MIB:
            break
        await asyncio.sleep(0.02)
    giving.cancel()
    print((most - before) // MIB, left // MIB, len(kept))


asyncio.run(main())
"""


def test_memory_freed_after_a_trim_is_returned_to_the_system() -> None:
    ran = subprocess.run([sys.executable, "-c", _GROWN_TWICE], capture_output=True, text=True, timeout=60, check=True)
    grown, left, _ = map(int, ran.stdout.split())
    assert grown > 150
    assert left < 40
