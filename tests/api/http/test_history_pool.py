# SPDX-License-Identifier: Apache-2.0
"""Questions about the past: who has a turn, who is refused, and how one ends. Over HTTP: test_bounds.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from api.http.history_pool import HistoryPool
from api.http.problems import Problem
from dev.support.loops import eventually
from lake.delta.query import check_interrupted
from schemas.errors import UnavailableError

KINDS = ("changes", "diff", "timeline", "blame", "report", "epochs", "past", "route")


def test_a_question_that_no_thread_has_taken_yet_is_told_that_the_gateway_stops() -> None:
    """And not as a cancellation, which its callers do not expect: the answer was 500, with a traceback in the log."""

    async def scene() -> Any:
        gate = threading.Event()
        pool = HistoryPool(cast("Any", None), threads=1, queue=4)
        for _ in range(2):  # its threads have not come back yet for the next
            pool._pool.submit(gate.wait)
        asked = asyncio.create_task(pool.read(lambda _: "answer", ("asker", "route")))
        waiting = asyncio.create_task(pool.read(lambda _: "answer", ("asker", "route")))
        await asyncio.sleep(0)
        pool.close()
        gate.set()
        return await asyncio.gather(asked, waiting, return_exceptions=True)

    found = asyncio.run(scene())
    assert [type(error) for error in found] == [UnavailableError, UnavailableError]
    with pytest.raises(UnavailableError, match="stopping"):
        raise found[0]


class Crowd:
    """A pool of one thread, which is busy: the next request waits."""

    def __init__(self, queue: int) -> None:
        self.gate = threading.Event()
        self.refused: list[str] = []
        self.order: list[tuple[str, str]] = []
        self.pool = HistoryPool(cast("Any", None), threads=1, queue=queue, on_evicted=self.refused.append)
        self.first = asyncio.create_task(self.pool.read(lambda _: self.gate.wait(30), ("first", "")))

    async def ask(self, address: str, kind: str) -> asyncio.Task[Any]:
        asked = asyncio.create_task(self.pool.read(lambda _: self.order.append((address, kind)), (address, kind)))
        await asyncio.sleep(0)
        return asked

    async def end(self, asked: list[asyncio.Task[Any]]) -> list[Any]:
        self.gate.set()
        await self.first
        found = await asyncio.gather(*asked, return_exceptions=True)
        self.pool.close()
        return found


@pytest.mark.parametrize("addresses", [1, 2, 5, 16, 31])
def test_questions_of_all_kinds_by_some_addresses_keep_no_other_address_out(addresses: int) -> None:
    async def scene() -> None:
        crowd = Crowd(queue=32)
        many = [await crowd.ask(f"10.0.0.{n}", kind) for kind in KINDS * 4 for n in range(addresses)]
        one = await crowd.ask("192.0.2.1", "route")
        assert crowd.pool.waiting == 32
        await crowd.end([*many, one])
        assert one.exception() is None
        assert "192.0.2.1" not in crowd.refused
        # One turn of every address comes first.
        assert crowd.order.index(("192.0.2.1", "route")) <= addresses

    asyncio.run(scene())


def test_addresses_take_turns_and_kinds_take_turns_within_an_address() -> None:
    async def scene() -> list[tuple[str, str]]:
        crowd = Crowd(queue=32)
        asked = [await crowd.ask("a", kind) for kind in ("diff", "diff", "diff", "blame", "route")]
        asked += [await crowd.ask("b", "diff"), await crowd.ask("b", "diff")]
        await crowd.end(asked)
        return crowd.order

    a, b = ("a", "diff"), ("b", "diff")
    assert asyncio.run(scene()) == [a, b, ("a", "blame"), b, ("a", "route"), a, a]


def test_among_addresses_with_equal_queues_the_last_served_is_refused() -> None:
    async def scene() -> list[str]:
        refused: list[str] = []
        pool = HistoryPool(cast("Any", None), threads=1, queue=3, on_evicted=refused.append)
        for address in ("early", "late"):
            await pool.read(lambda _: None, (address, "route"))
        gate = threading.Event()
        asked: list[asyncio.Task[Any]] = [asyncio.create_task(pool.read(lambda _: gate.wait(30), ("first", "route")))]
        for address in ("late", "early", "never", "new"):
            asked.append(asyncio.create_task(pool.read(lambda _: None, (address, "route"))))
            await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*asked, return_exceptions=True)
        pool.close()
        return refused

    assert asyncio.run(scene()) == ["late"]


def until_interrupted(_: Any) -> None:
    while not threading.Event().wait(0.005):
        check_interrupted()


def test_a_question_that_takes_too_long_ends_and_says_so() -> None:
    async def scene() -> None:
        pool = HistoryPool(cast("Any", None), threads=2, queue=4, deadline_s=0.05)
        slow = [asyncio.create_task(pool.read(until_interrupted, ("a", "report"))) for _ in range(2)]
        assert await pool.read(lambda _: "answer", ("b", "route")) == "answer"
        for ended in await asyncio.gather(*slow, return_exceptions=True):
            assert isinstance(ended, Problem)
            assert "0.05 s" in str(ended)
        await eventually(lambda: pool._free == pool._may_be_ending == 2)
        pool.close()

    asyncio.run(scene())


def test_a_query_that_cannot_be_interrupted_does_not_block_others() -> None:
    async def scene() -> None:
        gate = threading.Event()
        pool = HistoryPool(cast("Any", None), threads=2, queue=4, deadline_s=0.05)
        slow = [asyncio.create_task(pool.read(lambda _: gate.wait(60), ("a", "report"))) for _ in range(2)]
        assert await asyncio.wait_for(pool.read(lambda _: "answer", ("b", "route")), 20) == "answer"
        await asyncio.gather(*slow, return_exceptions=True)
        # No more threads than these are spent on it.
        slow = [asyncio.create_task(pool.read(lambda _: gate.wait(60), ("a", "report"))) for _ in range(2)]
        await asyncio.gather(*slow, return_exceptions=True)
        late = asyncio.create_task(pool.read(lambda _: "late", ("b", "route")))
        await eventually(lambda: pool.waiting == 1)
        gate.set()
        assert await late == "late"
        await eventually(lambda: pool._free == pool._may_be_ending == 2)
        pool.close()

    asyncio.run(scene())


@pytest.mark.parametrize("how", ["gone", "cancelled"])
def test_a_question_ends_with_whoever_asked_it(how: str) -> None:
    async def scene() -> None:
        pool = HistoryPool(cast("Any", None), threads=1, queue=4)
        loop = asyncio.get_running_loop()
        gone = loop.create_future()
        asked = [
            asyncio.create_task(pool.read(query, ("a", "report"), gone)) for query in (until_interrupted, lambda _: 1)
        ]
        await eventually(lambda: pool.waiting == 1)

        def leave() -> None:
            for task in asked:
                task.cancel()

        end: dict[str, Callable[[], None]] = {"gone": lambda: gone.set_result(None), "cancelled": leave}
        end[how]()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(error) for error in found} == {Problem if how == "gone" else asyncio.CancelledError}
        assert pool.waiting == 0
        await eventually(lambda: pool._free == pool._may_be_ending == 1)
        pool.close()

    asyncio.run(scene())
