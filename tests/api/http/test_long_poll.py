# SPDX-License-Identifier: Apache-2.0
"""Long polls: answered when this topic's route is another one, and only then."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from api.http.settings import HttpSettings
from tests.support.doors import Door, broker, problem
from tests.support.loops import until


def waiting(door: Door, path: str, tag: str, seconds: float = 30) -> Any:
    before = door.app.context.watch.waiting
    poll = door.begin("GET", f"{path}?wait={seconds}", headers={"if-none-match": tag})
    until(lambda: door.app.context.watch.waiting > before)
    return poll


def test_it_returns_when_the_route_changes_and_not_for_another_topic(door: Door) -> None:
    door.register(broker("lp-a", topics=("lp-1", "lp-2"), host=60))
    tag = door.get("/v1/topics/lp-1/route").headers["etag"]
    poll = waiting(door, "/v1/topics/lp-1/route", tag)
    door.register(broker("lp-b", topics=("lp-3", "lp-4"), host=61))
    door.settled()
    assert not poll.done()
    door.post("/v1/brokers/lp-a/wipe-write-perm")
    answer = poll.result(10)
    assert answer.status_code == 200
    assert answer.json()["queueDatas"][0]["perm"] == 4
    assert answer.headers["etag"] != tag
    until(lambda: door.app.context.watch.waiting == 0)


def test_it_returns_when_the_topic_goes_and_when_it_comes(door: Door) -> None:
    missing = door.get("/v1/topics/lp-new/route")
    poll = waiting(door, "/v1/topics/lp-new/route", missing.headers["etag"])
    door.register(broker("lp-c", topics=("lp-new", "lp-old"), host=62))
    answer = poll.result(10)
    assert answer.status_code == 200
    poll = waiting(door, "/v1/topics/lp-new/route", answer.headers["etag"])
    door.delete("/v1/topics/lp-new")
    problem(poll.result(10), 404, "topic-not-exist")


def test_when_the_time_is_over_nothing_changed(door: Door) -> None:
    door.register(broker("lp-d", topics=("lp-5", "lp-6"), host=63))
    tag = door.get("/v1/topics/lp-5/route").headers["etag"]
    began = time.monotonic()
    answer = door.get("/v1/topics/lp-5/route?wait=0.2", headers={"if-none-match": tag})
    assert time.monotonic() - began >= 0.2
    assert answer.status_code == 304
    assert door.get("/v1/topics/lp-5/route?wait=0", headers={"if-none-match": tag}).status_code == 304
    missing = door.get("/v1/topics/lp-none/route")
    problem(
        door.get("/v1/topics/lp-none/route?wait=0.1", headers={"if-none-match": missing.headers["etag"]}),
        404,
        "topic-not-exist",
    )


def test_without_a_tag_or_with_an_old_one_it_answers_at_once(door: Door) -> None:
    door.register(broker("lp-e", topics=("lp-7", "lp-8"), host=64))
    assert door.get("/v1/topics/lp-7/route?wait=300").status_code == 200
    assert door.get("/v1/topics/lp-7/route?wait=300", headers={"if-none-match": '"1-0"'}).status_code == 200
    problem(door.get("/v1/topics/lp-nothing/route?wait=300"), 404, "topic-not-exist")


def test_too_many_are_answered_at_once(make_door: Any) -> None:
    door: Door = make_door(http=HttpSettings(max_long_polls=1))
    door.register(broker())
    tag = door.get("/v1/topics/orders/route").headers["etag"]
    first = waiting(door, "/v1/topics/orders/route", tag)
    assert door.get("/v1/topics/orders/route?wait=30", headers={"if-none-match": tag}).status_code == 304
    door.loop.loop.call_soon_threadsafe(door.app.context.watch.close)
    assert first.result(10).status_code == 304
    assert door.get("/v1/topics/orders/route?wait=30", headers={"if-none-match": tag}).status_code == 304


def test_nothing_of_it_is_left_when_it_is_answered(door: Door) -> None:
    door.register(broker("lp-f", topics=("lp-9", "lp-10"), host=65))
    tag = door.get("/v1/topics/lp-9/route").headers["etag"]

    async def tasks() -> list[str]:
        return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert waiting(door, "/v1/topics/lp-9/route", tag, 0.2).result(10).status_code == 304
    assert not [name for name in door.loop.run(tasks()) if "_disconnected" in name or "watch" in name]
