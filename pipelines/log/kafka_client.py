# SPDX-License-Identifier: Apache-2.0
"""Clients of kafka-python, made so that a failed attempt leaves nothing behind."""

from __future__ import annotations

import contextlib
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

Client = TypeVar("Client", KafkaAdminClient, KafkaConsumer, KafkaProducer)


def connected(kind: type[Client], **config: Any) -> Client:  # noqa: ANN401 (as each client takes it)
    """A client that has found its brokers.

    When none answers, kafka-python 3.0 raises in the constructor and leaves a thread behind that goes on connecting for
    ever: one for each attempt while Kafka is down. So the network client is made here, and ended here.

    Raises:
        KafkaError: no broker answers, or not as it should.
    """
    made: list[Any] = []

    def kafka_client(**options: object) -> Any:  # noqa: ANN401 (untyped there)
        made.append(kind.DEFAULT_CONFIG["kafka_client"](**options))
        return made[-1]

    try:
        return kind(kafka_client=kafka_client, **config)
    except BaseException:
        for client in made:
            with contextlib.suppress(Exception):
                client.close()
            with contextlib.suppress(Exception):
                client._manager._net.stop()
        raise
