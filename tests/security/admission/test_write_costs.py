# SPDX-License-Identifier: Apache-2.0
"""The cost of a write: its own, and that of rows that an epoch writes once, if no client was charged for them yet."""

from __future__ import annotations

import pytest

from dev.support import events as make
from nameserver.view.snapshot import RouteView
from schemas.events import Actor, AnyEvent, DeleteKvConfig, PutKvConfig, RegisterBroker, encode
from security.admission.quotas import Charge, GatewayQuotas
from security.admission.usage import EPOCH_BYTES, NEW_GROUP_BYTES, Size, cost_of

VIEW = RouteView.empty()
ACTOR = Actor("g", "remoting", "10.0.0.1:5")


def put(key: str = "k", value: str = "v") -> PutKvConfig:
    return PutKvConfig(actor=ACTOR, namespace="n", key=key, value=value)


def register(name: str = "b") -> RegisterBroker:
    event = make.register("a0:1", name=name, table=make.topics("T"))
    assert isinstance(event, RegisterBroker)
    return event


class Gateway:
    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.quotas = GatewayQuotas(clock=lambda: self.now_s)

    def charge(self, event: AnyEvent) -> Charge:
        if isinstance(event, RegisterBroker):
            return self.quotas.registration(event, event.topic_config_table or {}, encode(event), VIEW)
        charge = self.quotas.command(event, encode(event), VIEW)
        assert charge is not None
        return charge


@pytest.mark.parametrize("others", [put("other"), register("other")])
def test_the_first_of_a_second_pays_for_the_epoch(others: AnyEvent) -> None:
    gateway = Gateway()
    first, second = gateway.charge(put()), gateway.charge(others)
    assert first.cost > EPOCH_BYTES > second.cost
    gateway.now_s += 1
    assert gateway.charge(put()).cost == first.cost


def test_what_came_to_nothing_has_not_paid_for_the_epoch() -> None:
    gateway = Gateway()
    gateway.quotas.refund(first := gateway.charge(put()), is_written=False)
    assert gateway.charge(put()).cost == first.cost


def test_a_name_pays_for_nothing_but_its_partition() -> None:
    paid: set[str | int] = {"", "kv", "0", "1", "*"}
    for event in (put(), DeleteKvConfig(actor=ACTOR, namespace="n", key="k"), register()):
        size = len(encode(event))
        assert cost_of(event, size, VIEW, lambda _: Size(), paid) == cost_of(event, size, VIEW, lambda _: Size())


def test_a_group_that_is_new_costs_more_than_its_payload() -> None:
    cost = cost_of(register(), 1_000, VIEW, lambda _: Size(), topics=["T"])
    assert cost.bytes >= EPOCH_BYTES + NEW_GROUP_BYTES + 4 * 1_000
    assert cost.parts == cost_of(put(), 0, VIEW, lambda _: Size()).parts[:1]
