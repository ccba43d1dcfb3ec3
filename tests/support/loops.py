# SPDX-License-Identifier: Apache-2.0
"""Tests that run on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import uvloop


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the gateway's kind of loop, whose clock is coarser than asyncio's. It has a minute."""

    @wraps(test)
    def run(**fixtures: object) -> None:
        uvloop.run(asyncio.wait_for(test(**fixtures), 60))

    return run


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something has come about. The bound is the test's own."""
    while not condition():
        await asyncio.sleep(0.002)
