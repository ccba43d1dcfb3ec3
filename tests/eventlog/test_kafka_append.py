# SPDX-License-Identifier: Apache-2.0
"""An append to Kafka, by a fake producer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import UnknownError
from kafka.future import Future

from eventlog.kafka import log as kafka_log
from eventlog.kafka.log import KafkaLog
from schemas.errors import InDoubtError


class Producer:
    """Sends a record with each flush, which raises while there are more.

    So does kafka-python's where Kafka finds a batch too large: it splits the batch.
    """

    def __init__(self, *, answers: bool = True) -> None:
        self._answers = answers
        self._queued: list[Any] = []
        self.flushes = 0

    def send(self, *_: object, **__: object) -> Any:
        self._queued.append(Sent())
        return self._queued[-1]

    def flush(self, timeout: float) -> None:
        assert timeout >= 0
        self.flushes += 1
        if self._answers:
            self._queued.pop(0).success(SimpleNamespace(offset=self.flushes, timestamp=7))
        if self._queued:
            raise UnknownError("Future not done")

    def close(self, timeout: float) -> None:
        pass

    _sender = SimpleNamespace(force_close=lambda: None)


class Sent(Future):
    """What `send` gives."""

    def get(self, timeout: float) -> Any:
        assert self.is_done or timeout == 0
        if not self.is_done:
            raise UnknownError("timed out")
        return self.value


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> Producer:
    made = Producer()
    monkeypatch.setattr(kafka_log, "ensure_topic", lambda *_: ("id", 1_000_000))
    monkeypatch.setattr(KafkaLog, "_open_admin", lambda self: None)
    monkeypatch.setattr(KafkaLog, "_open_producer", lambda self: made)
    return made


def test_parts_of_a_batch_that_was_split_are_sent_at_once(producer: Producer) -> None:
    log = KafkaLog(["k:9092"], "events")
    assert [at.offset for at in log.append([("k", b"v")] * 5)] == [1, 2, 3, 4, 5]
    assert producer.flushes == 5


def test_an_append_ends_in_time(producer: Producer) -> None:
    producer._answers = False
    with pytest.raises(InDoubtError, match="timed out"):
        KafkaLog(["k:9092"], "events", delivery_timeout_s=-4.9).append([("k", b"v")])
