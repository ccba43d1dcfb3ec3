# SPDX-License-Identifier: Apache-2.0
"""Several gateways over one log and one lake: the same answers, one set of tables, and no way back in time.

The gateways are real and are asked over TCP; the fold and the Delta writer are real, too, without Spark (`FoldThread`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dev.histories.audit import audit_requests
from dev.histories.seeded import random_histories
from dev.histories.steps import CloseChannel, Send
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request, Response
from dev.peers.java import wait_until
from dev.support.local import LocalGateway, LocalLake
from schemas.events import ChannelClosed, decode
from tests.examples.parts import ADDR1, ADDR2, ADDR3, T1, T2, A, B, config, register, unregister, version

NAMES = ("one", "two", "three")


class Several:
    """Gateways over one lake, and one connection of an operator to each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        # Times of heartbeats make no table versions of their own here: every other one counts.
        self.lake = stack.enter_context(LocalLake(folder, liveness_interval_s=3600))
        self.gateways = [self.start(name) for name in NAMES]
        self._operators = [stack.enter_context(gateway.connect()) for gateway in self.gateways]

    def start(self, name: str, **settings: Any) -> LocalGateway:
        chosen = {"gateway_id": name, "clock_interval_s": 0.05, **settings}
        return self._stack.enter_context(self.lake.gateway(**chosen))

    def connect(self, gateway: int | LocalGateway) -> RemotingClient:
        """A connection of a broker; it stays open until the test ends, unless it is lost."""
        local = self.gateways[gateway] if isinstance(gateway, int) else gateway
        return self._stack.enter_context(local.connect())

    def ask(self, gateway: int, request: Request) -> Response:
        return self._operators[gateway].call(request)

    def common_answer(self, request: Request, *others: RemotingClient) -> Response:
        """What all gateways answer. A lost connection reaches the log a moment after it was lost, hence the patience."""
        answers: list[Response] = []

        def alike() -> bool:
            answers[:] = [client.call(request) for client in (*self._operators, *others)]
            return all(answer == answers[0] for answer in answers)

        wait_until(alike, 20, f"the same answers to {request}")
        return answers[0]

    def settle(self) -> None:
        """Wait until everything on the log is folded, and is in every view."""
        last = self.lake.log.end().next_offset - 1
        self.lake.fold.wait_for(last)
        for local in self.gateways:
            for view in (local.gateway.committed, local.gateway.live_view):
                assert local.loop.run(view.wait_for(last, 60))

    def versions(self) -> tuple[int, dict[str, int]]:
        """Epoch, and the version of every table; heartbeats alone change none."""
        self.settle()
        return self.lake.fold.writer.epoch, {
            name: table.version for name, table in self.lake.fold.writer.tables.items()
        }

    def have_route(self, topic: str = T1) -> list[bool]:
        """Which gateways answer a route."""
        self.settle()
        return [self.ask(gateway, route(topic)).code == codes.SUCCESS for gateway in range(len(NAMES))]

    def closings(self) -> int:
        """How many lost connections are on the log."""
        records = self.lake.log.read(0, max_records=100_000)
        return sum(isinstance(decode(record.payload), ChannelClosed) for record in records)

    def lose(self, connection: RemotingClient) -> None:
        """Close a broker's connection; returns when the log has it."""
        before = self.closings()
        connection.close()
        wait_until(lambda: self.closings() > before, 60, "the lost connection")


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Several]:
    with ExitStack() as stack:
        yield Several(tmp_path, stack)


def route(topic: str) -> Request:
    return Send(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).request()


def succeeds(connection: RemotingClient, send: Send) -> Response:
    answer = connection.call(send.request())
    assert answer.code == codes.SUCCESS, answer
    return answer


# --- the same answers ---


def test_all_answer_alike_whoever_was_told(several: Several) -> None:
    """A generated history is dealt out to three gateways; then every read of every gateway answers the same."""
    chance = random.Random(20261121)
    connections: dict[tuple[str, int], RemotingClient] = {}
    histories = random_histories(7, codes.MAIN_CODES | {codes.REGISTER_TOPIC_IN_NAMESRV}, length=40, closes=True)
    reads = 0
    for _ in range(2):
        for step in next(histories)[1]:
            if isinstance(step, Send):
                gateway = chance.randrange(len(NAMES))
                if (step.channel, gateway) not in connections:
                    connections[step.channel, gateway] = several.connect(gateway)
                connections[step.channel, gateway].call(step.request(), binary=step.binary)
            elif isinstance(step, CloseChannel):
                for key in [key for key in connections if key[0] == step.channel]:
                    connections.pop(key).close()
        several.settle()
        late = several.start(f"late-{reads}")
        with late.connect() as latecomer:
            for request in audit_requests():
                answer = several.common_answer(request, latecomer)
                reads += answer.code == codes.SUCCESS and bool(answer.body)
    assert reads > 20


def test_a_broker_may_register_with_one_or_some_or_all(several: Several) -> None:
    succeeds(several.connect(0), register(A, ADDR1, topics=[config(T1)] * 2 + [config("only-a")]))
    succeeds(several.connect(1), register(B, ADDR2))
    for gateway in range(3):
        succeeds(several.connect(gateway), register("broker-c", ADDR3))
    several.settle()
    for gateway in range(3):
        answer = several.ask(gateway, route(T1))
        assert {row["brokerName"] for row in json.loads(answer.body)["queueDatas"]} == {
            Send(0, {"name": name}).request().ext["name"] for name in (A, B, "broker-c")
        }


# --- no extra table versions ---


def test_registering_again_and_elsewhere_makes_no_table_version(several: Several) -> None:
    brokers = [several.connect(gateway) for gateway in range(3)]
    succeeds(brokers[0], register(A, ADDR1))
    before = several.versions()
    for _ in range(3):
        for broker in brokers:
            succeeds(broker, register(A, ADDR1))
    assert several.versions() == before


def test_a_change_told_to_all_at_once_is_one_epoch(several: Several) -> None:
    """As a stock broker does it: in parallel, to every address of namesrvAddr."""
    brokers = [several.connect(gateway) for gateway in range(3)]
    with ThreadPoolExecutor(3) as pool:
        for counter in range(1, 7):
            before, _ = several.versions()
            changed = register(A, ADDR1, topics=[config(T1, queues=counter), config(T2)], at=version(counter=counter))
            list(pool.map(lambda broker, changed=changed: succeeds(broker, changed), brokers))
            assert several.versions()[0] == before + 1
            for gateway in range(3):
                row = json.loads(several.ask(gateway, route(T1)).body)["queueDatas"][0]
                assert row["readQueueNums"] == counter
        before, _ = several.versions()
        list(pool.map(lambda broker: succeeds(broker, unregister(A, ADDR1)), brokers))
        assert several.versions()[0] == before + 1
    assert several.have_route() == [False] * 3


# --- lost connections, lost gateways ---


def test_a_connection_lost_to_one_gateway_is_no_loss(several: Several) -> None:
    brokers = [several.connect(gateway) for gateway in range(3)]
    for broker in brokers:
        succeeds(broker, register(A, ADDR1))
    before = several.versions()
    several.lose(brokers[1])
    several.lose(brokers[0])
    assert several.have_route() == [True] * 3
    assert several.versions() == before
    several.lose(brokers[2])
    assert several.have_route() == [False] * 3


def test_a_broker_may_reconnect_to_the_gateway_that_it_lost(several: Several) -> None:
    first, second = several.connect(0), several.connect(1)
    succeeds(first, register(A, ADDR1))
    succeeds(second, register(A, ADDR1))
    several.lose(first)
    again = several.connect(0)
    succeeds(again, register(A, ADDR1))
    several.lose(second)
    assert several.have_route() == [True] * 3
    several.lose(again)
    assert several.have_route() == [False] * 3


def test_the_old_connection_ends_after_the_new_one_registered(several: Several) -> None:
    """A broker that reconnects before its old connection is seen to end, to the same gateway, is not unregistered."""
    old = several.connect(0)
    succeeds(old, register(A, ADDR1))
    new = several.connect(0)
    succeeds(new, register(A, ADDR1))
    several.lose(old)
    assert several.have_route() == [True] * 3


def test_a_gateway_that_stops_unregisters_nobody(several: Several) -> None:
    """Neither those that another one hears nor, before their time, those that it alone heard."""
    fourth = several.lake.gateway(gateway_id="four")
    with fourth:
        to_fourth = several.connect(fourth)
        succeeds(to_fourth, register(A, ADDR1))
        succeeds(several.connect(0), register(A, ADDR1))
        succeeds(to_fourth, register(B, ADDR2, topics=[config("only-b"), config(T2)]))
        before = several.versions()
    assert several.closings() == 0
    assert several.have_route() == [True] * 3
    assert several.have_route("only-b") == [True] * 3
    assert several.versions() == before


def test_a_gateway_that_is_gone_vouches_for_nobody_for_long(several: Several) -> None:
    """A broker that only it heard, or that leaves the others afterwards, is gone after its own timeout."""
    fourth = several.lake.gateway(gateway_id="four")
    last = several.connect(0)
    with fourth:
        to_fourth = several.connect(fourth)
        for broker in (to_fourth, last):
            succeeds(broker, register(A, ADDR1, heartbeatTimeoutMillis="1500"))
        succeeds(to_fourth, register(B, ADDR2, heartbeatTimeoutMillis="1500"))
    several.lose(last)
    wait_until(lambda: several.have_route() == [False] * 3, 60, "both brokers to be gone")
