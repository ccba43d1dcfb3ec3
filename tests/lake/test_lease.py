# SPDX-License-Identifier: Apache-2.0
"""The lease: who gets it, when it has ended, and that a paused holder does not get it back."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from dev.support.stores import SteppingStore, store
from lake.lease import EXPIRE_S, LEASE_FILE, Lease, LeasedLake, LeaseLostError
from lake.store import TakenError
from runtime.process import EXIT_FAILED, refusal
from schemas.errors import SetupError


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


def test_the_first_has_it_and_the_second_only_when_it_is_not_renewed(memory: MemoryStore) -> None:
    clock = Clock()
    one, two = Lease(store(memory), "one"), Lease(store(memory), "two", clock_s=clock)
    assert one.try_to_take() is None and one.term == 1
    held = two.try_to_take()
    assert held is not None and held.holder == "one"
    clock.now_s = EXPIRE_S - 1
    one._renew()
    assert two.try_to_take() is not None and two.is_renewed
    clock.now_s += EXPIRE_S - 1
    assert two.try_to_take() is not None
    clock.now_s += 1
    assert two.try_to_take() is None and two.term == 2
    with pytest.raises(TakenError):
        one._renew()


def test_one_that_is_given_back_is_free_at_once(memory: MemoryStore) -> None:
    one, two = Lease(store(memory), "one"), Lease(store(memory), "two")
    one.try_to_take()
    one.release()
    assert two.try_to_take() is None and two.term == 2
    one.release()  # again, and late: it is another's now
    assert two.try_to_take() is None


def test_a_restart_in_the_same_place_waits_for_nobody(memory: MemoryStore) -> None:
    Lease(store(memory), "one").try_to_take()
    again = Lease(store(memory), "one")
    assert again.try_to_take() is None and again.term == 2


def test_of_two_who_want_it_one_gets_it(memory: MemoryStore) -> None:
    own = SteppingStore(memory)
    one, two = Lease(own, "one"), Lease(store(memory), "two")
    own.before = lambda number, path: None if number > 1 else _takes(two)
    held = one.try_to_take()
    assert two.term == 1 and one.term == 0 and held is not None
    found = one.try_to_take()
    assert found is not None and found.holder == "two"


def _takes(lease: Lease) -> None:
    assert lease.try_to_take() is None


def test_a_renewal_whose_answer_was_lost_is_none(memory: MemoryStore) -> None:
    own = SteppingStore(memory)
    one = Lease(own, "one")
    one.try_to_take()
    own.lose_answer_of = {LEASE_FILE}
    with pytest.raises(OSError, match="lost"):
        one._renew()
    one._renew()
    one._renew()


def test_one_who_asks_is_told_at_once_that_it_is_another_s(memory: MemoryStore) -> None:
    clock, lost = Clock(), list[str]()
    one, two = Lease(store(memory), "one", on_lost=lost.append), Lease(store(memory), "two", clock_s=clock)
    one.try_to_take()
    one.confirm()
    two.try_to_take()
    assert not lost
    clock.now_s = EXPIRE_S
    assert two.try_to_take() is None
    one.confirm()
    assert lost == ["the lease of memory://lake is held by two now"]


def test_an_invalid_lease_object_is_refused(memory: MemoryStore) -> None:
    store(memory).put(LEASE_FILE, b"lease?")
    with pytest.raises(SetupError, match="is not a lease of a fold"):
        Lease(store(memory), "one").try_to_take()


def test_a_fold_that_is_no_standby_is_refused_while_another_lives(memory: MemoryStore, tmp_path: Path) -> None:
    other = Lease(store(memory), "other")
    other.try_to_take()

    def stopped(_seconds: float) -> bool:
        other._renew()
        return False

    (tmp_path / "copy").mkdir()
    with pytest.raises(LeaseLostError, match=r"held by another fold \(other\).*--standby") as refused:
        LeasedLake(store(memory), tmp_path / "copy").take(stopped, standby=False)
    assert refusal(refused.value) == EXIT_FAILED  # which supervisors start again; EXIT_SETUP would end it for good


def test_a_standby_waits_and_takes_over(memory: MemoryStore, tmp_path: Path) -> None:
    other = Lease(store(memory), "other")
    other.try_to_take()
    looks = 0

    def stopped(_seconds: float) -> bool:
        nonlocal looks
        looks += 1
        other.release() if looks == 3 else other._renew()
        return False

    (tmp_path / "copy").mkdir()
    held = LeasedLake(store(memory), tmp_path / "copy")
    told: list[str] = []
    assert held.take(stopped, standby=True, from_another=lambda: told.append("held"))
    assert looks == 3
    assert told == ["held"]
    held.close()
    again = LeasedLake(store(memory), tmp_path / "copy")
    assert again.take(lambda seconds: True, standby=False, from_another=lambda: told.append("again"))
    assert told == ["held"]  # so its checkpoint goes on
    again.close()


def test_a_standby_can_be_stopped(memory: MemoryStore, tmp_path: Path) -> None:
    Lease(store(memory), "other").try_to_take()
    (tmp_path / "copy").mkdir()
    assert not LeasedLake(store(memory), tmp_path / "copy").take(lambda seconds: True, standby=True)


@pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("odd"), KeyError("odd")])
def test_a_lease_that_cannot_be_renewed_for_any_reason_is_told(
    memory: MemoryStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Else the fold would go on until another takes the lake from it."""
    told: list[str] = []
    monkeypatch.setattr("lake.lease.RENEW_S", 0.001)
    own = SteppingStore(memory)
    one = Lease(own, "one", on_lost=told.append)
    one.try_to_take()

    def fail(number: int, path: str) -> None:
        raise error

    own.before = fail
    one.keep()
    assert one._thread is not None
    one._thread.join(10)
    assert not one._thread.is_alive()
    (why,) = told
    assert "cannot be renewed" in why and type(error).__name__ in why
