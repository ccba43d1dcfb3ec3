# SPDX-License-Identifier: Apache-2.0
"""Epochs announced over Kafka: all receive them soon, over TLS and SASL. A Kafka that refuses delays no process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient
from kafka.errors import TopicAuthorizationFailedError

from dev.peers.kafka import Kafka
from dev.support.certificates import Authority
from dev.support.loops import until
from dev.support.secured_kafka import Properties
from eventlog.kafka.client import connected
from eventlog.open import open_log
from lake import announce as epochs
from lake.announce import SUFFIX, Announcements, Announcer
from schemas.errors import SetupError

pytestmark = pytest.mark.xdist_group("kafka")


class Heard:
    """A listener."""

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self.states: list[bool] = []
        self.times = 0
        self.version = -1

    def hears(self, is_so: bool, /) -> None:
        with self._moved:
            self.states.append(is_so)
            self._moved.notify_all()

    def announced(self, version: int, /) -> None:
        with self._moved:
            self.times += 1
            self.version = version
            self._moved.notify_all()

    def wait_for(self, found: Callable[[], bool]) -> None:
        with self._moved:
            assert self._moved.wait_for(found, 60), (self.states, self.times)


@pytest.mark.jvm
def test_an_epoch_is_heard_of_by_all(kafka: Kafka, authority: Authority, tmp_path: Path) -> None:
    file = Properties(tmp_path, authority)()
    url = f"kafka://127.0.0.1:{kafka.sasl_port}/announced.from-7?config={file}"
    one, two = Heard(), Heard()
    announcer, hearers = Announcer(url), [Announcements(url, one), Announcements(url, two)]
    announcer.start()
    for hearer in hearers:
        hearer.start()
    try:
        for heard in (one, two):
            heard.wait_for(lambda heard=heard: heard.states == [True])
        assert not one.times
        announcer.announce(4)
        for heard in (one, two):
            heard.wait_for(lambda heard=heard: heard.times > 0)
            assert heard.version == 4
        times = one.times
        announcer.announce(5)
        one.wait_for(lambda: one.times > times)
        times = one.times
        announcer.announce(6)
        announcer.stop()  # earlier announcements arrive
        one.wait_for(lambda: one.times > times)
    finally:
        for thread in (announcer, *hearers):
            thread.stop()
    assert one.states == [True, False]
    with closing(connected(KafkaAdminClient, [kafka.address])) as admin:
        assert f"announced.from-7{SUFFIX}" in admin.list_topics()
    open_log(f"kafka://{kafka.address}/announced.from-7").close()  # which is another topic


def test_a_kafka_that_does_not_let_us_is_tried_again_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Semaphore(0)

    def refuse(place: object) -> None:
        tried.release()
        raise SetupError("Kafka refused to create the topic") from TopicAuthorizationFailedError()

    monkeypatch.setattr(epochs, "_ensure_topic", refuse)
    monkeypatch.setattr(epochs, "_RETRY_S", 0.01)
    heard = Heard()
    announcer, hearer = Announcer("kafka://k:9092/events"), Announcements("kafka://k:9092/events", heard)
    announcer.announce(1)
    announcer.start()
    hearer.start()
    for _ in range(6):
        assert tried.acquire(timeout=30)
    announcer.announce(2)
    for thread in (announcer, hearer):
        thread.stop()
        until(lambda thread=thread: not thread._thread.is_alive())
    assert heard.states == []


def test_what_was_announced_before_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    class Producer:
        def send(self, _topic: str, *, value: bytes, partition: int) -> Producer:
            sent.append(value)
            return self

        def get(self, timeout: float) -> None:
            if len(sent) == 1:  # while the first one is under way
                announcer.announce(6)
                announcer.ended.set()

    monkeypatch.setattr(epochs, "_ensure_topic", lambda _place: None)
    monkeypatch.setattr(epochs, "_producer", lambda _place: nullcontext(Producer()))
    announcer = Announcer("kafka://k:9092/events")
    announcer.announce(5)
    announcer._work()
    assert sent == [b"5", b"6"]


def test_a_record_that_is_no_number_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [None, b"", b'{"version": 7}', b"\x93\x01", b"seven", b"7"]

    class Consumer:
        def seek_to_end(self, _partition: object) -> None: ...

        def position(self, _partition: object, timeout_ms: int) -> int:
            return 0

        def poll(self, timeout_ms: int) -> dict[str, list[SimpleNamespace]]:
            announcements.ended.set()
            return {"partition": [SimpleNamespace(value=value) for value in values]}

    monkeypatch.setattr(epochs, "_ensure_topic", lambda _place: None)
    monkeypatch.setattr(epochs, "log_consumer", lambda *_arguments, **_named: Consumer())
    monkeypatch.setattr(epochs, "close_consumer", lambda _consumer: None)
    heard = Heard()
    announcements = Announcements("kafka://k:9092/events", heard)
    announcements._work()
    assert (heard.times, heard.version, heard.states) == (1, 7, [True, False])


def test_whatever_is_raised_it_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka client raises more than its own errors. No one would notice that a thread has ended."""
    tries: list[int] = []

    def fail(self: Announcer) -> None:
        tries.append(1)
        if len(tries) < 4:
            raise [OSError("odd"), ValueError("odd"), AssertionError("odd")][len(tries) - 1]
        self.ended.set()

    monkeypatch.setattr(epochs, "_RETRY_S", 0.001)
    monkeypatch.setattr(Announcer, "_work", fail)
    announcer = Announcer("kafka://127.0.0.1:1/topic")
    announcer.start()
    announcer._thread.join(10)
    assert len(tries) == 4
