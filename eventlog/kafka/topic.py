# SPDX-License-Identifier: Apache-2.0
"""The Kafka topic of a log: created with the right settings, or checked. An error names the command that repairs it."""

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
"""max.message.bytes of the topic. It bounds a record batch, which is a little larger than its only payload."""

_SIZE: Final = "max.message.bytes"

TOPIC_CONFIG: Final = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # only folded records may be deleted, and only the fold knows which records are folded
    "retention.bytes": "-1",
    _SIZE: str(MAX_MESSAGE_BYTES),
}
"""Settings of a new topic. An existing topic must have the same, except for max.message.bytes, which is its limit."""

BROKERS_S: Final = 15.0
"""Maximum time for which a new topic waits for the brokers of its replicas, in seconds."""

AGAIN_S: Final = 0.2


def ensure_topic(admin: KafkaAdminClient, bootstrap: Sequence[str], topic: str) -> tuple[str, int]:
    """Create the topic, or check the existing one.

    Returns:
        The topic id (in Kafka 2.8 and newer each topic has one), and the limit max.message.bytes.

    Raises:
        SetupError: The topic is not suitable for an event log.
        KafkaError: Kafka reports another error.
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
    """Create a topic of one partition, or wait for the one that another process creates.

    Kafka answers InvalidReplicationFactorError while fewer brokers have registered than the topic has replicas, for
    example just after a start. Then the creation is tried again.

    Raises:
        SetupError: Kafka refuses the topic.
        KafkaError: The topic cannot be created yet, or Kafka does not answer.
    """
    deadline = time.monotonic() + BROKERS_S
    while True:
        try:
            spec = {"num_partitions": 1, "replication_factor": -1, "configs": dict(config)}
            admin.create_topics({topic: spec}, wait_for_metadata=True)
        except TopicAlreadyExistsError:
            admin.wait_for_topics([topic])  # another process was faster
        except (PolicyViolationError, InvalidConfigurationError) as error:
            if config.get(_SIZE) is not None:  # managed Kafka services allow smaller sizes only
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
