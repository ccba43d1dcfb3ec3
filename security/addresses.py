# SPDX-License-Identifier: Apache-2.0
"""whiteRemoteAddress: which addresses a rule means, in RocketMQ's own forms.

``10.0.0.1``, ``::1``; ``*``, ``*.*.*.*``, ``*:*:*:*:*:*:*:*`` (all); a number or a range of them in the last places,
``10.0.3-5.*``, ``10.0.0.1-9``; several, ``10.0.0.{1,2}`` or ``10.0.0.1,10.0.0.2``. Of IPv6 the same, with ``:``.

Here, one form more than there: a network, ``10.0.0.0/8``. Somebody who comes over IPv6 with an IPv4 address in it
(::ffff:10.0.0.1) has that IPv4 address.

Source (4.9.8): org.apache.rocketmq.acl.plain.RemoteAddressStrategyFactory, org.apache.rocketmq.acl.common.AclUtils.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Matches = Callable[[Address], bool]

_ALL: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})


def address_of(host: str) -> Address | None:
    """An address as the rules compare it; None where there is none (a socket without one)."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def rule(text: str) -> Matches:
    """Parse an address rule to a function that matches addresses.

    Raises:
        ValueError: The rule has another form; the text names the expected forms.
    """
    given = text.strip()
    if given in _ALL:
        return lambda _: True
    try:
        if "/" in given:
            network = ipaddress.ip_network(given, strict=False)
            return lambda address: address.version == network.version and address in network
        if given.endswith("}"):
            head, _, last = given[:-1].partition("{")
            if not head.endswith((".", ":")):
                raise ValueError
            return _any_of([head + part.strip() for part in last.split(",")])
        if "," in given:
            return _any_of([part.strip() for part in given.split(",")])
        if "*" in given or "-" in given:
            return _ranges(given)
        return _any_of([given])
    except ValueError:
        raise ValueError(
            f"{text!r} is no address rule: expected 10.0.0.1, 10.0.0.*, 10.0.1-9.*, 10.0.0.{{1,2}}, 10.0.0.0/8 or *"
        ) from None


def _any_of(texts: list[str]) -> Matches:
    wanted = frozenset(ipaddress.ip_address(text) for text in texts)
    return lambda address: address in wanted


def _ranges(text: str) -> Matches:
    """A rule whose last places are ranges, `*` for all there is in one."""
    is_v6 = ":" in text
    parts = text.split(":" if is_v6 else ".")
    base, highest = (16, 0xFFFF) if is_v6 else (10, 255)
    if len(parts) != (8 if is_v6 else 4):
        raise ValueError
    bounds = [_range(part.strip(), base, highest) for part in parts]

    def matches(address: Address) -> bool:
        if (address.version == 6) is not is_v6:
            return False
        packed = address.packed
        step = 2 if is_v6 else 1
        numbers = [int.from_bytes(packed[at : at + step]) for at in range(0, len(packed), step)]
        return all(low <= number <= high for number, (low, high) in zip(numbers, bounds, strict=True))

    return matches


def _range(part: str, base: int, highest: int) -> tuple[int, int]:
    if part == "*":
        return 0, highest
    first, dash, last = part.partition("-")
    low = int(first, base)
    high = int(last, base) if dash else low
    if not 0 <= low <= high <= highest or not first.isalnum() or (dash and not last.isalnum()):
        raise ValueError
    return low, high
