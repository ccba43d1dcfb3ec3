# SPDX-License-Identifier: Apache-2.0
"""Clients of kafka-python, made so that a failed attempt leaves nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from eventlog.kafka.access.options import client_options
from eventlog.kafka.access.settings import KafkaAccess, read_access

Client = TypeVar("Client", KafkaAdminClient, KafkaConsumer, KafkaProducer)

_OPEN: Final = KafkaAccess()

CONNECT_TIMEOUT_S: Final = 10.0
"""How long to look for a broker."""

_RECONNECT_MS: Final = 1000
"""Longest pause between attempts to reach a broker; kafka-python's 30 s outlast every time-out here."""

_FETCH_BYTES: Final = 4 * 1024 * 1024
"""One answer to a consumer; a larger record comes alone."""


def connected(
    kind: type[Client],
    bootstrap: Sequence[str],
    access: KafkaAccess = _OPEN,
    **config: Any,  # noqa: ANN401 (as each takes it)
) -> Client:
    """A client that has found its brokers, and was let in.

    When none answers, kafka-python 3.0 raises in the constructor and leaves a thread behind that goes on connecting for
    ever: one for each attempt while Kafka is down. So the network client is made here, and ended here.

    Raises:
        KafkaError: no broker answers, or not as it should.
        AccessError: Files that ``access`` names cannot be used.
    """
    options = client_options(access)
    made: list[Any] = []

    def kafka_client(**options: object) -> Any:  # noqa: ANN401 (untyped there)
        made.append(kind.DEFAULT_CONFIG["kafka_client"](**options))
        return made[-1]

    try:
        waits = {"bootstrap_timeout_ms": int(CONNECT_TIMEOUT_S * 1000), "reconnect_backoff_max_ms": _RECONNECT_MS}
        return kind(kafka_client=kafka_client, bootstrap_servers=list(bootstrap), **(waits | options | config))
    except BaseException:
        for client in made:
            with contextlib.suppress(Exception):
                client.close()
            with contextlib.suppress(Exception):
                client._manager._net.stop()
        raise


def entered(
    kind: type[Client],
    bootstrap: Sequence[str],
    config: str,
    **options: Any,  # noqa: ANN401 (as each takes it)
) -> Client:
    """The same by a file of client properties, as it stands there now.

    With a file the brokers are asked first whether they let us in: that takes milliseconds, while kafka-python goes on
    trying for `CONNECT_TIMEOUT_S` and does not say why.

    Raises:
        KafkaError: no broker answers, or not as it should.
        AccessError: they do not let us in, or the file cannot be used.
    """
    access = read_access(config)
    if access.source:
        from eventlog.kafka.access.probe import check_access

        check_access(bootstrap, access, waits=True)
    return connected(kind, bootstrap, access, **options)


def log_consumer(
    bootstrap: Sequence[str], partition: TopicPartition, config: str, *, answer_s: float, offset_reset: str
) -> KafkaConsumer:
    """A consumer of a log's one partition.

    Args:
        bootstrap: addresses of brokers.
        partition: of the log.
        config: as `KafkaPlace` has it.
        answer_s: how long Kafka may leave a request unanswered.
        offset_reset: where to go on from an offset that is not there: ``earliest``, or ``none`` for an error.

    Raises:
        KafkaError: no broker answers, or not as it should.
        AccessError: as `entered`.
    """
    consumer = entered(
        KafkaConsumer,
        bootstrap,
        config,
        request_timeout_ms=int(answer_s * 1000),
        enable_auto_commit=False,
        auto_offset_reset=offset_reset,
        max_partition_fetch_bytes=_FETCH_BYTES,
        allow_auto_create_topics=False,
    )
    consumer.assign([partition])
    return consumer


def close_producer(producer: KafkaProducer) -> None:
    """End it without waiting for what it has not sent."""
    with contextlib.suppress(KafkaError):
        producer.close(timeout=0)  # flushes first, and goes no further when that fails
    producer._sender.force_close()  # type: ignore[attr-defined]  # so this ends its thread in any case


def close_consumer(consumer: KafkaConsumer) -> None:
    """End it within a second."""
    with contextlib.suppress(KafkaError):
        consumer.close(autocommit=False, timeout_ms=1000)


def bounds(consumer: KafkaConsumer, partition: TopicPartition, *, first: int, answer_s: float) -> tuple[int, int]:
    """The log's oldest offset, and the one after the last; ``first`` is Kafka's 0. Raises KafkaError."""
    timeout_ms = int(answer_s * 1000)
    begin = consumer.beginning_offsets([partition], timeout_ms=timeout_ms)[partition]
    end = consumer.end_offsets([partition], timeout_ms=timeout_ms)[partition]
    return first + begin, first + end
