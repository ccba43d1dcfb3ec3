# SPDX-License-Identifier: Apache-2.0
"""The log in one partition of a Kafka topic, for control planes whose gateways and fold run on several machines.

How it keeps the promises of `EventLog`:

- *One order*: the topic has one partition, and an append's records go into one record batch, which Kafka takes whole or
  not at all. Only a list of more than the topic's max.message.bytes needs several batches.
- *Durable*: acks=all and an idempotent producer. What that survives is the topic's replication factor and
  min.insync.replicas; Kafka's own default does not fsync, so one broker alone can lose its last second in a power cut.
- *Event time*: LogAppendTime, the clock of the partition's leader. Kafka does not keep it from going back when that
  clock is set back, or leadership moves to a broker whose clock is behind. Then readers let time stand until it is
  caught up (`eventlog.base.in_time`): run NTP on the brokers.
- *In doubt*: when the answer to a produce request is lost, nobody knows whether the records are in. The producer asks
  again, without duplicates, for as long as `DELIVERY_TIMEOUT_S`; then ``append`` raises InDoubtError,
  and they may turn up in the log later. The caller may append them again: events are idempotent
  facts.

Python's CRC-32C takes 23 ms per 200 KB; with the ``crc32c`` package installed, kafka-python uses that: 0.1 ms.
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
"""How long the producer tries. An append waits a little longer than this, never more."""

READ_TIMEOUT_S: Final = 15.0

_BATCH_OVERHEAD_BYTES: Final = 1024
"""Of a record batch of one event, with a RESUME in front and a CLOCK behind."""


class KafkaLog:
    """An `EventLog` in a Kafka topic, which is made if missing.

    Args:
        bootstrap: ``host:port`` of some brokers.
        topic: its name.
        config: a file of Kafka client properties; empty: Kafka is open.
        delivery_timeout_s: how long an append is tried.

    Raises:
        SetupError: Kafka refuses access, or the topic is not fit to be a log; the message says what to do.
        UnavailableError: no broker answers.
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
        # Each client has a lock of its own: a slow append does not hold up a read.
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
                # Nothing is sent before the flush (linger), hence the list becomes one batch.
                futures = [producer.send(self._topic, key=key, value=payload, partition=0) for key, payload in records]
                while not all(future.is_done for future in futures) and time.monotonic() < deadline:
                    # Again where Kafka found a batch too large: a flush ends when it is split, and its parts linger.
                    with contextlib.suppress(KafkaError):  # the futures say more
                        producer.flush(timeout=max(0.0, deadline - time.monotonic()))
                done = [
                    future.get(timeout=max(0.0, deadline - time.monotonic()))  # type: ignore[no-untyped-call]
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
            # The last offsets may hold no record, if somebody else wrote in a transaction.
            for back in (1, 100, 10_000):
                if records := reader.fetch(max(begin, end - back), end, back, DEFAULT_READ_BYTES):
                    return LogEnd(end, records[-1].event_time_ms)
            return LogEnd(end, None)

    def trim(self, before_offset: int, older_than_ms: int) -> int:
        """See `EventLog.trim`. One DeleteRecords request; Kafka frees the disk by whole segments, later."""
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
        """The reader, for one caller at a time."""
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
                # An append flushes; see there. As long as kafka-python allows: a busy machine takes seconds to queue.
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

    # After a time-out kafka-python 3.0's producer never sends again, though the broker is back. So a client that failed
    # is thrown away, and the next call makes another one; that takes 10 ms.

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
        """Turn Kafka's errors into ours, and throw away the client that met one."""
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
        """Return a better error for a Kafka that kafka-python could not reach."""
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
