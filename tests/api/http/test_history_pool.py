# SPDX-License-Identifier: Apache-2.0
"""Questions about the past when a gateway stops. How they take turns: test_bounds.py."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from api.http.history_pool import HistoryPool
from schemas.errors import UnavailableError


def test_a_question_that_no_thread_has_taken_yet_is_told_that_the_gateway_stops() -> None:
    """And not cancelled, which nobody up there expects: it was answered with 500, and a traceback in the log."""

    async def scene() -> Any:
        gate = threading.Event()
        pool = HistoryPool(cast("Any", None), threads=1, queue=4)
        pool._pool.submit(gate.wait)  # its thread has not come back yet for the next
        asked = asyncio.create_task(pool.read(lambda _: "answer", "asker"))
        waiting = asyncio.create_task(pool.read(lambda _: "answer", "asker"))
        await asyncio.sleep(0)
        pool.close()
        gate.set()
        return await asyncio.gather(asked, waiting, return_exceptions=True)

    found = asyncio.run(scene())
    assert [type(error) for error in found] == [UnavailableError, UnavailableError]
    with pytest.raises(UnavailableError, match="stopping"):
        raise found[0]
