# SPDX-License-Identifier: Apache-2.0
"""A one-way registration, and a client that asks for its topic at once, over another connection.

A broker of RocketMQ 4.9.7 answers the message that creates a topic before the NameServer knows the topic
(TopicConfigManager.createTopicInSendMessageMethod). If a client then gets "no such topic", it asks again after 30 s, or
does not start.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dev.model import codes
from dev.model.wire import Request
from dev.support.local import LocalLake
from dev.support.loops import until
from tests.examples.parts import config, register, version

TOPICS = 100
V4_9_7 = 407


def test_who_asks_right_after_finds_the_topic(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path, folds=False, log_url=f"sqlite://{tmp_path / 'events.db'}") as lake,
        lake.gateway() as gateway,
        gateway.connect() as broker,
        gateway.connect() as client,
    ):
        started = register(
            "broker-a", "10.0.0.1:10911", topics=[config("old"), config("another")], peer=V4_9_7
        ).request()
        assert broker.call(started).code == codes.SUCCESS
        for number in range(TOPICS):
            topic = f"t{number}"
            topics, at = [config("old"), config(topic)], version(0, 1, number + 1)
            sent = register("broker-a", "10.0.0.1:10911", topics=topics, at=at, peer=V4_9_7)
            broker.send(replace(sent.request(), oneway=True))
            asked = client.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
            assert asked.code == codes.SUCCESS, asked.remark


def test_who_asks_before_it_has_come_finds_the_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer has asked, its message has made the topic, a consumer asks, and then the registration comes."""
    monkeypatch.setattr("api.remoting.handlers._ON_ITS_WAY_S", 20.0)  # this test may be stopped for longer than 0.1 s
    with (
        LocalLake(tmp_path, folds=False, log_url=f"sqlite://{tmp_path / 'events.db'}") as lake,
        lake.gateway() as gateway,
        gateway.connect() as broker,
        gateway.connect() as producer,
        gateway.connect() as consumer,
    ):

        def registration(number: int) -> Request:
            topics = [config("old"), config(f"t{number}")]
            at = version(0, 1, number + 1)
            return register("broker-a", "10.0.0.1:10911", topics=topics, at=at, peer=V4_9_7).request()

        assert broker.call(registration(0)).code == codes.SUCCESS
        for number in range(1, TOPICS):
            asked = Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": f"t{number}"})
            assert producer.call(asked).code == codes.TOPIC_NOT_EXIST
            question = consumer.send(asked)
            time.sleep(0.002)  # (it is to come later; how much later makes no difference)
            broker.send(replace(registration(number), oneway=True))
            answer = consumer.receive(question)
            assert answer.code == codes.SUCCESS, answer.remark


def test_a_topic_that_nobody_registers_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a broker before 5.x, and with one: the second time it is waited for, and not for long."""
    asked = Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"})
    topics = [config("old"), config("another")]
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway() as gateway,
        gateway.connect() as broker,
        gateway.connect() as client,
    ):

        def refused_within(limit_s: float) -> None:
            began_s = time.monotonic()
            assert client.call(asked).code == codes.TOPIC_NOT_EXIST
            assert time.monotonic() - began_s < limit_s

        refused_within(4.0)
        refused_within(4.0)
        # Brokers of 5.x wait until the NameServer has answered. Their registrations delay no request.
        with monkeypatch.context() as patch:
            patch.setattr(gateway.gateway.replica, "_round", lambda _: None)
            patch.setattr(gateway.parts.handler._registrations, "settled", None)
            question = broker.send(register("broker-c", "10.0.0.3:10911", topics=topics).request())
            until(lambda: bool(gateway.parts.handler._registrations._under_way))
            refused_within(4.0)
        assert broker.receive(question).code == codes.SUCCESS
        old = register("broker-a", "10.0.0.1:10911", topics=topics, peer=V4_9_7).request()
        assert broker.call(old).code == codes.SUCCESS
        refused_within(4.0)
        # One that is under way is waited for as long as clients wait, and no longer.
        with monkeypatch.context() as patch:
            patch.setattr(gateway.gateway.replica, "_round", lambda _: None)
            question = broker.send(register("broker-b", "10.0.0.2:10911", topics=topics, peer=V4_9_7).request())
            until(lambda: bool(gateway.parts.handler._registrations._under_way))
            refused_within(4.0)
        assert broker.receive(question).code == codes.SUCCESS
