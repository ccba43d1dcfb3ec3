# SPDX-License-Identifier: Apache-2.0
"""A lake in an object store is taken whole, or the next start knows that it was not."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from dev.support import events as make
from dev.support.fold import Fold
from dev.support.memory_log import MemoryLog
from dev.support.stores import SteppingStore, objects, store
from lake.lease import EXPIRE_S, LEASE_FILE, Lease, LeasedLake
from lake.publisher import FENCE, FencedError
from lake.store import Store, StoreError, Tagged
from schemas.events import EventEncoder, routing_key

_encode = EventEncoder().encode


class Unreadable(SteppingStore):
    """Its lease is read, and nothing else while it fails."""

    fails = True

    def _get(self, path: str) -> Tagged:
        if self.fails and path != LEASE_FILE:
            raise StoreError(f"GET {path}: 503")
        return super()._get(path)


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


def _held(own: Store, folder: Path) -> LeasedLake:
    folder.mkdir(exist_ok=True)
    return LeasedLake(own, folder)


def _never(_seconds: float) -> bool:
    return False


def test_a_takeover_removes_the_local_state_before_it_writes_the_lease(memory: MemoryStore, tmp_path: Path) -> None:
    """The next start finds its own name in the lease, whether the takeover failed halfway or not."""
    own = Unreadable(memory)
    held = _held(own, tmp_path / "b")
    other = Lease(store(memory), "other")
    other.try_to_take()
    other.release()
    told: list[int] = []
    with pytest.raises(StoreError):
        held.take(_never, standby=True, from_another=lambda: told.append(own.steps))
    assert told == [0]
    held.close()
    own.fails = False
    again = _held(own, tmp_path / "b")
    assert again.take(_never, standby=True, from_another=lambda: told.append(own.steps))
    assert told == [0]
    again.close()


def test_the_lease_is_not_taken_if_the_local_state_cannot_be_removed(memory: MemoryStore, tmp_path: Path) -> None:
    other = Lease(store(memory), "other")
    other.try_to_take()
    other.release()

    def fail() -> None:
        raise OSError("Input/output error")

    before = objects(memory)
    with pytest.raises(OSError, match="Input/output"):
        _held(store(memory), tmp_path / "b").take(_never, standby=False, from_another=fail)
    assert objects(memory) == before


def test_one_that_stood_still_while_it_took_the_lake_leaves_it_alone(memory: MemoryStore, tmp_path: Path) -> None:
    """Another has taken it meanwhile, and is not fenced out."""
    log = MemoryLog()

    def tell(key: str) -> None:
        event = make.put("n", key)
        log.append([(routing_key(event), _encode(event))])

    tell("k1")
    Fold(log, tmp_path / "first", store=store(memory)).fold()
    held = _held(store(memory), tmp_path / "a")
    fetch = held.publisher.fetch
    others: list[Fold] = []

    def stand_still() -> None:
        fetch()
        now_s = [0.0]
        lease = Lease(store(memory), "b", clock_s=lambda: now_s[0])
        assert lease.try_to_take() is not None
        now_s[0] = EXPIRE_S
        assert lease.try_to_take() is None
        others.append(Fold(log, tmp_path / "b", store=store(memory), term=2))

    held.publisher.fetch = stand_still  # type: ignore[method-assign]
    with pytest.raises(FencedError, match="held by b now"):
        held.take(_never, standby=False)
    held.close()
    tell("k2")
    epoch = others[0].fold()
    assert epoch is not None and epoch.epoch == 2
    fences = [data for path, data in objects(memory).items() if f'"{FENCE}"'.encode() in data]
    assert all(b'"holder":"b"' in data for data in fences)
