# SPDX-License-Identifier: Apache-2.0
"""The reader of the fold's files, on a file system that hangs. A FIFO without a writer hangs like one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from api.gateway.fold_status import FoldStatusReader
from dev.support.loops import eventually
from schemas.tables import FOLD_FAILURE_FILE, FOLD_HASTEN_FILE, FOLD_STATUS_FILE


def is_read(fifo: Path) -> bool:
    """End the read of a FIFO. False if nothing reads it."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("file", [FOLD_STATUS_FILE, FOLD_FAILURE_FILE])
def test_a_file_that_hangs_does_not_hold_the_event_loop(tmp_path: Path, file: str) -> None:
    os.mkfifo(tmp_path / file)

    async def follow() -> None:
        following = asyncio.create_task(FoldStatusReader(str(tmp_path)).follow(lambda: None))
        await eventually(lambda: is_read(tmp_path / file))
        following.cancel()

    asyncio.run(asyncio.wait_for(follow(), 10))


def test_hasten(tmp_path: Path) -> None:
    async def hasten() -> None:
        reader = FoldStatusReader(str(tmp_path))
        for _ in range(3):
            reader.hasten()
        await eventually((tmp_path / FOLD_HASTEN_FILE).exists)

    asyncio.run(asyncio.wait_for(hasten(), 10))
