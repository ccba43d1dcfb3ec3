# SPDX-License-Identifier: Apache-2.0
"""GET_BROKER_CLUSTER_INFO while brokers come and go: RocketMQ encodes its own tables, after it has let go of their lock.

DefaultRequestProcessor.getBrokerClusterInfo, ClusterInfo.encode; known difference 41.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from dev.model.client import RemotingClient
from dev.model.codes import GET_BROKER_CLUSTER_INFO, REGISTER_BROKER, SYSTEM_ERROR, UNREGISTER_BROKER
from dev.model.wire import Request, Response
from dev.support.local import LocalLake
from dev.support.rocketmq import StockNameServer

AT_ONCE = 4
BROKERS = 40
ENOUGH = 20_000
"""Of a stock NameServer one of forty answers was an exception."""


def _come_and_go(host: str, port: int, worker: int, over: threading.Event) -> None:
    client = RemotingClient(host, port)
    for number in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
        broker = {
            "clusterName": "c",
            "brokerName": f"b{worker}-{number % BROKERS}",
            "brokerAddr": f"10.0.{worker}.{number % BROKERS}:10911",
            "brokerId": str(number % 3),
        }
        client.call(Request(REGISTER_BROKER, broker))
        if number % 2:
            client.call(Request(UNREGISTER_BROKER, broker))
    client.close()


def _refused(host: str, port: int, asked: int) -> Response | None:
    """The first of so many answers that was none."""
    over = threading.Event()
    workers = [threading.Thread(target=_come_and_go, args=(host, port, worker, over)) for worker in range(AT_ONCE)]
    client = RemotingClient(host, port)
    try:
        for worker in workers:
            worker.start()
        answers = (client.call(Request(GET_BROKER_CLUSTER_INFO, {})) for _ in range(asked))
        return next((answer for answer in answers if answer.code), None)
    finally:
        over.set()
        for worker in workers:
            worker.join()
        client.close()


@pytest.mark.jvm
@pytest.mark.deep
def test_a_stock_nameserver_answers_with_an_exception() -> None:
    with StockNameServer() as server:
        refused = _refused(server.host, server.port, ENOUGH)
    assert refused is not None and refused.code == SYSTEM_ERROR
    assert "ConcurrentModificationException" in (refused.remark or "")


def test_routelake_always_answers(tmp_path: Path) -> None:
    with LocalLake(tmp_path, log_url=f"sqlite://{tmp_path / 'events.db'}") as lake, lake.gateway() as gateway:
        assert _refused("127.0.0.1", gateway.port, 500) is None
