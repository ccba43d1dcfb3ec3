# SPDX-License-Identifier: Apache-2.0
"""Who gives way when peers hold more than there is for all of them: whoever holds most, for longest. No I/O.

Two things decide, so that neither many small holders nor a large one that is quick about it gain or lose by it:
of all addresses the one with the most byte-seconds, and of its connections the one with the most. A broker that sends
20 MB in half a second is far behind a peer that lets 1 MB lie for a minute, also at the same address (a NAT, a proxy).
"""

from __future__ import annotations

import heapq
import ipaddress
from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

_FRESH_S: Final = 1.0
"""Added to every age: of what has just come, the larger weighs more."""


class Holding(NamedTuple, Generic[T]):
    """What one connection holds.

    Attributes:
        connection: Whose it is.
        address: As `address_of` makes it.
        size_bytes: How much.
        since_s: From when on, on the clock of ``now_s``.
    """

    connection: T
    address: str
    size_bytes: int
    since_s: float


def to_give_way(holdings: Iterable[Holding[T]], excess_bytes: int, now_s: float) -> list[T]:
    """The connections that have to go so that at least ``excess_bytes`` become free, if so much is held.

    Args:
        holdings: All of them.
        excess_bytes: How much is to become free.
        now_s: The time.

    Returns:
        They, in the order in which they were chosen.
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
    """Whether so much is held that somebody has to give way at once."""
    return held_bytes > limit_bytes * 3 // 2


def over_limit(
    holdings: Iterable[Holding[T]], held_bytes: int, limit_bytes: int, now_s: float, after_s: float
) -> list[T]:
    """The connections that have to go because more is held than the limit, until a quarter of it is free.

    The first pieces of many frames may cross the limit in the same moment. So, up to half as much again, only those
    give way that have held something for a while, and only if they hold enough: where those who hold most have just
    come, small frames that wait for their turn would go in vain.

    Args:
        holdings: All that can go.
        held_bytes: How much is held, what cannot go included.
        limit_bytes: How much may be held.
        now_s: The time.
        after_s: What counts as a while.
    """
    excess_bytes = held_bytes - limit_bytes * 3 // 4
    if is_far_over(held_bytes, limit_bytes):
        return to_give_way(holdings, excess_bytes, now_s)
    aged = [held for held in holdings if held.since_s <= now_s - after_s]
    return to_give_way(aged, excess_bytes, now_s) if sum(held.size_bytes for held in aged) >= excess_bytes else []


def address_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 that one machine has of IPv6."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
