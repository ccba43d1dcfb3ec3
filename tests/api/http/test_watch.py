# SPDX-License-Identifier: Apache-2.0
"""Requests that wake when a view moves: those for topics with another route, some at a time."""

from __future__ import annotations

import asyncio

import pytest

from api.http.watch import _AT_ONCE, ViewWatch, Woken
from dev.support.feed import apply, view_of
from dev.support.loops import on_a_loop
from dev.support.view_tables import TableChanges, complete

ROW = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
GROUP = {"cluster": "c1", "brokerAddrs": {0: "a0"}, "zoneName": None, "enableActingMaster": False}
BEFORE: TableChanges = complete(
    {"topicQueueTable": {("broker-a", "t1"): ROW}, "brokerAddrTable": {("broker-a",): GROUP}}
)


@pytest.mark.parametrize(
    ("changes", "woken"),
    [
        ({"topicQueueTable": {("broker-a", "t2"): ROW}}, {"t2"}),
        ({"topicQueueTable": {("broker-a", "t1"): None}}, {"t1"}),
        ({"topicQueueTable": {("broker-a", "t3"): ROW}}, set()),
        ({"brokerAddrTable": {("broker-a",): {**GROUP, "brokerAddrs": {0: "a1"}}}}, {"t1", "t2"}),
        ({"kvConfigTable": {("ORDER_TOPIC_CONFIG", "t1"): {"value": "broker-a:1"}}}, {"t1", "t2"}),
        ({"clusterAddrTable": {("c1", "broker-a"): {}}}, set()),
    ],
)
def test_pollers_that_a_change_wakes(changes: TableChanges, woken: set[str]) -> None:
    @on_a_loop
    async def play() -> None:
        watch, view = ViewWatch(9), view_of(BEFORE)
        gone = asyncio.get_running_loop().create_future()
        waiting = {topic: asyncio.create_task(watch.next_view(topic, 600, "a", gone)) for topic in ("t1", "t2")}
        await asyncio.sleep(0)
        watch.view_moved(view, apply(view, complete(changes)))
        for topic in woken:
            assert await waiting[topic] is Woken.CHANGED
        assert {topic for topic, task in waiting.items() if task.done()} == woken
        assert watch.waiting == 2 - len(woken)
        watch.close()
        await asyncio.gather(*waiting.values())

    play()


@on_a_loop
async def test_many_are_woken_some_at_a_time() -> None:
    watch, view = ViewWatch(10_000), view_of(BEFORE)
    gone = asyncio.get_running_loop().create_future()
    waiting = [asyncio.create_task(watch.next_view("t1", 600, "a", gone)) for _ in range(3 * _AT_ONCE + 1)]
    await asyncio.sleep(0)
    watch.view_moved(view, apply(view, complete({"topicQueueTable": {("broker-a", "t1"): None}})))
    turns = [sum(each.woken.done() for each in watch._waiting)]
    while watch.waiting:
        await asyncio.sleep(0)
        turns.append(sum(each.woken.done() for each in watch._waiting))
    assert turns[0] == _AT_ONCE
    assert max(turns) < len(waiting)
    assert set(await asyncio.gather(*waiting)) == {Woken.CHANGED}
