# SPDX-License-Identifier: Apache-2.0
"""How many topics a broker group has, the same however many there are."""

from __future__ import annotations

import asyncio

import pytest

from dev.support.feed import apply, view_of
from dev.support.loops import on_a_loop
from dev.support.view_tables import TableChanges, complete
from nameserver.view import sorted_topics
from nameserver.view.snapshot import RouteView
from nameserver.view.sorted_topics import TopicCounts

ROW = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
TABLES: TableChanges = complete(
    {"topicQueueTable": dict.fromkeys((("broker-a", "t1"), ("broker-a", "t2"), ("broker-b", "t2")), ROW)}
)


@pytest.mark.parametrize("is_large", [False, True])
def test_all_groups_are_counted_once(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    monkeypatch.setattr(sorted_topics, "OFF_LOOP_TOPICS", 1 if is_large else 9)
    counted = []

    count = RouteView.topic_counts

    def counts(view: RouteView) -> dict[str, int]:
        counted.append(view)
        return count(view)

    monkeypatch.setattr(RouteView, "topic_counts", counts)

    @on_a_loop
    async def play() -> None:
        found, view = TopicCounts(), view_of(TABLES)
        names = ("broker-a", "broker-b", "nobody")
        for _ in range(2):
            assert await asyncio.gather(*(found.get(view, name) for name in names)) == [2, 1, 0]
        assert len(counted) == is_large
        later = apply(view, complete({"topicQueueTable": {("broker-b", "t3"): ROW}}))
        assert await found.get(later, "broker-b") == 2
        assert len(counted) == 2 * is_large

    play()
