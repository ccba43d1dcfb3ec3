# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for a view to reach an offset, and callbacks for each new view."""

from __future__ import annotations

import asyncio
import heapq
from typing import Any

import pytest

from api.gateway import watched_view as moving_view
from api.gateway.watched_view import WatchedView
from dev.support.feed import apply
from dev.support.loops import on_a_loop
from dev.support.view_tables import TableChanges
from nameserver.view.snapshot import RouteView

ENTRY: TableChanges = {"kvConfigTable": {("n", "k"): {"value": "v"}}}


@on_a_loop
async def test_everybody_waits_for_his_own_offset() -> None:
    moving = WatchedView()
    waiting = [asyncio.create_task(moving.wait_for(offset, 30)) for offset in (7, 5, 6, 5)]
    await asyncio.sleep(0)
    moving.move(moving.view, 5)
    assert await waiting[1] and await waiting[3]
    assert not waiting[0].done() and not waiting[2].done()
    moving.reach(7)  # the log went on, and nothing came of it
    assert await waiting[0] and await waiting[2]
    assert await moving.wait_for(7, 0)
    assert not await moving.wait_for(8, 0.01)


@on_a_loop
async def test_a_waiter_that_gave_up_is_removed() -> None:
    moving = WatchedView()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving_view, "_PRUNE_WAITERS", 5)
        for _ in range(20):
            assert not await moving.wait_for(1, 0)
            assert len(moving._waiters) <= 5
    moving.reach(1)
    assert moving._waiters == []


@on_a_loop
async def test_a_newcomer_does_not_look_at_everybody_who_waits() -> None:
    """The heap is gone through again when it may be twice what it was: 8,000 waiters took 3 s."""
    moving, gone_through = WatchedView(), list[int]()

    def heapify(waiters: list[Any]) -> None:
        gone_through.append(len(waiters))
        is_heap(waiters)

    is_heap = heapq.heapify
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heapq, "heapify", heapify)
        patch.setattr(moving_view, "_PRUNE_WAITERS", 10)
        waiting = [asyncio.create_task(moving.wait_for(1, 600)) for _ in range(1_000)]
        await asyncio.sleep(0)
        assert gone_through == [10, 20, 40, 80, 160, 320, 640]
    moving.reach(1)
    assert all(await asyncio.gather(*waiting))


@on_a_loop
async def test_waiters_of_one_tick_share_a_timer_and_learn_who_was_late() -> None:
    moving, loop = WatchedView(), asyncio.get_running_loop()
    futures: list[asyncio.Future[str]] = [loop.create_future() for _ in range(100)]
    for offset, future in enumerate(futures):
        moving.finish(future, offset, 0.05, shown="shown", late="late")
    assert len(moving._ticks) <= 2  # the clock may have gone on
    moving.reach(49)
    assert sum(map(len, moving._ticks.values())) == 50
    assert await asyncio.gather(*futures) == ["shown"] * 50 + ["late"] * 50
    assert not moving._ticks
    moving.reach(99)
    assert not moving._waiters


@on_a_loop
async def test_reads_end_with_the_server_and_writes_do_not() -> None:
    moving = WatchedView()
    read = asyncio.create_task(moving.wait_for(1, 600, is_read=True))
    write = asyncio.create_task(moving.wait_for(1, 600))
    await asyncio.sleep(0)
    moving.end_reads()
    assert not await read
    assert not await moving.wait_for(1, 600, is_read=True)
    assert not write.done()
    moving.reach(1)
    assert await write
    assert await moving.wait_for(1, 600, is_read=True)
    assert not moving._reads


@on_a_loop
async def test_followers_are_told_of_what_an_answer_may_show() -> None:
    moving, told = WatchedView(), list[tuple[RouteView, RouteView]]()
    moving.follow(lambda before, after: told.append((before, after)))
    empty = moving.view
    moving.move(apply(empty, {}), 1)  # times of heartbeats alone
    assert told == []
    beaten = moving.view
    moving.move(apply(beaten, ENTRY), 2)
    assert told == [(beaten, moving.view)]


@on_a_loop
async def test_followers_of_epochs_receive_each_epoch() -> None:
    moving, told = WatchedView(), list[int]()
    moving.follow_epochs(lambda: told.append(moving.view.epoch))
    first = apply(moving.view, ENTRY)
    moving.move(first, 1)
    moving.move(first, 2)
    moving.move(apply(first, {}), 3)  # times of heartbeats alone
    assert told == [1, 2]
