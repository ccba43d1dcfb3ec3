# SPDX-License-Identifier: Apache-2.0
"""Clients of kafka-python, created so that a failed attempt leaves no thread behind."""

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
"""Maximum time of a search for a broker, in seconds."""

_RECONNECT_MS: Final = 1000
"""Maximum pause between attempts to reach a broker. kafka-python's own 30 s are longer than every time-out here."""

_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of one answer to a consumer, in bytes. A larger record comes alone."""


def connected(
    kind: type[Client],
    bootstrap: Sequence[str],
    access: KafkaAccess = _OPEN,
    **config: Any,  # noqa: ANN401 (as each takes it)
) -> Client:
    """Create a client that has found its brokers and has access.

    If no broker answers, the constructor in kafka-python 3.0 raises and leaves a thread that tries to connect forever.
    While Kafka is down, each attempt would leave one thread. So this function creates and closes the network client.

    Raises:
        KafkaError: No broker answers, or the answer is not valid.
        AccessError: A file that ``access`` names cannot be used.
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
    """Create a client with the current content of a file of client properties.

    If there is a file, the access probe asks the brokers first. The probe takes milliseconds, while kafka-python would
    try for `CONNECT_TIMEOUT_S` and report no reason.

    Raises:
        KafkaError: No broker answers, or the answer is not valid.
        AccessError: The brokers refuse access, or the file cannot be used.
    """
    access = read_access(config)
    if access.source:
        from eventlog.kafka.access.probe import check_access

        check_access(bootstrap, access, waits=True)
    return connected(kind, bootstrap, access, **options)


def log_consumer(
    bootstrap: Sequence[str], partition: TopicPartition, config: str, *, answer_s: float, offset_reset: str
) -> KafkaConsumer:
    """Create a consumer of the log's only partition.

    Args:
        bootstrap: Addresses of brokers.
        partition: Partition of the log.
        config: File of client properties, as in `KafkaPlace`.
        answer_s: Maximum time that a request may stay unanswered, in seconds.
        offset_reset: Behaviour at an offset that was deleted: ``earliest`` continues there, ``none`` is an error.

    Raises:
        KafkaError: No broker answers, or the answer is not valid.
        AccessError: As `entered`.
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
    """Close a producer without waiting for unsent records."""
    with contextlib.suppress(KafkaError):
        producer.close(timeout=0)  # flushes first; if that fails, it does not stop the thread
    producer._sender.force_close()  # type: ignore[attr-defined]  # so this stops the thread in any case


def close_consumer(consumer: KafkaConsumer) -> None:
    """Close a consumer within a second."""
    with contextlib.suppress(KafkaError):
        consumer.close(autocommit=False, timeout_ms=1000)
