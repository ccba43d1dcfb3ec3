# SPDX-License-Identifier: Apache-2.0
"""Epochs that come with the word of them: the store is asked for nothing, and for everything when they do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from api.gateway.follower import Follower
from dev.support import events as make
from dev.support.fold import Fold
from dev.support.loops import until
from dev.support.s3 import FakeS3, fake_s3
from eventlog.memory import MemoryLog
from lake.offer import MOST_BYTES, Offer, decode_offer, encode_offer
from lake.store import open_store
from schemas.events import AnyEvent, EventEncoder, routing_key

_encode = EventEncoder().encode
BROKERS = 3


@pytest.fixture(scope="module")
def s3() -> Iterator[FakeS3]:
    with pytest.MonkeyPatch.context() as patch, fake_s3(patch) as server:
        yield server


class Offering:
    """A fold whose epochs are offered, and a gateway's follower of them."""

    def __init__(self, s3: FakeS3, url: str, folder: Path) -> None:
        self.s3, self.url, self.folder = s3, url, folder
        self.log = MemoryLog()
        self.offers: list[Offer] = []
        self.fold = self.new_fold("copy")
        self.epoch(*[make.register(f"b:{number}", name=f"b-{number}") for number in range(BROKERS)])
        self.follower = Follower(url, lambda view, outcomes: None)

    def new_fold(self, name: str, term: int = 1) -> Fold:
        fold = Fold(self.log, self.folder / name, store=open_store(self.url), term=term)
        fold.mirror.on_published = self.offers.append
        return fold

    def epoch(self, *events: AnyEvent) -> Offer:
        self.log.append([(routing_key(event), _encode(event)) for event in events])
        assert self.fold.fold() is not None
        return self.offers[-1]

    def heartbeats(self) -> Offer:
        return self.epoch(*[make.heartbeat(f"b:{number}", name=f"b-{number}") for number in range(BROKERS)])

    def shows_newest(self) -> bool:
        return self.follower.view.epoch == self.fold.writer.epoch

    def asked(self) -> int:
        return sum(self.s3.requests().values())


@pytest.fixture
def offering(
    s3: FakeS3, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Offering]:
    monkeypatch.setattr("api.gateway.pace.IDLE_POLL_S", 3_600.0)
    monkeypatch.setattr("api.gateway.pace.HEARING_POLL_S", 3_600.0)
    offering = Offering(s3, f"s3://lake/{request.node.name}", tmp_path)
    follower = offering.follower
    follower.hears(True)
    follower.start()
    until(offering.shows_newest)
    pace = follower._pace
    assert pace is not None
    until(lambda: not pace.is_due(0, 0.0))
    offering.asked()
    yield offering
    follower.stop()
    assert follower.status().errors == 0, follower.status()


def test_an_epoch_of_heartbeats_asks_nothing_of_the_store(offering: Offering) -> None:
    for _ in range(5):
        offer = offering.heartbeats()
        offering.asked()  # the fold's
        offering.follower.announced(decode_offer(encode_offer(offer)))
        until(offering.shows_newest)
        assert offering.asked() == 0
    anew = Follower(offering.url, lambda view, outcomes: None)
    anew.poll()
    assert anew.view.commit == offering.follower.view.commit
    assert set(anew.view.all_live_rows()) == set(offering.follower.view.all_live_rows())
    assert offering.follower.status().reloads == 1


def test_and_so_does_one_of_changes_while_it_is_small(offering: Offering) -> None:
    offer = offering.epoch(make.register("b:0", name="b-0", table=make.topics("t", "u")), make.put("n", "k"))
    offering.asked()
    offering.follower.announced(offer)
    until(offering.shows_newest)
    assert offering.asked() == 0
    assert {"t", "u"} <= set(offering.follower.view.topics)
    offer = offering.epoch(*[make.put("n", f"k{number}", number.to_bytes(2).hex() * 2_000) for number in range(100)])
    assert sum(map(len, offer.objects.values())) <= MOST_BYTES
    offering.follower.announced(offer)
    until(offering.shows_newest)


def test_a_large_one_is_fetched(offering: Offering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake.offer.MOST_BYTES", 1_000)
    offer = offering.heartbeats()
    assert not offer.objects
    offering.asked()
    offering.follower.announced(offer)
    until(offering.shows_newest)
    assert offering.asked() > 0


def test_one_that_was_lost_is_fetched_with_the_next(offering: Offering) -> None:
    offering.heartbeats()
    offering.follower.announced(offering.heartbeats())
    until(offering.shows_newest)
    offering.follower.announced(offering.heartbeats())
    until(offering.shows_newest)


def test_what_does_not_come_after_what_was_read_is_not_taken(offering: Offering) -> None:
    """Another lake's, of the same log: the versions fit, and what stands there says otherwise."""
    false = dict.fromkeys(offering.heartbeats().objects, b"false")
    offer = msgspec.structs.replace(offering.offers[-1], identity=(1, 2), objects=false)
    offering.follower.announced(offer)
    until(offering.shows_newest)
    offering.follower.announced(offering.offers[-1])  # late: it has been read already
    offering.follower.announced(offering.heartbeats())
    until(offering.shows_newest)


def test_after_another_fold_has_taken_the_lake(offering: Offering) -> None:
    offering.fold = offering.new_fold("other", 2)
    offering.follower.announced(offering.heartbeats())
    until(offering.shows_newest)
    offer = offering.heartbeats()
    offering.asked()
    offering.follower.announced(offer)
    until(offering.shows_newest)
    assert offering.asked() == 0


@pytest.mark.parametrize("said", [b"", b'{"version": 7}', b"\x93\x01", encode_offer(Offer(1))[:-1]])
def test_what_is_no_offer(said: bytes) -> None:
    assert decode_offer(said) is None
