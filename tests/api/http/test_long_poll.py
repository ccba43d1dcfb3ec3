# SPDX-License-Identifier: Apache-2.0
"""Long polls: answered when this topic's route is another one, and only then."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from api.http.settings import HttpSettings
from dev.support.http_api import HttpApi, broker, problem
from dev.support.loops import until


def waiting(api: HttpApi, path: str, tag: str) -> Any:
    before = api.app.context.watch.waiting
    poll = api.begin("GET", f"{path}?wait=300", headers={"if-none-match": tag})
    until(lambda: api.app.context.watch.waiting > before)
    return poll


def test_a_long_poll_returns_for_its_own_topic_only(api: HttpApi) -> None:
    api.register(broker("lp-a", topics=("lp-1", "lp-2"), host=60))
    tag = api.get("/v1/topics/lp-1/route").headers["etag"]
    poll = waiting(api, "/v1/topics/lp-1/route", tag)
    api.register(broker("lp-b", topics=("lp-3", "lp-4"), host=61))
    api.settled()
    assert not poll.done()
    api.post("/v1/brokers/lp-a/wipe-write-perm")
    answer = poll.result(60)
    assert answer.status_code == 200
    assert answer.json()["queueDatas"][0]["perm"] == 4
    assert answer.headers["etag"] != tag
    until(lambda: api.app.context.watch.waiting == 0)


def test_a_long_poll_returns_when_the_topic_is_deleted_and_created(api: HttpApi) -> None:
    missing = api.get("/v1/topics/lp-new/route")
    poll = waiting(api, "/v1/topics/lp-new/route", missing.headers["etag"])
    api.register(broker("lp-c", topics=("lp-new", "lp-old"), host=62))
    answer = poll.result(60)
    assert answer.status_code == 200
    poll = waiting(api, "/v1/topics/lp-new/route", answer.headers["etag"])
    api.delete("/v1/topics/lp-new")
    problem(poll.result(60), 404, "topic-not-exist")


def test_when_the_time_is_over_nothing_changed(api: HttpApi) -> None:
    api.register(broker("lp-d", topics=("lp-5", "lp-6"), host=63))
    tag = api.get("/v1/topics/lp-5/route").headers["etag"]
    began = time.monotonic()
    answer = api.get("/v1/topics/lp-5/route?wait=0.2", headers={"if-none-match": tag})
    assert time.monotonic() - began >= 0.2
    assert answer.status_code == 304
    assert api.get("/v1/topics/lp-5/route?wait=0", headers={"if-none-match": tag}).status_code == 304
    missing = api.get("/v1/topics/lp-none/route")
    problem(
        api.get("/v1/topics/lp-none/route?wait=0.1", headers={"if-none-match": missing.headers["etag"]}),
        404,
        "topic-not-exist",
    )


def test_without_a_tag_or_with_an_old_one_it_answers_at_once(api: HttpApi) -> None:
    api.register(broker("lp-e", topics=("lp-7", "lp-8"), host=64))
    assert api.get("/v1/topics/lp-7/route?wait=300").status_code == 200
    assert api.get("/v1/topics/lp-7/route?wait=300", headers={"if-none-match": '"1-0"'}).status_code == 200
    problem(api.get("/v1/topics/lp-nothing/route?wait=300"), 404, "topic-not-exist")


def test_too_many_are_answered_at_once(make_api: Any) -> None:
    api: HttpApi = make_api(http=HttpSettings(max_long_polls=1))
    api.register(broker())
    tag = api.get("/v1/topics/orders/route").headers["etag"]
    first = waiting(api, "/v1/topics/orders/route", tag)
    began_s = time.monotonic()
    second = api.get("/v1/topics/orders/route?wait=300", headers={"if-none-match": tag})
    assert (second.status_code, second.headers["retry-after"]) == (304, "5")
    assert not first.done()
    api.loop.loop.call_soon_threadsafe(api.app.context.watch.close)
    assert first.result(60).status_code == 304
    assert api.get("/v1/topics/orders/route?wait=300", headers={"if-none-match": tag}).status_code == 304
    assert time.monotonic() - began_s < 60


def test_nothing_of_it_is_left_when_it_is_answered(api: HttpApi) -> None:
    api.register(broker("lp-f", topics=("lp-9", "lp-10"), host=65))
    tag = api.get("/v1/topics/lp-9/route").headers["etag"]

    async def tasks() -> list[str]:
        return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert api.get("/v1/topics/lp-9/route?wait=0.2", headers={"if-none-match": tag}).status_code == 304
    assert not [name for name in api.loop.run(tasks()) if "_disconnected" in name or "watch" in name]


def test_a_long_poll_waits_for_the_requested_view(make_api: Any) -> None:
    api: HttpApi = make_api(clock_interval_s=3600.0)
    path = "/v1/topics/orders/route"
    missing = api.get(f"{path}?reads=committed").headers["etag"]
    api.fold.pause()
    began = api.app.context.watch.waiting
    poll = api.begin("GET", f"{path}?wait=300&reads=committed", headers={"if-none-match": missing})
    until(lambda: api.app.context.watch.waiting > began)
    api.register(broker())
    assert api.get(path).status_code == 200
    assert not poll.done()
    api.fold.resume()
    assert poll.result(60).headers["x-routelake-epoch"] > "0"
