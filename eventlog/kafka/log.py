# SPDX-License-Identifier: Apache-2.0
"""The log in one partition of a Kafka topic, for gateways and a fold that run on several machines.

How it keeps the promises of `EventLog`:

- *One order*: the topic has one partition. The records of an append form one record batch, which Kafka accepts
  completely or not at all. Only a list of more than the topic's max.message.bytes needs several batches.
- *Durable*: acks=all and an idempotent producer. The topic's replication factor and min.insync.replicas decide which
  failures the records survive. By default Kafka does not fsync, so a single broker can lose its last second in a power
  cut.
- *Event time*: LogAppendTime, the clock of the partition's leader. It goes back if that clock is set back, or if a
  broker with a slower clock becomes leader. Then readers hold time until the clock has caught up
  (`eventlog.base.in_time`). Run NTP on the brokers.
- *In doubt*: if the answer to a produce request is lost, it is unknown whether the log has the records. The producer
  asks again, without duplicates, for `DELIVERY_TIMEOUT_S`. Then ``append`` raises InDoubtError, and the records may
  still appear in the log later. The caller may append them again, because events are idempotent.

CRC-32C in Python takes 23 ms per 200 KB. With the ``crc32c`` package, which kafka-python then uses, it takes 0.1 ms.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError

from eventlog.base import (
    DEFAULT_READ_BYTES,
    DEFAULT_READ_RECORDS,
    Appended,
    Entry,
    Limits,
    LogEnd,
    LogRecord,
)
from eventlog.kafka.access.settings import AccessError, read_access
from eventlog.kafka.client import close_producer, entered
from eventlog.kafka.reader import KafkaReader
from eventlog.kafka.topic import MAX_MESSAGE_BYTES, alter_command, ensure_topic
from eventlog.urls import first_offset
from schemas.errors import InDoubtError, SetupError, UnavailableError

DELIVERY_TIMEOUT_S: Final = 15.0
"""Maximum time for which the producer tries to deliver, in seconds. An append takes at most a little longer."""

READ_TIMEOUT_S: Final = 15.0

_BATCH_OVERHEAD_BYTES: Final = 1024
"""Overhead of a record batch of one event, with a RESUME event in front and a CLOCK event behind, in bytes."""


class KafkaLog:
    """An `EventLog` in a Kafka topic. The topic is created if it does not exist.

    Args:
        bootstrap: ``host:port`` of some brokers.
        topic: Name of the topic.
        config: File of Kafka client properties. Empty: no TLS and no authentication.
        delivery_timeout_s: Maximum time for which an append is tried, in seconds.

    Raises:
        SetupError: Kafka refuses access, or the topic is not suitable. The message has the remedy.
        UnavailableError: No broker answers.
    """

    def __init__(
        self, bootstrap: Sequence[str], topic: str, config: str = "", *, delivery_timeout_s: float = DELIVERY_TIMEOUT_S
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._config = config
        self._topic = topic
        self._partition = TopicPartition(topic, 0)
        self._first = first_offset(topic)
        self._delivery_timeout_s = delivery_timeout_s
        # Each client has its own lock, so that a slow append does not delay a read.
        self._append_lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._admin_lock = threading.Lock()
        self._closed = False
        self._producer: KafkaProducer | None = None
        self._reader: KafkaReader | None = None
        self._admin: KafkaAdminClient | None = None
        with self._admin_lock, self._admin_errors("open"):
            self.log_id, self._max_message_bytes = ensure_topic(self._open_admin(), self._bootstrap, topic)
        self.lineage = self.log_id  # no copy of a topic has its id
        wanted = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
        self.limits = Limits(
            self._max_message_bytes - _BATCH_OVERHEAD_BYTES,
            f": max.message.bytes of the topic {topic}. Run: {alter_command(self._bootstrap, topic, wanted)}"
            " (with what Kafka's policy allows, if it has one), and restart the gateways.",
        )

    def append(self, entries: Sequence[Entry], not_after_ms: int | None = None) -> list[Appended]:
        """See `EventLog.append`."""
        for key, payload in entries:
            self.limits.check(key, payload)
        records = [(key.encode(), bytes(payload)) for key, payload in entries]
        with self._append_lock:
            self._check_open()
            if not records:
                return []
            with self._errors("append to"):
                producer = self._open_producer()
            with self._errors("append to", self._close_producer, in_doubt=True):
                deadline = time.monotonic() + self._delivery_timeout_s + 5
                # Nothing is sent before the flush (linger), so the list becomes one batch.
                futures = [producer.send(self._topic, key=key, value=payload, partition=0) for key, payload in records]
                while not all(future.is_done for future in futures) and time.monotonic() < deadline:
                    # If Kafka refuses a batch as too large, it is split and the flush ends. Flush the waiting parts.
                    with contextlib.suppress(KafkaError):  # the futures have the exact error
                        producer.flush(timeout=max(0.0, deadline - time.monotonic()))
                late_s = max(0.0, deadline - time.monotonic())
                done = [  # `get` takes time to set a timer, so it only waits, or raises the error
                    future.value if future.succeeded() else future.get(timeout=late_s)  # type: ignore[no-untyped-call]
                    for future in futures
                ]
            return [Appended(self._first + metadata.offset, metadata.timestamp) for metadata in done]

    def read(
        self, start_offset: int, max_records: int = DEFAULT_READ_RECORDS, max_bytes: int = DEFAULT_READ_BYTES
    ) -> list[LogRecord]:
        """See `EventLog.read`."""
        with self._reading() as reader:
            return reader.read(start_offset, max_records, max_bytes)

    def kept_from(self, offset: int) -> int:
        """See `EventLog.kept_from`."""
        with self._reading() as reader:
            return reader.kept_from(offset)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        with self._reading() as reader:
            begin, end = reader.bounds()
            # The last offsets have no record if another program has written in a transaction.
            for back in (1, 100, 10_000):
                if records := reader.fetch(max(begin, end - back), end, back, DEFAULT_READ_BYTES):
                    return LogEnd(end, records[-1].event_time_ms)
            return LogEnd(end, None)

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        """See `EventLog.trim`. This sends one DeleteRecords request. Kafka frees whole segments of the disk later."""
        with self._reading() as reader:
            begin, end = reader.bounds()
            young = reader.first_since(max(0, older_than_ms))
        new_begin = min(before_offset, end - 1, end if young is None else young)
        if new_begin <= begin:
            return 0
        with self._admin_lock:
            self._check_open()
            with self._admin_errors("trim"):
                before = {self._partition: new_begin - self._first}
                self._open_admin().delete_records(before, timeout_ms=READ_TIMEOUT_S * 1000)
        return new_begin - begin

    def close(self) -> None:
        """See `EventLog.close`."""
        with self._append_lock, self._read_lock, self._admin_lock:
            self._closed = True
            self._close_producer()
            if self._reader is not None:
                self._reader.close()
            self._close_admin()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[KafkaReader]:
        """Yield the reader, to one caller at a time."""
        with self._read_lock:
            self._check_open()
            if self._reader is None:
                self._reader = KafkaReader(self._bootstrap, self._topic, self._config, READ_TIMEOUT_S)
            yield self._reader

    def _open_producer(self) -> KafkaProducer:
        if self._producer is None:
            self._producer = entered(
                KafkaProducer,
                self._bootstrap,
                self._config,
                acks="all",
                enable_idempotence=True,
                batch_size=self._max_message_bytes,
                # `append` flushes. The value is the maximum, because a busy machine takes seconds to queue records.
                linger_ms=int(self._delivery_timeout_s * 1000) // 2,
                max_request_size=MAX_MESSAGE_BYTES,
                max_block_ms=int(self._delivery_timeout_s * 1000),
                request_timeout_ms=int(self._delivery_timeout_s * 1000) // 2,
                delivery_timeout_ms=int(self._delivery_timeout_s * 1000),
                allow_auto_create_topics=False,
            )
        return self._producer

    def _open_admin(self) -> KafkaAdminClient:
        if self._admin is None:
            timeout_ms = int(READ_TIMEOUT_S * 1000)
            self._admin = entered(KafkaAdminClient, self._bootstrap, self._config, request_timeout_ms=timeout_ms)
        return self._admin

    # After a time-out, the producer of kafka-python 3.0 never sends again, even if the broker is back. So a client that
    # failed is closed, and the next call creates a new one in 10 ms.

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer)

    def _close_admin(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with contextlib.suppress(KafkaError):
                admin.close()

    @property
    def _name(self) -> str:
        return f"kafka://{','.join(self._bootstrap)}/{self._topic}"

    def _admin_errors(self, doing: str) -> contextlib.AbstractContextManager[None]:
        return self._errors(doing, self._close_admin)

    @contextlib.contextmanager
    def _errors(
        self, doing: str, close_client: Callable[[], None] = lambda: None, *, in_doubt: bool = False
    ) -> Iterator[None]:
        """Convert Kafka's errors to routelake's errors, and close the client that failed."""
        opens = doing == "open"
        try:
            yield
        except (AccessError, KafkaError) as error:
            close_client()
            why = self._why_closed(error) if opens else error
            text = f"cannot {doing} the event log {self._name}: {str(why) or type(why).__name__}"
            if opens and isinstance(why, (AccessError, AuthorizationError)):
                raise AccessError(text, log=self._name) from error
            kind = InDoubtError if in_doubt else UnavailableError
            raise kind(text, log=self._name) from error
        except SetupError:
            close_client()
            raise

    def _why_closed(self, error: Exception) -> Exception:
        """Return a more precise error if kafka-python could not reach Kafka."""
        if isinstance(error, KafkaTimeoutError):
            from eventlog.kafka.access.probe import check_access

            try:
                check_access(self._bootstrap, read_access(self._config), waits=False)
            except (AccessError, UnavailableError) as better:
                return better
        return error

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("the event log is closed")
