# SPDX-License-Identifier: Apache-2.0
"""The bytes and names of failed writes are given back, in any order and for any reason."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from api.gateway.gateway import Gateway
from api.gateway.watched_view import WatchedView
from dev.support import events as make
from eventlog.base import Appended
from nameserver.view.snapshot import RouteView
from schemas.errors import BadRequestError, InDoubtError, QuotaError, TooLargeError, UnavailableError
from schemas.events import EventEncoder, RegisterBroker, encode
from security.admission.admission import Admission
from security.admission.quotas import Charge, GatewayQuotas
from security.quotas import Quotas


class Peer:
    """Registers one group again and again, each time with other topics."""

    def __init__(self, limits: Quotas | None = None) -> None:
        self.now_s = 1_000.0
        self.quotas = GatewayQuotas(limits, clock=lambda: self.now_s)
        self.view = RouteView.empty()

    def register(self, *topics: str, name: str = "b") -> Charge:
        event = make.register("a0:1", name=name, table=make.topics(*topics))
        assert isinstance(event, RegisterBroker)
        return self.quotas.registration(event, event.topic_config_table or {}, encode(event), self.view)


WRITES = [("T",), ("T", "U", "V"), ("W",), tuple(f"t{number}" for number in range(50))]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("fails", list(itertools.product((True, False), repeat=3)))
def test_what_was_not_used_is_given_back_in_any_order(order: tuple[int, ...], fails: tuple[bool, ...]) -> None:
    peer = Peer()
    charges = [peer.register(*WRITES[number]) for number in range(3)]
    for number in order:
        if fails[number]:
            peer.quotas.refund(charges[number], is_written=False)
    kept = [charge for charge, is_back in zip(charges, fails, strict=True) if not is_back]
    assert peer.quotas.charged_bytes.total() == sum(charge.cost for charge in kept)
    names = {name for number in range(3) if not fails[number] for name in WRITES[number]}
    assert +peer.quotas._coming == {
        name: sum(name in WRITES[number] for number in range(3) if not fails[number] and charges[number].names > 1)
        for name in names
    }


def test_a_retry_is_charged_as_the_first_time() -> None:
    peer = Peer()
    names = []
    for _ in range(3):
        charge = peer.register("T", "U")
        names.append(charge.names)
        peer.quotas.refund(charge, is_written=False)
    assert names == [3, 3, 3]


def test_a_group_that_came_to_nothing_goes_when_it_is_counted() -> None:
    peer = Peer(Quotas(brokers=2))
    for name in "ab":
        peer.quotas.refund(peer.register("T", name=name), is_written=False)
    with pytest.raises(QuotaError, match="--quota brokers="):
        peer.register("T", name="c")
    asyncio.run(peer.quotas.count(peer.view))
    peer.register("T", name="c")


@pytest.mark.parametrize(
    ("error", "is_given_back"),
    [
        (UnavailableError("gone"), True),
        (TooLargeError("large"), True),
        (BadRequestError("bad"), True),
        (OSError("no memory"), True),
        (InDoubtError("nobody knows"), False),
        (asyncio.CancelledError(), False),
        (None, False),
    ],
)
def test_every_failure_gives_back(error: BaseException | None, is_given_back: bool) -> None:
    peer = Peer()
    gateway = object.__new__(Gateway)
    gateway.admission = Admission(peer.quotas)
    gateway.live_view = WatchedView()
    gateway._encoder = EventEncoder()

    async def append_encoded(key: str, payload: bytes, then: object = None) -> Appended:
        if error is not None:
            raise error
        return Appended(1, 1)

    gateway.append_encoded = append_encoded  # type: ignore[method-assign]

    async def write() -> None:
        await gateway.write(make.register("a0:1", name="b", table=make.topics("T")), None)

    if error is None:
        asyncio.run(write())
    else:
        with pytest.raises(type(error)):
            asyncio.run(write())
    assert (peer.quotas.charged_bytes.total() == 0) is is_given_back
