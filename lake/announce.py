# SPDX-License-Identifier: Apache-2.0
"""Announcements of epochs of a lake in an object store, over the Kafka that has the event log.

After each publication the fold writes one record to a topic of its own, ``<event log's topic>-epochs``. The record is
the version of routeCommitTable, a decimal number. It tells gateways when to look into the store, and nothing else: what
they show comes from the store alone. A lost record delays a look.
If Kafka refuses the topic, gateways look as often as without Kafka.
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
    "retention.ms": "3600000",  # nobody reads what is older than its own start
    "segment.ms": "3600000",
}
"""What the topic is made with; one that is there is taken as it is."""

_ANSWER_S: Final = 10.0
_RETRY_S: Final = 30.0
_POLL_MS: Final = 1000


class Listener(Protocol):
    """Receiver of epoch announcements. Its methods are callable from any thread."""

    def hears(self, is_so: bool, /) -> None:
        """Report whether epochs are announced to it from now on."""

    def announced(self, version: int, /) -> None:
        """The store has this version of routeCommitTable."""


class _Thread:
    """A thread that uses a client of Kafka's, and begins anew some time after it has failed, at whatever."""

    def __init__(self, url: str, name: str, failing: str) -> None:
        self.place = parse_url(url)._replace(topic=parse_url(url).topic + SUFFIX)
        self.partition = TopicPartition(self.place.topic, 0)
        self.ended = threading.Event()
        self._failing = failing
        self._thread = critical_thread(self._run, name)

    def start(self) -> None:
        """Begin. Nothing is asked of Kafka on the caller's thread, and nothing raised."""
        self._thread.start()

    def stop(self) -> None:
        """End; Kafka may be left waiting."""
        self.ended.set()
        self._wake()
        self._thread.join(2.0)

    def _wake(self) -> None:
        """Let `_work` look whether it has ended."""

    def _work(self) -> None:
        """Until the end. Raises KafkaError, RoutelakeError."""
        raise NotImplementedError

    def _run(self) -> None:
        said = ""
        while not self.ended.is_set():
            try:
                self._work()
            except Exception as error:  # whatever a client of Kafka's raises: nobody waits for this thread
                if (why := one_line(error) or type(error).__name__) != said:
                    said = why
                    log = structlog.get_logger("routelake.epochs")
                    log.warning(
                        "epoch announcements fail; retrying", doing=self._failing, topic=self.place.topic, error=why
                    )
                self.ended.wait(_RETRY_S)


class Announcer(_Thread):
    """The fold's end: tells of epochs, and never holds it up.

    Args:
        url: Of the event log, in Kafka.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, "epochs-announcer", "cannot announce epochs over Kafka; gateways poll the store")
        self._news = threading.Event()
        self._version = -1

    def announce(self, version: int) -> None:
        """Announce a version of routeCommitTable; of several that wait only the newest is sent."""
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
    """A gateway's end.

    Args:
        url: Of the event log, in Kafka.
        listener: Is told, on this one's thread.
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
            consumer.position(self.partition, timeout_ms=int(_ANSWER_S * 1000))  # where its end is now
            self._listener.hears(True)
            while not self.ended.is_set():
                for records in consumer.poll(timeout_ms=_POLL_MS).values():
                    for record in records:
                        with contextlib.suppress(ValueError):  # not a number: written by somebody else
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
