# SPDX-License-Identifier: Apache-2.0
"""The Kafka topic of a log: made as it has to be, or checked; a refusal names the command that mends it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import structlog
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    AuthorizationError,
    BrokerResponseError,
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    PolicyViolationError,
    TopicAlreadyExistsError,
)

from eventlog.base import MAX_KEY_BYTES, MAX_PAYLOAD_BYTES
from schemas.errors import SetupError

log = structlog.get_logger("routelake.log")

MAX_MESSAGE_BYTES: Final = MAX_PAYLOAD_BYTES + 2 * MAX_KEY_BYTES
"""max.message.bytes of the topic: it bounds the record batch, which is a little larger than its one payload."""

_SIZE: Final = "max.message.bytes"

TOPIC_CONFIG: Final = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # only what has been folded may go, and only the fold knows what that is
    "retention.bytes": "-1",
    _SIZE: str(MAX_MESSAGE_BYTES),
}
"""What a topic is made with. An existing topic must agree, except on max.message.bytes, which then is the limit."""

BROKERS_S: Final = 15.0
"""How long a topic may wait for the brokers that its replicas need."""

AGAIN_S: Final = 0.2


def ensure_topic(admin: KafkaAdminClient, bootstrap: Sequence[str], topic: str) -> tuple[str, int]:
    """Make the topic, or check the one that is there.

    Returns:
        Its topic id (Kafka 2.8 and newer give one to each) and its max.message.bytes.

    Raises:
        SetupError: it is not fit to be a log.
        KafkaError: as Kafka reports it.
    """
    if topic not in admin.list_topics():
        make_topic(admin, bootstrap, topic, TOPIC_CONFIG)
    (described,) = admin.describe_topics([topic])
    partitions = len(described["partitions"])
    if partitions != 1:
        _refuse(
            f"the topic {topic} has {partitions} partitions, not one. Use another name, or delete it and run:",
            _create_command(bootstrap, topic, TOPIC_CONFIG),
        )
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    config = {
        name: str(entry["value"])
        for name, entry in admin.describe_configs([resource], config_filter="all")["topic"][topic].items()
    }
    wrong = {name: value for name, value in TOPIC_CONFIG.items() if name != _SIZE and config.get(name, value) != value}
    if wrong:
        found = ", ".join(f"{name}={config[name]}" for name in wrong)
        _refuse(
            f"the topic {topic} has settings that an event log cannot use ({found}). Run:",
            alter_command(bootstrap, topic, wrong),
        )
    return str(described["topic_id"]), min(int(config[_SIZE]), MAX_MESSAGE_BYTES)


def make_topic(admin: KafkaAdminClient, bootstrap: Sequence[str], topic: str, config: Mapping[str, str]) -> None:
    """Make a topic of one partition, or wait for the one that another process makes.

    A Kafka that has just started answers before its brokers have registered (InvalidReplicationFactorError); so it does
    while fewer are up than the topic has replicas.

    Raises:
        SetupError: Kafka refuses it.
        KafkaError: it cannot be made yet, or Kafka does not answer.
    """
    deadline = time.monotonic() + BROKERS_S
    while True:
        try:
            spec = {"num_partitions": 1, "replication_factor": -1, "configs": dict(config)}
            admin.create_topics({topic: spec}, wait_for_metadata=True)
        except TopicAlreadyExistsError:
            admin.wait_for_topics([topic])  # another process was faster
        except (PolicyViolationError, InvalidConfigurationError) as error:
            if config.get(_SIZE) is not None:  # managed Kafkas allow less, each another size
                config = {name: value for name, value in config.items() if name != _SIZE}
                log.warning(
                    "Kafka refuses max.message.bytes; using the cluster's default", topic=topic, error=str(error)
                )
                continue
            _refuse(
                f"Kafka refused to create the topic {topic} ({error}). Run:",
                _create_command(bootstrap, topic, config),
            )
        except AuthorizationError as error:
            _refuse(
                f"Kafka refused to create the topic {topic} ({error}). If Kafka refuses {_SIZE} in this command, "
                "remove it. The topic's limit is then the limit of events. Run:",
                _create_command(bootstrap, topic, config),
            )
        except InvalidReplicationFactorError as error:
            if time.monotonic() > deadline:
                raise InvalidReplicationFactorError(
                    f"the topic {topic} cannot be created: fewer brokers run than default.replication.factor requires"
                ) from error
            time.sleep(AGAIN_S)
            continue
        except BrokerResponseError as error:
            if error.retriable:
                raise
            raise SetupError(f"Kafka cannot create the topic {topic}: {error}", topic=topic) from error
        return


def alter_command(bootstrap: Sequence[str], topic: str, config: dict[str, str]) -> str:
    """Command with which an operator changes these settings of a topic."""
    settings = ",".join(f"{name}={value}" for name, value in config.items())
    return (
        f"kafka-configs.sh --bootstrap-server {','.join(bootstrap)} --alter --entity-type topics"
        f" --entity-name {topic} --add-config {settings}"
    )


def _create_command(bootstrap: Sequence[str], topic: str, config: Mapping[str, str]) -> str:
    settings = " ".join(f"--config {name}={value}" for name, value in config.items())
    return (
        f"kafka-topics.sh --bootstrap-server {','.join(bootstrap)} --create --topic {topic} --partitions 1 {settings}"
    )


def _refuse(why: str, command: str) -> NoReturn:
    raise SetupError(f"{why} {command}", command=command)
