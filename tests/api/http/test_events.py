# SPDX-License-Identifier: Apache-2.0
"""Server-sent events over real sockets: as epochs come, filtered, resumed, reset."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.types import Send

from api.http import events
from api.http.history_pool import HistoryPool
from api.http.problems import Problem
from api.http.settings import HttpSettings
from dev.support.accounts import ACCOUNTS, TOKENS, accounts_file, hashed, policy
from dev.support.http_api import broker
from dev.support.live import LiveRoutelake
from dev.support.local import LocalLake
from dev.support.loops import eventually, until
from lake.history import epoch_events
from lake.history.epoch_events import EpochEvent
from schemas.errors import UnavailableError
from schemas.route_commit import EpochMark


def mark(epoch: int) -> EpochMark:
    return EpochMark(epoch, f"{epoch:08x}")


class Listener:
    """Reads events one by one; comments and bare ids move ``last``, as in a browser."""

    def __init__(self, answer: httpx.Response) -> None:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        self.last = ""
        self._lines = answer.iter_lines()

    def block(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self._lines:
            if not line:
                self.last = found.get("id", self.last)
                return found
            name, _, value = line.partition(": ")
            found[name] = value
        raise AssertionError("it has ended")

    def event(self) -> tuple[str, dict[str, Any]]:
        while True:
            found = self.block()
            if "data" in found:
                return found["event"], json.loads(found["data"])

    @property
    def epoch(self) -> int:
        return EpochMark.parse(self.last).epoch

    def until_topic(self, topic: str) -> dict[str, Any]:
        while True:
            kind, data = self.event()
            assert kind == "epoch"
            assert data["epoch"] == self.epoch
            if topic in data["topics"]:
                return data

    def rest(self) -> list[str]:
        """Until it ends."""
        return list(self._lines)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRoutelake]:
    live = LiveRoutelake(tmp_path_factory.mktemp("events"), http=HttpSettings(max_subscribers=5))
    register(live, "first")
    yield live
    live.close()


@contextmanager
def listening(live: LiveRoutelake, query: str = "", last: str | int | None = None) -> Iterator[Listener]:
    headers = {} if last is None else {"last-event-id": str(last)}
    url = f"{live.http_url}/v1/events{query}"
    with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
        listener = Listener(answer)
        assert listener.block()["retry"] == "2000"
        yield listener


def register(live: LiveRoutelake, topic: str, name: str = "broker-a", counter: int = 1) -> int:
    """Until an epoch has it; that epoch, or a later one."""
    body = broker(name, topics=[topic, "other"], counter=counter)
    answer = httpx.post(f"{live.http_url}/v1/brokers/register", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    offset = answer.json()["offset"]
    found = httpx.get(f"{live.http_url}/v1/epochs?limit=1&wait_for={offset}&wait_timeout=30000", timeout=60)
    return int(found.json()["epochs"][0]["epoch"])


def test_an_event_for_each_epoch(live: LiveRoutelake) -> None:
    with listening(live) as all_of_them, listening(live, "?topic=seen&brokerName=broker-a") as one:
        before = all_of_them.epoch
        register(live, "unseen", counter=2)
        register(live, "seen", counter=3)
        assert all_of_them.until_topic("unseen")["epoch"] > before
        found = all_of_them.until_topic("seen")
        assert (found["topicCount"], found["brokers"], found["brokerCount"]) == (len(found["topics"]), ["broker-a"], 1)
        assert found["eventTime"].endswith("Z")
        assert one.until_topic("seen") == found
    until(lambda: live.app.context.events.subscribers == 0)


def test_an_epoch_of_times_of_heartbeats_alone_is_told_at_once(tmp_path: Path, monkeypatch: Any) -> None:
    """Found by torture: the epoch was sent together with the next one that changed more, which a full disk may delay."""
    monkeypatch.setattr(events, "QUIET_S", 3600.0)
    live = LiveRoutelake(tmp_path, liveness_interval_s=0.0)
    try:
        epoch = register(live, "beaten")
        with listening(live, last=epoch) as listener:
            until(lambda: live.app.context.events.subscribers > 0)
            names = {"clusterName": "c1", "brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911"}
            answer = httpx.post(f"{live.http_url}/v1/brokers/heartbeat", json=names, timeout=60)
            assert answer.status_code == 200
            _, data = listener.event()
            assert data["epoch"] > epoch
            assert (data["topicCount"], data["brokerCount"]) == (0, 0)
    finally:
        live.close()


def test_a_subscriber_resumes_from_the_tables(live: LiveRoutelake) -> None:
    before = register(live, "slept-0", counter=10)
    for number in range(1, 4):
        register(live, f"slept-{number}", counter=10 + number)
    for query, last in ((f"?from={before}", None), ("", before), ("?from=1", before)):
        with listening(live, query, last) as listener:
            epochs = [listener.until_topic(f"slept-{number}")["epoch"] for number in range(1, 4)]
            assert before < epochs[0] < epochs[1] < epochs[2]


@pytest.mark.parametrize("why", ["slept", "another lake"])
def test_a_subscriber_that_cannot_resume_gets_reset(
    live: LiveRoutelake, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    newest = register(live, f"reset-{why[:5]}", counter=20 + len(why))
    monkeypatch.setattr(epoch_events, "MAX_EPOCHS", 0)
    with listening(live, last=0 if why == "slept" else 10_000) as listener:
        kind, data = listener.event()
        assert kind == "reset"
        assert newest <= data["epoch"] == listener.epoch
        monkeypatch.undo()
        register(live, f"after-{why[:5]}", counter=40 + len(why))
        assert listener.until_topic(f"after-{why[:5]}")


def test_events_are_written_off_the_event_loop(live: LiveRoutelake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber may resume after a thousand epochs, and each may have 100,000 topics."""
    threads: list[str] = []
    text = events._text

    def noted(event: EpochEvent) -> bytes:
        threads.append(threading.current_thread().name)
        return text(event)

    monkeypatch.setattr(events, "_text", noted)
    with listening(live) as listener:
        register(live, "written", counter=300)
        listener.until_topic("written")
        with listening(live, last=0) as again:
            again.until_topic("written")
    assert len(threads) > 1
    assert {name.rpartition("_")[0] for name in threads} == {"http-history"}


def test_a_quiet_listener_is_told_where_it_stands(live: LiveRoutelake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUIET_S", 0.05)
    with listening(live, "?topic=never") as listener:
        newest = register(live, "quiet", counter=60)
        while listener.epoch < newest:
            assert "data" not in listener.block()


def test_one_too_many(live: LiveRoutelake) -> None:
    with listening(live), listening(live), listening(live), listening(live), listening(live):
        until(lambda: live.app.context.events.subscribers == 5)
        answer = httpx.get(f"{live.http_url}/v1/events", timeout=60)
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
    until(lambda: live.app.context.events.subscribers == 0)


@pytest.mark.parametrize(
    ("query", "last"),
    [
        ("?from=x", None),
        ("?from=1-x", None),
        ("?x=1", None),
        ("", "x"),
        ("", "-1"),
        ("", "1-xyz"),
        ("?topic=a&topic=b", None),
    ],
)
def test_what_is_refused(live: LiveRoutelake, query: str, last: str | None) -> None:
    headers = {} if last is None else {"last-event-id": last}
    answer = httpx.get(f"{live.http_url}/v1/events{query}", headers=headers, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:routelake:problem:bad-parameter"


async def serve(hub: events.EventHub, address: str, after: EpochMark | None, send: Send) -> None:
    stream = hub.stream(address, after, events.EventFilter())
    assert isinstance(stream, events._Stream)
    await stream._serve(send)


@pytest.mark.timeout(60)
def test_a_lake_that_takes_anothers_place_keeps_nobody_busy() -> None:
    """A subscriber with the newest epoch of the old lake, before the gateway has noticed the new one, waits for events."""

    async def play() -> None:
        newest = mark(7)
        sent: list[bytes] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message["body"])

        hub = events.EventHub(cast("HistoryPool", None), lambda: newest, 9)
        listening = [asyncio.create_task(serve(hub, "a", None, send))]
        await asyncio.sleep(0)
        newest = mark(3)
        listening.append(asyncio.create_task(serve(hub, "b", mark(7), send)))
        await asyncio.sleep(0)  # with the defect this one never comes to an end
        hub.view_moved()
        while sum(b"event: reset\nid: 3-00000003\n" in text for text in sent) < 2:
            await asyncio.sleep(0)
        hub.close()
        await asyncio.gather(*listening)

    asyncio.run(play())


def test_a_stop_ends_them(tmp_path: Path) -> None:
    live = LiveRoutelake(tmp_path)
    try:
        register(live, "first")
        with listening(live) as listener:
            live.stop()
            listener.rest()
        live.start()
        with listening(live, last=listener.last) as again:
            register(live, "again", counter=2)
            assert again.until_topic("again")
    finally:
        live.close()


def test_a_subscription_ends_when_its_account_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "accounts"
    path.mkdir()
    headers = {user: {"authorization": f"Bearer {token}"} for user, token in TOKENS.items()}
    with (
        LocalLake(tmp_path / "data") as lake,
        lake.gateway(http_port=0, policy=policy(), accounts=accounts_file(path)) as gateway,
    ):
        url = f"{gateway.http_url}/v1"

        def register(topic: str, counter: int) -> None:
            body = broker(topics=[topic, "other"], counter=counter)
            assert httpx.post(f"{url}/brokers/register", json=body, headers=headers["broker"], timeout=60).is_success

        with (
            httpx.stream("GET", f"{url}/events", headers=headers["reader"], timeout=60) as one,
            httpx.stream("GET", f"{url}/events", headers=headers["admin"], timeout=60) as other,
        ):
            mine, theirs = Listener(one), Listener(other)
            register("before", 1)
            mine.until_topic("before")
            theirs.until_topic("before")
            (path / "acl.yml").write_text(
                ACCOUNTS.replace("accessKey: reader", "accessKey: another").replace(
                    hashed("token-reader"), hashed("token-another")
                )
            )
            until(lambda: httpx.get(f"{url}/clusters", headers=headers["reader"], timeout=60).status_code == 401)
            register("after", 2)
            theirs.until_topic("after")
            assert all("after" not in line for line in mine.rest())


@pytest.mark.parametrize("error", [UnavailableError("no lake"), KeyError("a defect"), BaseException("a panic")])
def test_an_epoch_is_read_again_after_any_error(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(events, "_RETRY_S", 0.0)

    class Pool:
        failures = 2

        async def read(self, _ask: object, _who: object) -> list[events._Ready]:
            self.failures -= 1
            if self.failures >= 0:
                raise error
            event = EpochEvent(8, datetime.now(UTC), 8, frozenset({"orders"}), frozenset(), mark(8).digest)
            return [events._Ready(event, events._text(event))]

    async def play() -> None:
        newest, sent = mark(7), b""

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal sent
            sent += message["body"]

        hub = events.EventHub(cast("HistoryPool", Pool()), lambda: newest, 9)
        listening = asyncio.create_task(serve(hub, "a", None, send))
        await asyncio.sleep(0)
        newest = mark(8)
        hub.view_moved()
        await eventually(lambda: b"orders" in sent)
        hub.close()
        await listening

    asyncio.run(play())


@pytest.mark.parametrize(("last", "is_known"), [("own", True), ("other", False), ("plain", True)])
@pytest.mark.parametrize("away", [0, 2])
def test_an_id_of_another_lake_is_reset_though_this_one_has_an_epoch_of_that_number(
    live: LiveRoutelake, last: str, is_known: bool, away: int
) -> None:
    with listening(live) as listener:
        register(live, f"own-{last}-{away}", counter=100)
        listener.until_topic(f"own-{last}-{away}")
        known = EpochMark.parse(listener.last)
    for number in range(away):
        register(live, f"away-{last}-{away}-{number}", counter=101 + number)
    sent = {"own": str(known), "other": f"{known.epoch}-00000000", "plain": str(known.epoch)}[last]
    # Whether others listen meanwhile, and so the newest epochs are at hand, changes nothing.
    for count in range(2):
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(listening(live))
            again = stack.enter_context(listening(live, last=sent))
            if is_known and not away:
                register(live, f"next-{last}-{count}", counter=200 + count)
            kind, data = again.event()
            assert kind == ("epoch" if is_known else "reset")
            assert data["epoch"] == known.epoch + 1 if is_known else data["after"] == known.epoch
            assert EpochMark.parse(again.last).digest != "00000000"
    until(lambda: live.app.context.events.subscribers == 0)


def test_many_that_come_at_once_count_before_they_are_served() -> None:
    async def play() -> None:
        hub = events.EventHub(cast("HistoryPool", None), lambda: mark(7), 3)
        streams = [hub.stream("a", None, events.EventFilter()) for _ in range(3)]
        assert hub.subscribers == 3
        with pytest.raises(Problem, match="too many"):
            hub.stream("a", None, events.EventFilter())
        another = hub.stream("b", None, events.EventFilter())  # one of the address with most is evicted
        assert (hub.subscribers, hub._subscribers._counts) == (3, {"a": 2, "b": 1})
        del streams, another  # never served: the clients have gone
        gc.collect()
        assert (hub.subscribers, hub._subscribers._counts) == (0, {})
        hub.close()

    asyncio.run(play())
