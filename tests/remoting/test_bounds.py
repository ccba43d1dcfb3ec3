# SPDX-License-Identifier: Apache-2.0
"""Eviction of what holds most, for longest."""

from __future__ import annotations

from remoting.codec.bounds import FairLimit, Holding, address_of, largest_address, over_limit, to_evict


def chosen(*holdings: tuple[str, str, int, float], excess: int = 1) -> list[str]:
    return to_evict([Holding(*holding) for holding in holdings], excess, 100.0)


def test_the_connection_that_holds_most_is_evicted() -> None:
    assert chosen(("small", "a", 10, 90.0), ("large", "a", 20, 90.0)) == ["large"]
    assert chosen(("old", "a", 10, 50.0), ("new", "a", 20, 99.0)) == ["old"]
    assert chosen() == []


def test_many_small_ones_of_one_address_weigh_together() -> None:
    small = [(f"small {number}", "hostile", 100, 90.0) for number in range(30)]
    assert chosen(("large", "honest", 2_000, 90.0), *small, excess=500) == [f"small {number}" for number in range(5)]


def test_it_stops_when_enough_is_free() -> None:
    several = [(str(size), f"address {size}", size, 90.0) for size in (10, 20, 30)]
    assert chosen(*several, excess=31) == ["30", "20"]
    assert chosen(*several, excess=1_000) == ["30", "20", "10"]


def over(*holdings: tuple[str, str, int, float], held: int) -> list[str]:
    return over_limit([Holding(*holding) for holding in holdings], held, 1_000, 100.0, 2.0)


def test_small_ones_that_wait_do_not_go_in_vain_while_the_large_ones_have_just_come() -> None:
    waiting = [(f"waits {number}", "a", 10, 90.0) for number in range(10)]
    assert over(("one", "a", 500, 99.5), ("other", "a", 500, 99.5), *waiting, held=1_100) == []
    assert over(("one", "a", 500, 97.0), ("other", "a", 500, 99.5), *waiting, held=1_100) == ["one"]
    assert over(*waiting, held=1_100) == [], "nor while what is being handled takes all the room"


def test_far_over_the_limit_the_newest_connections_are_evicted_too() -> None:
    assert over(("one", "a", 900, 99.5), ("other", "a", 700, 99.9), ("waits", "a", 10, 90.0), held=1_610) == ["one"]
    assert over(("old", "a", 100, 90.0), ("one", "a", 800, 99.5), ("other", "a", 800, 99.9), held=1_700)[0] == "one"


def limited(limit: int) -> tuple[FairLimit[str], list[str]]:
    events: list[str] = []
    return FairLimit(limit, lambda entry: events.append(f"{entry} ends"), events.append), events


def test_one_too_many_evicts_the_oldest_of_the_address_that_has_most() -> None:
    limit, events = limited(4)
    assert all(limit.admit(entry, entry[0]) for entry in ("a1", "b1", "b2", "b3"))
    assert limit.admit("c1", "c")
    assert (list(limit), events) == (["a1", "b2", "b3", "c1"], ["b", "b1 ends"])
    assert [limit.count(address) for address in "abcd"] == [1, 2, 1, 0]


def test_an_address_that_has_most_itself_gets_no_more() -> None:
    limit, events = limited(3)
    assert all(limit.admit(entry, entry[0]) for entry in ("a1", "a2", "b1"))
    assert not limit.admit("a3", "a")
    assert not limit.admit("b2", "b"), "it would have as many"
    assert (list(limit), events) == (["a1", "a2", "b1"], ["a", "b"])
    limit.discard("a1")
    limit.discard("a1")
    assert limit.admit("b2", "b")
    assert len(limit) == 3


def test_of_addresses_that_have_as_many_the_tie_decides() -> None:
    counts = {"a": 2, "b": 2, "c": 1}
    assert largest_address(counts, "c") == "c"
    assert largest_address(counts, "d") == "b"
    assert largest_address(counts, "d", {"a": 7}.__contains__) == "a"
    assert largest_address(counts, "a", {"b": 7}.__contains__) == "a"
    assert largest_address({}, "a") == "a"


def test_what_counts_as_one_address() -> None:
    assert address_of("192.0.2.1") == address_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert address_of("2001:db8:0:1::5") == address_of("2001:db8:0:1:ffff::1%eth0") != address_of("2001:db8:0:2::5")
    assert address_of("") == ""
