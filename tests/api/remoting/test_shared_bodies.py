# SPDX-License-Identifier: Apache-2.0
"""Lists of topics: sorted, made once for all clients, and outside the event loop if they are long."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Collection

import pytest

from api.remoting import shared_bodies
from api.remoting.shared_bodies import TopicLists
from dev.support.feed import apply, view_of
from dev.support.loops import on_a_loop
from dev.support.view_tables import TableChanges, complete
from nameserver.view.snapshot import RouteView

ROW = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
TABLES: TableChanges = complete(
    {
        "topicQueueTable": {("broker-a", topic): ROW for topic in ("b", "ü", "a")},
        "clusterAddrTable": {("c1", "broker-a"): {}},
    }
)


class Asked:
    """Names that say in which thread they were asked for."""

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        self.threads: list[threading.Thread] = []

    def __call__(self) -> Collection[str]:
        self.threads.append(threading.current_thread())
        return self._names()


async def lists(found: TopicLists, view: RouteView, asked: Asked) -> list[list[str]]:
    bodies = await asyncio.gather(*(found.get(view, "all", asked) for _ in range(3)))
    return [json.loads(body)["topicList"] for body in bodies]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_list_is_made_once_for_all(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    monkeypatch.setattr(shared_bodies, "OFF_LOOP_TOPICS", 2 if is_large else 3)

    @on_a_loop
    async def play() -> None:
        found, view = TopicLists(), view_of(TABLES)
        for times in (1, 0):
            asked = Asked(lambda: view.topics)
            assert await lists(found, view, asked) == [["a", "b", "ü"]] * 3
            assert len(asked.threads) == times
            assert all((thread is not threading.current_thread()) is is_large for thread in asked.threads)
        later = apply(view, complete({"topicQueueTable": {("broker-a", "c"): ROW}}))
        asked = Asked(lambda: later.topics)
        assert await lists(found, later, asked) == [["a", "b", "c", "ü"]] * 3
        assert len(asked.threads) == 1
        assert not found._making

    play()


@on_a_loop
async def test_clusters_that_are_not_there_are_not_kept() -> None:
    found, view = TopicLists(), view_of(TABLES)
    for cluster, names in (("c1", ["a", "b", "ü"]), ("c2", [])):
        body = await found.get(view, "cluster", lambda name=cluster: view.topics_in(name), cluster)
        assert json.loads(body)["topicList"] == names
    assert len(found._bodies) == 0


def test_one_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_bodies, "OFF_LOOP_TOPICS", 0)

    def fails() -> Collection[str]:
        raise MemoryError

    @on_a_loop
    async def play() -> None:
        found, view = TopicLists(), view_of(TABLES)
        with pytest.raises(MemoryError):
            await found.get(view, "all", fails)
        assert json.loads(await found.get(view, "all", lambda: view.topics))["topicList"] == ["a", "b", "ü"]

    play()
