# SPDX-License-Identifier: Apache-2.0
"""Who waits for a view to come to an offset, and who is told that it is another one."""

from __future__ import annotations

import asyncio

import pytest

from api import moving_view
from api.moving_view import MovingView
from api.view.snapshot import RouteView
from tests.api.view.feed import apply
from tests.support.loops import on_a_loop
from tests.support.view_tables import TableChanges

ENTRY: TableChanges = {"kvConfigTable": {("n", "k"): {"value": "v"}}}


@on_a_loop
async def test_everybody_waits_for_his_own_offset() -> None:
    moving = MovingView()
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
async def test_whoever_has_given_up_is_forgotten() -> None:
    moving = MovingView()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moving_view, "_PRUNE_WAITERS", 5)
        for _ in range(20):
            assert not await moving.wait_for(1, 0)
            assert len(moving._waiters) <= 5
    moving.reach(1)
    assert moving._waiters == []


@on_a_loop
async def test_followers_are_told_of_what_an_answer_may_show() -> None:
    moving, told = MovingView(), list[tuple[RouteView, RouteView]]()
    moving.follow(lambda before, after: told.append((before, after)))
    empty = moving.view
    moving.move(apply(empty, {}), 1)  # times of heartbeats alone
    assert told == []
    beaten = moving.view
    moving.move(apply(beaten, ENTRY), 2)
    assert told == [(beaten, moving.view)]
