# SPDX-License-Identifier: Apache-2.0
"""Eviction: the choice of the connections to close if peers together exceed a bound. No I/O.

Every bound of a gateway that all peers share has the same rule: the address that has most loses.

* Memory is counted in byte-seconds for each address (`to_evict`). So neither many small connections nor a large and
  fast one have an advantage. A broker that sends 20 MB in half a second counts far less than a peer that holds 1 MB for
  a minute. This is also true at the same address (a NAT, a proxy).
* Long polls, subscribers and questions count one each, for any duration (`largest_address`, `FairLimit`). There, the
  address that has most gets no more.
"""

from __future__ import annotations

import heapq
import ipaddress
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

_FRESH_S: Final = 1.0
"""Time added to every age, in seconds. So of bytes that have just arrived, the larger number weighs more."""

SEARCH_PAUSE_S: Final = 0.25
"""Time until the next search for a connection to evict, after a search without result, in seconds."""


class Holding(NamedTuple, Generic[T]):
    """Bytes that one connection holds.

    Attributes:
        connection: The connection.
        address: Its address, as `address_of` returns it.
        size_bytes: Number of bytes.
        since_s: Time since which it holds them, on the clock of ``now_s``.
    """

    connection: T
    address: str
    size_bytes: int
    since_s: float


def to_evict(holdings: Iterable[Holding[T]], excess_bytes: int, now_s: float) -> list[T]:
    """The connections to evict so that at least ``excess_bytes`` become free, or all if they hold less.

    Args:
        holdings: All connections that hold bytes.
        excess_bytes: Number of bytes that are to become free.
        now_s: The current time, in seconds.

    Returns:
        The connections, in the order in which they were chosen.
    """
    addresses: defaultdict[str, list[tuple[float, int, Holding[T]]]] = defaultdict(list)
    for order, holding in enumerate(holdings):
        weight = holding.size_bytes * (now_s - holding.since_s + _FRESH_S)
        addresses[holding.address].append((-weight, order, holding))
    for held in addresses.values():
        heapq.heapify(held)
    heaviest = [(sum(weight for weight, _, _ in held), address) for address, held in addresses.items()]
    heapq.heapify(heaviest)
    chosen: list[T] = []
    while excess_bytes > 0 and heaviest:
        total, address = heapq.heappop(heaviest)
        weight, _, most = heapq.heappop(addresses[address])
        chosen.append(most.connection)
        excess_bytes -= most.size_bytes
        if addresses[address]:
            heapq.heappush(heaviest, (total - weight, address))
    return chosen


def is_far_over(held_bytes: int, limit_bytes: int) -> bool:
    """Return whether so much is held that a connection is evicted immediately."""
    return held_bytes > limit_bytes * 3 // 2


def over_limit(
    holdings: Iterable[Holding[T]], held_bytes: int, limit_bytes: int, now_s: float, after_s: float
) -> list[T]:
    """The connections to evict because more is held than the limit, until a quarter of the limit is free.

    The first pieces of many frames may cross the limit at the same time. So up to half above the limit, only
    connections that have held bytes for some time are evicted, and only if they hold enough. If the largest holders
    have just arrived, to evict waiting small frames would not free enough.

    Args:
        holdings: All connections that can be evicted.
        held_bytes: Number of bytes held, also by connections that cannot be evicted.
        limit_bytes: Number of bytes that may be held.
        now_s: The current time, in seconds.
        after_s: Minimum time that a connection has held something, in seconds.
    """
    excess_bytes = held_bytes - limit_bytes * 3 // 4
    if is_far_over(held_bytes, limit_bytes):
        return to_evict(holdings, excess_bytes, now_s)
    aged = [held for held in holdings if held.since_s <= now_s - after_s]
    return to_evict(aged, excess_bytes, now_s) if sum(held.size_bytes for held in aged) >= excess_bytes else []


def largest_address(counts: dict[str, int], newcomer: str, tie: Callable[[str], int] | None = None) -> str:
    """The address that has most, if the newcomer's request is counted too.

    Args:
        counts: Number that each address has.
        newcomer: Address that asks for one more.
        tie: Rank of an address, for equal counts. The highest rank loses. Without it, or if the ranks are equal too,
            the newcomer loses.
    """
    own = counts.get(newcomer, 0) + 1
    most = max(own, max(counts.values(), default=0))
    others = (address for address, count in reversed(counts.items()) if count == most and address != newcomer)
    if tie is None:
        return newcomer if own == most else next(others)
    return max([newcomer, *others] if own == most else others, key=tie)


class FairLimit(Generic[T]):
    """A bounded number of entries that count one each. `admit` evicts the oldest entry of the address that has most.

    Attributes:
        limit: Maximum number of entries.
    """

    def __init__(
        self,
        limit: int,
        evict: Callable[[T], None] = lambda _: None,
        on_evicted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Start without entries.

        Args:
            limit: Maximum number of entries.
            evict: Callback that ends an entry after it was removed.
            on_evicted: Callback with the address of each entry that is evicted or not admitted.
        """
        self.limit = limit
        self._evict = evict
        self._on_evicted = on_evicted
        self._addresses: dict[T, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[T]:
        """Iterate over the entries, the oldest first."""
        return iter(self._addresses)

    def __contains__(self, entry: T) -> bool:
        return entry in self._addresses

    def count(self, address: str) -> int:
        """The number of entries of an address."""
        return self._counts[address]

    def admit(self, entry: T, address: str) -> bool:
        """Add an entry. At the limit, evict one first. Returns False if the entry's own address has most."""
        if len(self._addresses) >= self.limit:
            most = largest_address(self._counts, address)
            self._on_evicted(most)
            if most == address:
                return False
            oldest = next(each for each, other in self._addresses.items() if other == most)
            self.discard(oldest)
            self._evict(oldest)
        self.add(entry, address)
        return True

    def add(self, entry: T, address: str) -> None:
        """Add an entry, even beyond the limit."""
        self._addresses[entry] = address
        self._counts[address] += 1

    def discard(self, entry: T) -> None:
        """Remove an entry if it exists."""
        address = self._addresses.pop(entry, None)
        if address is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]


def address_of(host: str) -> str:
    """Return the unit that counts as one address: an IPv4 address, or the IPv6 /64 network of a machine."""
    return _address_of_ipv6(host) if ":" in host else host


def address_of_peer(peer: str) -> str:
    """Return `address_of` for the host of a host:port."""
    host = peer.rpartition(":")[0]
    return _address_of_ipv6(host) if ":" in host else host


# The cache is small and has no ports. After a crowd of peers, each entry that stays can keep an arena of Python's
# allocator in use.
@lru_cache(256)
def _address_of_ipv6(host: str) -> str:
    try:
        address = ipaddress.IPv6Address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
