# SPDX-License-Identifier: Apache-2.0
"""NOTIFY_MIN_BROKER_ID_CHANGE: the model names the receivers, and the real NameServer notifies exactly these."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dev.histories.steps import Send
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.namesrv import NameServerModel
from dev.model.route_tables import Notification
from dev.model.settings import Settings
from dev.model.wire import Request, canonical
from dev.peers.java import wait_until
from dev.support.fake_broker import FakeBroker
from dev.support.rocketmq import StockNameServer
from tests.examples.parts import register, unregister

pytestmark = pytest.mark.jvm

SETTINGS = Settings(notify_min_broker_id_changed=True, support_acting_master=True)

# (what happens, broker id, which machine, enableActingMaster)
moves = st.tuples(
    st.sampled_from(("register", "register", "unregister")),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from((True, True, True, False, None)),
)


class Stage:
    """A real NameServer that notifies, three machines that listen, and the model."""

    def __init__(self, stack: ExitStack) -> None:
        properties = {"notifyMinBrokerIdChanged": "true", "supportActingMaster": "true"}
        self.server = stack.enter_context(StockNameServer(properties))
        self.client = stack.enter_context(RemotingClient(self.server.host, self.server.port))
        self.machines = [stack.enter_context(FakeBroker()) for _ in range(3)]
        self.model = NameServerModel(SETTINGS)
        self.numbers = itertools.count(1)
        for machine in self.machines:
            self._be_connected_to(machine)

    def _be_connected_to(self, machine: FakeBroker) -> None:
        """Wait until the NameServer has a connection to a machine. Notifications before that can be lost."""
        for number in range(12):
            for broker_id in (3, 0):
                self.both(register(f"{machine.address}-{number}", machine.address, broker_id, acting=True).request())
            assert [sent.to for sent in self.model.take_notifications()] == [machine.address]
            with contextlib.suppress(TimeoutError):
                wait_until(machine.received, 5, "a notification")
                return
        raise TimeoutError(f"no notification came to {machine.address}")

    def both(self, request: Request) -> None:
        """Ask both and compare."""
        expected = canonical(request, self.model.handle(request, 0, "channel"))
        assert canonical(request, self.client.call(request)) == expected

    def told(self) -> list[tuple[str, dict[str, str]]]:
        """Address and extFields of every notification that has arrived."""
        return [
            (machine.address, dict(sorted(request.ext.items())))
            for machine in self.machines
            for request in machine.received()
            if request.code == codes.NOTIFY_MIN_BROKER_ID_CHANGE and request.oneway
        ]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(stack)


def fields(notification: Notification) -> dict[str, str]:
    """extFields of a notification."""
    named = {
        "minBrokerId": str(notification.min_broker_id),
        "minBrokerAddr": notification.min_broker_addr,
        "offlineBrokerAddr": notification.offline_broker_addr,
        "haBrokerAddr": notification.ha_broker_addr,
    }
    return {key: value for key, value in sorted(named.items()) if value is not None}


@pytest.mark.timeout(1200)
def test_notifications(stage: Stage, request: pytest.FixtureRequest) -> None:
    deep = request.config.getoption("--deep", default=False)
    notified = 0

    @hypothesis_settings(
        max_examples=300 if deep else 20, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.one_of(st.lists(moves, max_size=12), st.lists(moves, min_size=6, max_size=12)))
    def agrees(history: list[tuple[str, int, int, bool | None]]) -> None:
        nonlocal notified
        name = f"broker-{next(stage.numbers)}"
        for machine in stage.machines:
            machine.forget()
        expected: list[tuple[str | None, dict[str, str]]] = []
        for what, broker_id, machine_number, acting in history:
            addr = stage.machines[machine_number].address
            if what == "register":
                stage.both(register(name, addr, broker_id, acting=acting).request())
            else:
                stage.both(unregister(name, addr, broker_id).request())
                _settle(stage, name)
            expected += [(sent.to, fields(sent)) for sent in stage.model.take_notifications()]
        for machine in stage.machines:
            stage.both(unregister(name, machine.address).request())
            _settle(stage, name)
            expected += [(sent.to, fields(sent)) for sent in stage.model.take_notifications()]
        wait_until(lambda: len(stage.told()) >= len(expected), 30, f"{expected} after {history}, got {stage.told()}")
        assert sorted(stage.told(), key=repr) == sorted(expected, key=repr), history
        notified += len(expected)

    agrees()
    print(f"{notified} notifications agreed")
    assert notified > 20


def _settle(stage: Stage, name: str) -> None:
    """Wait until a queued unregistration shows in the member group."""
    group = Send(codes.GET_BROKER_MEMBER_GROUP, {"brokerName": name, "clusterName": "any"}).request()
    expected = canonical(group, stage.model.handle(group, 0))
    wait_until(lambda: canonical(group, stage.client.call(group)) == expected, 30, "unregistration", 0.002)
    time.sleep(0.002)
