# SPDX-License-Identifier: Apache-2.0
"""Announcements of new epochs of a lake in an object store, over the Kafka cluster of the event log.

After each publication, the fold writes one record to the topic ``<event log's topic>-epochs``. The record is the
version of routeCommitTable, a decimal number. The record only tells gateways when to read the store. All data comes
from the store, so a lost record only delays a read. If Kafka refuses the topic, gateways poll as often as without
Kafka.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final, Protocol

import structlog
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from eventlog.kafka.client import close_consumer, close_producer, entered, log_consumer
from eventlog.kafka.topic import make_topic
from eventlog.urls import KafkaPlace, parse_url
from runtime.supervised_tasks import critical_thread
from schemas.errors import one_line

SUFFIX: Final = "-epochs"

TOPIC_CONFIG: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",  # a gateway reads no record older than its own start
    "segment.ms": "3600000",
}
"""Configuration of a new topic. An existing topic is used unchanged."""

_ANSWER_S: Final = 10.0
_RETRY_S: Final = 30.0
_POLL_MS: Final = 1000


class Listener(Protocol):
    """Receiver of epoch announcements. Its methods are callable from any thread."""

    def hears(self, is_so: bool, /) -> None:
        """Called with True if epochs are announced from now on, False if not."""

    def announced(self, version: int, /) -> None:
        """Called after the store got this version of routeCommitTable."""


class _Thread:
    """A thread that uses a Kafka client. After any failure, it waits `_RETRY_S` and starts again."""

    def __init__(self, url: str, name: str, failing: str) -> None:
        self.place = parse_url(url)._replace(topic=parse_url(url).topic + SUFFIX)
        self.partition = TopicPartition(self.place.topic, 0)
        self.ended = threading.Event()
        self._failing = failing
        self._thread = critical_thread(self._run, name)

    def start(self) -> None:
        """Start the thread. The caller's thread sends no request to Kafka, and this raises no error of Kafka."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Wait at most 2 seconds for it, as a request to Kafka may take longer."""
        self.ended.set()
        self._wake()
        self._thread.join(2.0)

    def _wake(self) -> None:
        """Wake `_work`, so that it checks `ended`."""

    def _work(self) -> None:
        """Work until `ended` is set. Raises KafkaError, RoutelakeError."""
        raise NotImplementedError

    def _run(self) -> None:
        said = ""
        while not self.ended.is_set():
            try:
                self._work()
            except Exception as error:  # any error of a Kafka client: no caller waits for this thread
                if (why := one_line(error) or type(error).__name__) != said:
                    said = why
                    log = structlog.get_logger("routelake.epochs")
                    log.warning(
                        "epoch announcements fail; retrying", doing=self._failing, topic=self.place.topic, error=why
                    )
                self.ended.wait(_RETRY_S)


class Announcer(_Thread):
    """Announces epochs of the fold, without blocking it.

    Args:
        url: URL of the event log in Kafka.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, "epochs-announcer", "cannot announce epochs over Kafka; gateways poll the store")
        self._news = threading.Event()
        self._version = -1

    def announce(self, version: int) -> None:
        """Announce a version of routeCommitTable. If several wait, only the newest is sent."""
        self._version = version
        self._news.set()

    def _wake(self) -> None:
        self._news.set()

    def _work(self) -> None:
        _ensure_topic(self.place)
        with _producer(self.place) as producer:
            announced = -1
            while self._news.wait():
                self._news.clear()
                if (version := self._version) != announced:
                    sent = producer.send(self.place.topic, value=b"%d" % version, partition=0)
                    sent.get(timeout=_ANSWER_S)  # type: ignore[no-untyped-call]
                    announced = version
                if self.ended.is_set() and self._version == announced:
                    return


class Announcements(_Thread):
    """Receives announcements for a gateway.

    Args:
        url: URL of the event log in Kafka.
        listener: Receiver, called on this object's thread.
    """

    def __init__(self, url: str, listener: Listener) -> None:
        super().__init__(url, "epochs-announced", "cannot receive epoch announcements over Kafka; polling the store")
        self._listener = listener

    def _work(self) -> None:
        _ensure_topic(self.place)
        consumer = log_consumer(
            self.place.bootstrap, self.partition, self.place.config, answer_s=_ANSWER_S, offset_reset="latest"
        )
        try:
            consumer.seek_to_end(self.partition)
            consumer.position(self.partition, timeout_ms=int(_ANSWER_S * 1000))  # resolves the present end
            self._listener.hears(True)
            while not self.ended.is_set():
                for records in consumer.poll(timeout_ms=_POLL_MS).values():
                    for record in records:
                        with contextlib.suppress(ValueError):  # not a number: another program wrote it
                            self._listener.announced(int(record.value or b""))
        finally:
            self._listener.hears(False)
            close_consumer(consumer)


def _ensure_topic(place: KafkaPlace) -> None:
    admin = entered(KafkaAdminClient, place.bootstrap, place.config, request_timeout_ms=int(_ANSWER_S * 1000))
    try:
        if place.topic not in admin.list_topics():
            make_topic(admin, place.bootstrap, place.topic, TOPIC_CONFIG)
    finally:
        with contextlib.suppress(KafkaError):
            admin.close()


@contextlib.contextmanager
def _producer(place: KafkaPlace) -> Iterator[KafkaProducer]:
    producer = entered(
        KafkaProducer,
        place.bootstrap,
        place.config,
        acks=1,
        linger_ms=0,
        max_block_ms=int(_ANSWER_S * 1000),
        request_timeout_ms=int(_ANSWER_S * 1000) // 2,
        delivery_timeout_ms=int(_ANSWER_S * 1000),
        allow_auto_create_topics=False,
    )
    try:
        yield producer
    finally:
        close_producer(producer)
