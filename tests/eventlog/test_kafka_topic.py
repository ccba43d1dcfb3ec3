# SPDX-License-Identifier: Apache-2.0
"""Creation of the topic of an event log, by a fake admin client."""

from __future__ import annotations

from typing import Any, cast

import pytest
from kafka import KafkaAdminClient
from kafka.errors import (
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)

from eventlog.kafka import topic as kafka_topic
from eventlog.kafka.topic import TOPIC_CONFIG, make_topic
from schemas.errors import SetupError


class Admin:
    """Answers each attempt to make a topic with the next of some errors, and then makes it."""

    def __init__(self, *errors: type[KafkaError]) -> None:
        self._errors = list(errors)
        self.made: dict[str, Any] = {}
        self.attempts = 0

    def create_topics(self, topics: dict[str, Any], *, wait_for_metadata: bool) -> None:
        assert wait_for_metadata
        self.attempts += 1
        if self._errors:
            raise self._errors.pop(0)
        self.made |= topics

    def make(self) -> None:
        make_topic(cast("KafkaAdminClient", self), ["k:9092"], "events", TOPIC_CONFIG)


def test_a_kafka_whose_brokers_have_not_registered_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topic, "AGAIN_S", 0)
    admin = Admin(*[InvalidReplicationFactorError] * 3)
    admin.make()
    assert admin.made["events"]["configs"] == TOPIC_CONFIG


def test_brokers_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """No refusal for good: the gateway is started again, and a broker may be late."""
    monkeypatch.setattr(kafka_topic, "BROKERS_S", -1)
    with pytest.raises(KafkaError, match=r"fewer brokers run than default\.replication\.factor requires"):
        Admin(InvalidReplicationFactorError).make()


def test_what_may_pass_is_no_refusal_for_good() -> None:
    with pytest.raises(RequestTimedOutError):
        Admin(RequestTimedOutError).make()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TopicAuthorizationFailedError, r"refused to create the topic events .*kafka-topics\.sh .*--partitions 1"),
        (InvalidTopicError, "cannot create the topic events: .*InvalidTopic"),
    ],
)
def test_refusals(error: type[KafkaError], said: str) -> None:
    admin = Admin(error)
    with pytest.raises(SetupError, match=said):
        admin.make()
    assert admin.attempts == 1
