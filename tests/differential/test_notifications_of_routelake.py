# SPDX-License-Identifier: Apache-2.0
"""NOTIFY_MIN_BROKER_ID_CHANGE: routelake tells whom the model of the NameServer tells, and tells it over the wire.

The model is judged against the real NameServer in test_notifications.py.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from dev.model import codes
from dev.model.deliberate import DeliberateModel
from dev.model.settings import Settings
from dev.peers.java import wait_until
from dev.support.fake_broker import FakeBroker
from dev.support.in_memory import InMemoryNameServer
from dev.support.local import LocalLake
from nameserver.view.min_broker import Notification, notifications
from nameserver.view.snapshot import RouteView
from tests.examples.parts import register, unregister

SETTINGS = Settings(notify_min_broker_id_changed=True, support_acting_master=True)
ADDRESSES = ("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1")


async def _play(rng: random.Random) -> int:
    model, server = DeliberateModel(SETTINGS), InMemoryNameServer(SETTINGS)
    told: list[Notification] = []
    server.gateway.shown.follow(lambda before, after: told.extend(notifications(before, after)))
    agreed, played = 0, []
    for now_ms in range(1_000, 1_000 + rng.randint(3, 14)):
        what, broker_id, addr = (
            rng.choice(("register", "register", "unregister")),
            rng.randint(0, 3),
            rng.choice(ADDRESSES),
        )
        acting = rng.choice((True, True, True, False, None))
        held = {
            known: id_ for data in model.tables.broker_addr_table.values() for id_, known in data.broker_addrs.items()
        }
        if what == "unregister":
            if addr not in held:
                continue  # RocketMQ goes by the id in the request, and may tell of a change that was none
            broker_id = held[addr]
        move = register("b", addr, broker_id, acting=acting) if what == "register" else unregister("b", addr, broker_id)
        played.append(move)
        model.handle(move.request(), now_ms, "channel")
        await server.handle(move.request(), now_ms, "channel")
        expected = {
            (sent.to, sent.min_broker_id, sent.min_broker_addr, sent.offline_broker_addr, sent.ha_broker_addr)
            for sent in model.take_notifications()
        }
        assert {tuple(sent)[1:] for sent in told} == expected, played
        agreed += len(expected)
        told.clear()
    return agreed


def test_notifications_equal_those_of_the_model(request: pytest.FixtureRequest) -> None:
    deep = request.config.getoption("--deep")
    rng = random.Random() if deep else random.Random(1)
    agreed = sum(asyncio.run(_play(rng)) for _ in range(5_000 if deep else 150))
    print(f"{agreed} notifications agreed")
    assert agreed > 100


def test_an_unchanged_view_sends_no_notification() -> None:
    view = RouteView.empty()
    assert list(notifications(view, view)) == []


def test_over_the_wire(tmp_path: Path) -> None:
    """The master leaves and comes back: the gateway that holds its slave's connection tells the slave, no other does."""
    with ExitStack() as stack:
        slave, master = (stack.enter_context(FakeBroker()) for _ in range(2))
        lake = stack.enter_context(LocalLake(tmp_path))
        one, other = (
            stack.enter_context(lake.gateway(gateway_id=name, notify_min_broker_id_changed=True))
            for name in ("one", "other")
        )
        to_one, to_other = stack.enter_context(one.connect()), stack.enter_context(other.connect())
        to_other.call(register("b", master.address, 0, acting=True).request())
        to_one.call(register("b", slave.address, 1, acting=True).request())
        to_other.call(unregister("b", master.address, 0).request())
        wait_until(lambda: len(slave.received()) >= 1, 30, "the slave to be told", 0.005)
        to_other.call(register("b", master.address, 0, acting=True).request())
        wait_until(lambda: len(slave.received()) >= 2, 30, "the slave to be told again", 0.005)
        gone, back = slave.received()
        assert (gone.code, gone.oneway) == (codes.NOTIFY_MIN_BROKER_ID_CHANGE, True)
        assert gone.ext == {
            "minBrokerId": "1",
            "minBrokerAddr": slave.address,
            "offlineBrokerAddr": master.address,
        }
        assert (back.ext["minBrokerId"], back.ext["minBrokerAddr"]) == ("0", master.address)
        assert "offlineBrokerAddr" not in back.ext
        assert master.received() == []


def test_a_broker_that_cannot_be_reached_holds_nobody_up(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path) as lake,
        lake.gateway(notify_min_broker_id_changed=True) as gateway,
        gateway.connect() as client,
    ):
        for move in (
            register("b", "127.0.0.1:1", 0, acting=True),
            register("b", "127.0.0.1:2", 1, acting=True),
            register("b", "no such host:x", 2, acting=True),
            unregister("b", "127.0.0.1:1", 0),
        ):
            assert client.call(move.request()).code == codes.SUCCESS
