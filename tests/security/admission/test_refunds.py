# SPDX-License-Identifier: Apache-2.0
"""What was reserved for writes that came to nothing is given back, in whatever order, for whatever reason."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from api.gateway.gateway import Gateway
from dev.support import events as make
from eventlog.base import Appended
from nameserver.view.snapshot import RouteView
from schemas.errors import BadRequestError, InDoubtError, RoutelakeError, TooLargeError, UnavailableError
from schemas.events import RegisterBroker, encode
from security.admission.quotas import GatewayQuotas
from security.admission.reservations import Reservation


class Peer:
    """Registers one group again and again, each time with other topics."""

    def __init__(self) -> None:
        self.quotas = GatewayQuotas(clock=lambda: 1_000.0)
        self.view = RouteView.empty()

    def register(self, *topics: str, addr: str = "a0:1") -> Reservation:
        event = make.register(addr, table=make.topics(*topics))
        assert isinstance(event, RegisterBroker)
        return self.quotas.registration(event, event.topic_config_table or {}, encode(event), self.view)

    def state(self) -> Any:
        holdings = self.quotas._holdings
        return holdings._groups, holdings._brokers_of, holdings._rows_of, holdings._bytes_of, self.quotas._coming


WRITES = [("T",), ("T", "U", "V"), ("W",), tuple(f"t{number}" for number in range(50))]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("fails", list(itertools.product((True, False), repeat=3)))
def test_reservations_end_in_any_order(order: tuple[int, ...], fails: tuple[bool, ...]) -> None:
    peer, expected = Peer(), Peer()
    charges = [peer.register(*WRITES[number]) for number in range(3)]
    for number in order:
        if fails[number]:
            peer.quotas.refund(charges[number], is_written=False)
        else:
            peer.quotas.written(charges[number])
    for number in order:
        if not fails[number]:
            expected.quotas.written(expected.register(*WRITES[number]))
    found, wanted = peer.state(), expected.state()
    assert found[0].keys() == wanted[0].keys()
    assert found[1] == wanted[1]
    assert found[4].keys() == wanted[4].keys()
    if all(fails):
        assert found == ({}, {}, {}, {}, {})
        assert peer.quotas.charged_bytes.total() == 0
    assert not peer.quotas._holdings._bases
    assert not peer.quotas._holdings._reserved


def test_what_another_reservation_holds_stays() -> None:
    peer = Peer()
    first, second = peer.register("T"), peer.register("T", "U")
    peer.quotas.refund(first, is_written=False)
    assert peer.quotas._coming == {"T": 1, "U": 1}
    held = peer.quotas._holdings.find("b")
    assert held is not None and held.topics == 2
    peer.quotas.refund(second, is_written=False)
    assert peer.quotas._holdings.find("b") is None


def test_a_retry_is_charged_as_the_first_time() -> None:
    peer = Peer()
    names = []
    for _ in range(3):
        charge = peer.register("T", "U")
        names.append(charge.names)
        peer.quotas.refund(charge, is_written=False)
    assert names == [3, 3, 3]


@pytest.mark.parametrize(
    ("error", "is_given_back"),
    [
        (UnavailableError("gone"), True),
        (TooLargeError("large"), True),
        (BadRequestError("bad"), True),
        (RoutelakeError("any"), True),
        (OSError("no memory"), True),
        (RuntimeError("a defect"), True),
        (InDoubtError("nobody knows"), False),
        (asyncio.CancelledError(), False),
        (None, False),
    ],
)
def test_every_failure_gives_back(error: BaseException | None, is_given_back: bool) -> None:
    peer = Peer()
    gateway = object.__new__(Gateway)
    gateway.quotas = peer.quotas

    async def append_encoded(key: str, payload: bytes) -> Appended:
        if error is not None:
            raise error
        return Appended(1, 1)

    gateway.append_encoded = append_encoded  # type: ignore[method-assign]

    async def write() -> None:
        await gateway.append_charged("b:b", b"", peer.register("T"))

    if error is None:
        asyncio.run(write())
    else:
        with pytest.raises(type(error)):
            asyncio.run(write())
    assert (peer.quotas._holdings.find("b") is None) is is_given_back
    assert (peer.quotas.charged_bytes.total() == 0) is is_given_back
    assert not peer.quotas._holdings._reserved
