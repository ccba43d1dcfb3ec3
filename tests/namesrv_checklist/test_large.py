# SPDX-License-Identifier: Apache-2.0
"""100,000 topics in one registration, which closes the connection of a stock NameServer, and the frame limit itself."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path

import pytest

from clients.broker.registration import plain_body
from clients.broker.topic_config import TopicConfig, encode_entries
from dev.model import codes
from dev.model.client import ConnectionClosed, RemotingClient
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.support.rocketmq import StockNameServer
from remoting.server.settings import RemotingSettings
from schemas.broker import DataVersion
from tests.namesrv_checklist.brokers import MASTER, nameserver_on_the_wire

MIB = 1024 * 1024
TOPICS = 100_000


def big_registration(topics: int) -> Request:
    """As a stock 5.x broker writes it, every field of every TopicConfig included."""
    names = (f"department-{number % 97}_application-{number % 1013}_topic-{number}" for number in range(topics))
    table = {name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in names}
    body = plain_body(DataVersion(0, MASTER.timestamp, MASTER.counter), encode_entries(table))
    return Request(codes.REGISTER_BROKER, {**MASTER.header, "haServerAddr": "", "enableActingMaster": "false"}, body)


def test_100_000_topics_in_one_registration(tmp_path: Path) -> None:
    request = big_registration(TOPICS)
    assert 16 * MIB < len(request.body) < 64 * MIB
    with nameserver_on_the_wire(tmp_path) as ns:
        assert ns.local is not None
        began = time.monotonic()
        assert ns.client.call(request, timeout_s=30).code == codes.SUCCESS
        took_s = time.monotonic() - began
        print(f"{len(request.body) / MIB:.0f} MiB, visible after {took_s:.1f} s")
        assert took_s < 24, "registerBrokerTimeoutMills of a stock broker"
        assert len(ns.topics(codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == TOPICS
        last = json.loads(request.body)["topicConfigSerializeWrapper"]["topicConfigTable"].popitem()[0]
        assert ns.brokers(last) == {MASTER.name}
        # The next heartbeats bring all of it again and write no topic.
        for _ in range(2):
            assert ns.client.call(request, timeout_s=30).code == codes.SUCCESS
        sizes = [
            len(record.payload) for record in ns.local[0].log.read(1, max_bytes=256 * MIB) if len(record.payload) > 1000
        ]
        assert len(sizes) == 1


@pytest.mark.parametrize(("limit_mib", "is_taken"), [(64, True), (16, False)])
def test_the_frame_limit_is_a_setting(tmp_path: Path, limit_mib: int, is_taken: bool) -> None:
    """A registration of 20 MiB that means nothing: the frame alone decides whether it is looked at."""
    request = Request(codes.REGISTER_BROKER, {"bodyCrc32": "1"}, bytes(20 * MIB))
    with nameserver_on_the_wire(tmp_path, RemotingSettings(frame_limit_bytes=limit_mib * MIB)) as ns:
        if is_taken:
            assert ns.client.call(request, timeout_s=20).remark == "crc32 not match"
        else:
            with pytest.raises((ConnectionClosed, ConnectionError)):
                ns.client.call(request, timeout_s=20)
            with closing(ns.connect()) as another:
                assert another.call(Request(codes.GET_BROKER_CLUSTER_INFO)).code == codes.SUCCESS


@pytest.mark.jvm
def test_a_stock_nameserver_closes_the_connection() -> None:
    """The known difference, seen: frames over 16 MiB."""
    request = big_registration(TOPICS)
    with StockNameServer() as server, RemotingClient(server.host, server.port) as client:
        with pytest.raises((ConnectionClosed, ConnectionError)):
            client.call(request, timeout_s=20)
        wait_until(lambda: _answers(server), 60, "the NameServer", 0.1)


def _answers(server: StockNameServer) -> bool:
    with RemotingClient(server.host, server.port) as client:
        return client.call(Request(codes.GET_BROKER_CLUSTER_INFO)).code == codes.SUCCESS
