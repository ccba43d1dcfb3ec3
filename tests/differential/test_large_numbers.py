# SPDX-License-Identifier: Apache-2.0
"""The epoch of a static topic is a Java long: every digit of it is answered, in both dialects, as the real NameServer does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clients.route.transport import decode_route
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.local import local_client
from dev.support.rocketmq import StockNameServer
from schemas.rocketmq_json import decode_topic_route
from tests.examples.parts import config, mapping, register

pytestmark = pytest.mark.jvm

EPOCHS = [sign * number for number in (2**53 - 1, 2**53, 2**53 + 1, 10**18 + 7, 2**63 - 1) for sign in (1, -1)]
DIALECTS = {"standard": {"acceptStandardJsonOnly": "true"}, "bare keys": {}}


def answers(client: RemotingClient) -> dict[tuple[int, str], bytes]:
    found = {}
    for number, epoch in enumerate(EPOCHS):
        topic, name = f"static-{number}", f"broker-{number}"
        topics = [config(topic), config("TBW102")]  # one alone is no first registration
        step = register(name, f"10.0.1.{number}:10911", topics=topics, mappings=[mapping(topic, name, epoch)])
        assert client.call(step.request()).code == 0
        for dialect, more in DIALECTS.items():
            answer = client.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **more}))
            assert answer.code == 0, answer.remark
            found[epoch, dialect] = answer.body
    return found


def test_large_numbers_are_answered_with_every_digit(tmp_path: Path) -> None:
    with StockNameServer() as stock, local_client(tmp_path) as ours:
        with RemotingClient(stock.host, stock.port) as client:
            said = answers(client)
        found = answers(ours)
    assert found == said
    for (epoch, _), body in found.items():
        for read in (decode_topic_route(body), decode_route("", body)):
            (info,) = (read.topic_queue_mapping_by_broker or {}).values()
            assert info.epoch == epoch
    largest = json.loads(found[2**63 - 1, "standard"])["topicQueueMappingByBroker"]["broker-8"]["epoch"]
    assert largest == str(2**63 - 1)
