# SPDX-License-Identifier: Apache-2.0
"""What both APIs share of a registration. (What comes again word for word: tests/api/gateway/test_repeated_registrations.py.)"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.gateway import registrations
from api.gateway.metrics import Metrics
from api.gateway.registrations import Registered, Registrations
from dev.histories.steps import Send
from dev.peers.java import wait_until
from dev.support.local import LocalGateway, LocalLake
from remoting.codec.commands import RequestContext, to_event
from remoting.codec.frame import RemotingCommand
from schemas.codes import RequestCode
from schemas.events import Actor, Channel, DeleteTopic, RegisterBroker, decode, encode, routing_key
from schemas.kv import existing
from security.admission.admission import Sender
from tests.examples.parts import ADDR1, ADDR2, T1, T2, A, config, put, register

REMOTING = Actor(gateway="local", via="remoting", peer="10.0.0.1:5")
HTTP = Actor(gateway="local", via="http")
ONE, OTHER = (register(A, ADDR1, topics=[config(T1), config(topic)]) for topic in (T2, "another"))


class Shared:
    """One `Registrations`, asked as both APIs ask it."""

    def __init__(self, lake: LocalLake, gateway: LocalGateway) -> None:
        self.lake, self.gateway = lake, gateway
        self.metrics = Metrics()
        self.registrations: Registrations = self._begin(self._make()).result(60)

    async def _make(self) -> Registrations:
        return Registrations(self.gateway.gateway, self.metrics)

    def _begin(self, work: Any) -> Future[Any]:
        return self.gateway.loop.start(work)

    def remoting(self, send: Send) -> Future[Registered]:
        asked = self.registrations.register_request(
            command(send), Sender(REMOTING, "REGISTER_BROKER"), Channel("local", "x-1"), lambda: None
        )
        return self._begin(asked)

    def http(self, send: Send) -> Future[Registered]:
        event = to_event(command(send), RequestContext(HTTP))
        assert isinstance(event, RegisterBroker)
        event = msgspec.structs.replace(event, channel=None)
        return self._begin(self.registrations.register(event, Sender(HTTP, "registerBroker"), 1))

    def written(self) -> list[tuple[str, list[str] | None]]:
        """Of each registration on the log: how it came, and its topics; None where they were left out."""
        events = [decode(record.payload) for record in self.lake.log.read(0, max_records=100)]
        return [
            (event.actor.via, None if event.topic_config_table is None else sorted(event.topic_config_table))
            for event in events
            if isinstance(event, RegisterBroker)
        ]


def command(send: Send) -> RemotingCommand:
    request = send.request()
    return RemotingCommand(RequestCode.REGISTER_BROKER, dict(request.ext), request.body, version=request.version)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    with LocalLake(tmp_path) as lake, lake.gateway(clock_interval_s=3600.0) as gateway:
        yield Shared(lake, gateway)


def test_a_registration_over_one_api_is_a_heartbeat_over_the_other(shared: Shared) -> None:
    for ask in (shared.remoting, shared.http, shared.remoting, shared.http):
        ask(ONE).result(30)
    assert shared.written() == [("remoting", sorted((T1, T2))), ("http", None), ("remoting", None), ("http", None)]
    text = shared.metrics.text().decode()
    for said in (
        'events_total{listener="remoting",outcome="applied"} 1.0',
        'events_total{listener="remoting",outcome="unchanged"} 1.0',
        'events_total{listener="http",outcome="unchanged"} 2.0',
    ):
        assert f"rocketmq_namesrv_registration_{said}" in text


def test_topics_that_turn_out_to_be_needed_are_written_after_all(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something came between the look at the view and the registration's place on the log."""
    shared.remoting(ONE).result(30)
    monkeypatch.setattr(registrations, "changes_nothing", lambda *_: True)
    deletion = DeleteTopic(actor=HTTP, topic=T2)
    for ask, via in ((shared.remoting, "remoting"), (shared.http, "http")):
        shared.lake.log.append([(routing_key(deletion), encode(deletion))])
        registered = ask(ONE).result(30)
        assert registered.receipt.verdict == "applied"
        assert shared.written()[-2:] == [(via, None), (via, sorted((T1, T2)))]
        assert T2 in shared.gateway.gateway.view.topics


def test_both_are_told_of_master_and_order_configuration(shared: Shared) -> None:
    with shared.gateway.connect() as client:
        client.call(put("ORDER_TOPIC_CONFIG", T1, f"{A}:4").request())
    shared.remoting(ONE).result(30)
    slave = register(A, ADDR2, 1)
    for ask in (shared.remoting, shared.http):
        result = ask(slave).result(30)
        assert result.master.master_addr == ADDR1
        assert existing(result.order_topic_config) == {T1: f"{A}:4"}


def test_a_wait_for_registrations_costs_the_same_however_many_are_under_way(shared: Shared) -> None:
    """A peer chooses both numbers: their product would hold up the loop for seconds. Calls are counted, not seconds."""

    def calls(registering: int, asking: int) -> int:
        counted = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        async def run() -> None:
            found, held = shared.registrations, asyncio.Event()
            patch.setattr(found, "_register_request", lambda *_: held.wait())
            under_way = [
                asyncio.create_task(
                    found.register_request(
                        command(ONE), Sender(REMOTING, "REGISTER_BROKER"), Channel("local", "x-1"), print
                    )
                )
                for _ in range(registering)
            ]
            sys.setprofile(count)
            try:
                waiting = []
                for _ in range(asking // 100):  # over many turns of the loop
                    waiting += [asyncio.create_task(found.settled(600.0)) for _ in range(100)]
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert not any(task.done() for task in waiting)
                held.set()
                await asyncio.gather(*waiting, *under_way)
            finally:
                sys.setprofile(None)
            assert not found._under_way

        with pytest.MonkeyPatch.context() as patch:
            shared._begin(run()).result(60)
            return counted

    assert calls(300, 1_000) < 2 * calls(1, 1_000)


def test_a_waiter_that_gave_up_is_not_woken_by_a_later_registration(shared: Shared) -> None:
    async def waits() -> None:
        found, held = shared.registrations, [asyncio.Event() for _ in range(3)]
        ends = iter(held)
        patch.setattr(found, "_register_request", lambda *_: next(ends).wait())

        def begin() -> asyncio.Task[Any]:
            return asyncio.create_task(
                found.register_request(
                    command(ONE), Sender(REMOTING, "REGISTER_BROKER"), Channel("local", "x-1"), lambda: None
                )
            )

        first, second = begin(), begin()
        both = asyncio.create_task(found.settled(600.0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        third = begin()
        await found.settled(0.0)
        assert not both.done(), "gave up before all"
        held[1].set()
        await second
        assert not both.done()
        held[0].set()
        await asyncio.gather(first, both)
        assert not third.done(), "came after them"
        held[2].set()
        await third

    with pytest.MonkeyPatch.context() as patch:
        shared._begin(waits()).result(30)


def test_a_request_that_was_overtaken_is_not_the_last_one(shared: Shared) -> None:
    """Another registration of the broker goes down while the first one waits to be folded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared.gateway.gateway.replica, "_round", lambda _: None)
        first = shared.remoting(ONE)
        wait_until(lambda: len(shared.written()) == 1, 30, "the first on the log")
        second = shared.http(OTHER)
        wait_until(lambda: len(shared.written()) == 2, 30, "the second on the log")
    first.result(30)
    second.result(30)
    shared.http(OTHER).result(30)
    shared.remoting(ONE).result(30)
    assert shared.written()[2:] == [("http", None), ("remoting", sorted((T1, T2)))]
