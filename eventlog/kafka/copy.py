# SPDX-License-Identifier: Apache-2.0
"""A Kafka topic into which a log is copied, with the original event times.

Until `KafkaTarget.finish` the topic has message.timestamp.type=CreateTime. `eventlog.kafka.topic` refuses such a topic
as an event log.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Final

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from eventlog.base import LogRecord
from eventlog.kafka.access.probe import check_access
from eventlog.kafka.access.settings import AccessError, read_access
from eventlog.kafka.client import entered
from eventlog.kafka.reader import KafkaReader
from eventlog.kafka.topic import AGAIN_S, BROKERS_S, MAX_MESSAGE_BYTES, TOPIC_CONFIG, ensure_topic, make_topic
from eventlog.urls import parse_url
from schemas.errors import InDoubtError, SetupError, UnavailableError

_BATCH_BYTES: Final = 1024 * 1024
_ANSWER_MS: Final = 60_000
_TIME_TYPE: Final = "message.timestamp.type"


class KafkaTarget:
    """An `eventlog.copy.Target` in Kafka.

    Args:
        url: URL of the Kafka log. The first offset is added to the topic's name (`eventlog.urls.first_offset`).
        first: The first offset.

    Raises:
        SetupError: Kafka refuses access, or the topic is not suitable.
        UnavailableError: Kafka does not answer.
    """

    def __init__(self, url: str, first: int) -> None:
        bootstrap, topic, config = parse_url(url)
        self._topic = f"{topic}.from-{first}"
        self._bootstrap = bootstrap
        self._config = config
        self.name = f"kafka://{','.join(bootstrap)}/{self._topic}"
        self._is_log = False
        with contextlib.ExitStack() as stack, self._errors("open"):
            check_access(bootstrap, read_access(config), waits=False)
            self._admin = entered(KafkaAdminClient, bootstrap, config, request_timeout_ms=_ANSWER_MS)
            stack.callback(self._admin.close)
            self._make()
            self._producer = entered(
                KafkaProducer,
                bootstrap,
                config,
                acks="all",
                enable_idempotence=True,
                batch_size=_BATCH_BYTES,
                linger_ms=1000,
                max_request_size=MAX_MESSAGE_BYTES,
                request_timeout_ms=_ANSWER_MS,
                delivery_timeout_ms=2 * _ANSWER_MS,
                allow_auto_create_topics=False,
            )
            stack.callback(self._producer.close)
            self._reader = KafkaReader(bootstrap, self._topic, config)
            stack.callback(self._reader.close)
            self._clients = stack.pop_all()

    def end(self) -> int:
        """See `Target`."""
        begin, end = self._reader.bounds()
        if begin != self._reader.first:
            raise SetupError(
                f"records of {self.name} were deleted, so it is not a copy of this event log. Name another topic."
            )
        return end

    def between(self, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
        """See `Target`."""
        return self._reader.between(start, end)

    def write(self, records: Sequence[LogRecord]) -> None:
        """See `Target`."""
        if self._is_log:
            raise SetupError(f"{self.name} is already an event log, and not from this copy. Name another topic.")
        with self._errors("write", in_doubt=True):
            futures = [
                self._producer.send(
                    self._topic,
                    key=record.key.encode(),
                    value=record.payload,
                    partition=0,
                    timestamp_ms=record.event_time_ms,
                )
                for record in records
            ]
            self._producer.flush(timeout=2 * _ANSWER_MS / 1000)
            for future in futures:
                future.get(timeout=0)  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """See `Target`. The batches in the topic keep their event times."""
        with self._errors("finish"):
            self._set_log_times()
            deadline = time.monotonic() + BROKERS_S
            while not self._has_log_times() and time.monotonic() < deadline:
                time.sleep(AGAIN_S)  # brokers get the change from their controller
            ensure_topic(self._admin, self._bootstrap, self._topic)

    def close(self) -> None:
        """See `Target`."""
        self._clients.close()

    def _make(self) -> None:
        if self._topic in self._admin.list_topics():
            self._is_log = self._has_log_times()  # `eventlog.copy` compares its records
        else:
            make_topic(self._admin, self._bootstrap, self._topic, {**TOPIC_CONFIG, _TIME_TYPE: "CreateTime"})
        if not self._is_log:
            self._set_log_times(validate_only=True)  # a copy that cannot be finished is refused before it begins

    def _set_log_times(self, *, validate_only: bool = False) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic, {_TIME_TYPE: TOPIC_CONFIG[_TIME_TYPE]})
        said = self._admin.alter_configs([resource], validate_only)["topic"][self._topic]
        if said != "OK":
            raise AccessError(
                f"Kafka refuses a change of {_TIME_TYPE}, with which the copy ends ({said}). "
                "Give the user the permission AlterConfigs on the topic."
            )

    def _has_log_times(self) -> bool:
        resource = ConfigResource(ConfigResourceType.TOPIC, self._topic)
        described = self._admin.describe_configs([resource], config_filter="all")["topic"][self._topic]
        return bool(described[_TIME_TYPE]["value"] == TOPIC_CONFIG[_TIME_TYPE])

    @contextlib.contextmanager
    def _errors(self, doing: str, *, in_doubt: bool = False) -> Iterator[None]:
        try:
            yield
        except AccessError as error:
            raise AccessError(f"cannot {doing} {self.name}: {error}") from error
        except KafkaError as error:
            kind = InDoubtError if in_doubt else UnavailableError
            why = str(error) or type(error).__name__
            raise kind(f"cannot {doing} {self.name}: {why}. Run the command again. It continues from there.") from error
