# SPDX-License-Identifier: Apache-2.0
"""The list of topics with their sums: now, as of, page by page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dev.support.http_api import HttpApi, broker


def test_topics_with_details_now_and_then(tmp_path: Path) -> None:
    api = HttpApi(tmp_path)
    try:
        api.register(broker("broker-a", topics={"td-0": 8, "td-1": 4}, cluster="c1", host=1))
        api.register(broker("broker-b", topics={"td-1": 2, "td-2": 1}, cluster="c2", host=2))
        api.post("/v1/brokers/broker-b/wipe-write-perm")
        last = api.settled()
        now = api.get("/v1/topics?details=true&prefix=td-").json()
        rows = [
            {"topicName": "td-0", "clusters": ["c1"], "brokers": 1, "readQueueNums": 8, "writeQueueNums": 8, "perms": [6]},
            {"topicName": "td-1", "clusters": ["c1", "c2"], "brokers": 2, "readQueueNums": 6, "writeQueueNums": 6, "perms": [4, 6]},
            {"topicName": "td-2", "clusters": ["c2"], "brokers": 1, "readQueueNums": 1, "writeQueueNums": 1, "perms": [4]},
        ]  # fmt: skip
        assert now == {"topicList": ["td-0", "td-1", "td-2"], "total": 3, "topics": rows}
        epoch = api.gateway.committed.view.epoch
        for as_of in (str(epoch), "now"):
            found = api.get(f"/v1/topics?details=true&prefix=td-&wait_for={last}&as_of={as_of}").json()
            assert found == now
        pages = [api.get("/v1/topics?details=true&prefix=td-&limit=2").json()]
        pages.append(
            api.get(
                "/v1/topics", params={"details": "true", "prefix": "td-", "limit": 2, "cursor": pages[0]["nextCursor"]}
            ).json()
        )
        assert [row for page in pages for row in page["topics"]] == rows
        api.delete("/v1/topics/td-1")
        api.settled()
        assert [row["topicName"] for row in api.get("/v1/topics?details=true&prefix=td-").json()["topics"]] == [
            "td-0",
            "td-2",
        ]
        assert api.get(f"/v1/topics?details=true&prefix=td-&as_of={epoch}").json()["topics"] == rows
        assert "topics" not in api.get("/v1/topics?prefix=td-").json()
    finally:
        api.close()


def test_names_and_sums_are_of_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many names are sorted outside the event loop. Meanwhile one of the topics is deleted."""
    api = HttpApi(tmp_path, fold=False)
    try:
        assert api.register(broker(topics=[f"t{number:06}" for number in range(10_050)])).is_success
        began, goes_on, beside = asyncio.Event(), asyncio.Event(), asyncio.to_thread

        async def sorts(*work: Any) -> Any:
            monkeypatch.undo()
            found = await beside(*work)
            began.set()
            await goes_on.wait()
            return found

        monkeypatch.setattr(asyncio, "to_thread", sorts)
        asked = api.begin("GET", "/v1/topics?details=true&limit=3")
        api.loop.run(began.wait())
        gone = api.delete("/v1/topics/t000001").json()["offset"]
        api.loop.loop.call_soon_threadsafe(goes_on.set)
        answer = asked.result(60)
        found = answer.json()
        assert int(answer.headers["x-routelake-offset"]) < gone
        assert found["topicList"] == ["t000000", "t000001", "t000002"]
        assert [each["topicName"] for each in found["topics"]] == found["topicList"]
    finally:
        api.close()
