# SPDX-License-Identifier: Apache-2.0
"""Live gateways of an event log, and their addresses. Each gateway appends a CLOCK every few seconds, under its id.

An id of the form ``HOST:PORT`` is the address at which brokers and clients reach that gateway. ``HOST:PORT/N`` is the
address of worker N of a gateway (`cli.supervised.gateways`). Other ids are not addresses.
Clients get IP addresses, because rocketmq-client-go accepts nothing else.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Final

_ADDRESS: Final = re.compile(r"(?P<address>(?:\[[0-9A-Fa-f:.]+\]|[^\s:;/,\[\]]+):[0-9]{1,5})(?:/[0-9]+)?")
_CLOCKS: Final = 3
"""Number of missing CLOCK events after which a gateway counts as gone."""
_KEEP_S: Final = 30.0
"""Time for which the address of a host name is cached, in seconds."""
_PATIENCE_S: Final = 3.0
_MOST_NAMES: Final = 1000
_ELSEWHERE: Final = ("192.0.2.1", 9)
"""Address that no host has (RFC 5737). Nothing is sent to it."""


def address_of_id(gateway_id: str) -> str | None:
    """Return the address that an id names. None if it names none."""
    found = _ADDRESS.fullmatch(gateway_id)
    return found["address"] if found else None


def live_addresses(
    heard_ms: Mapping[str, int], own_id: str, clock_interval_s: float, own_address: str = ""
) -> list[str]:
    """Return the addresses of the gateways that wrote recently, sorted.

    Args:
        heard_ms: Time of the last event of each gateway, by gateway id, in milliseconds of the log's clock.
        own_id: Id of this gateway. It counts as alive even while the log cannot be written.
        clock_interval_s: Time between a gateway's CLOCK events, in seconds.
        own_address: Address of this gateway. Empty: its id has the address.
    """
    since_ms = max(heard_ms.values(), default=0) - _CLOCKS * clock_interval_s * 1000
    live = {address_of_id(gateway) for gateway, time_ms in heard_ms.items() if time_ms >= since_ms}
    own = address_of_id(own_id)
    return sorted(address for address in {*(live - {own}), own_address or own} if address is not None)


def resolved(host: str) -> str | None:
    """Return the IP address of a host, if possible one that other machines may reach. None if it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    addresses = [ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    best = min(addresses, key=lambda address: (address.is_loopback, address.is_link_local, address.version))
    return str(best)


def machine_address() -> str | None:
    """Return the address from which this machine reaches others. None if it has none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
    except OSError:
        return resolved(socket.gethostname())


class Resolver:
    """Look-up of IP addresses for host names of gateways. Used on an event loop."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._known: dict[str, tuple[float, str | None]] = {}

    async def addresses(self, named: Iterable[str]) -> list[str]:
        """Return addresses as HOST:PORT with IP addresses for host names, sorted. Unknown names are left out."""
        pairs = [address.rpartition(":")[::2] for address in named]
        hosts = await asyncio.gather(*(self._address(host) for host, _ in pairs))
        found = {(host, port) for host, (_, port) in zip(hosts, pairs, strict=True) if host is not None}
        return sorted(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in found)

    async def _address(self, host: str) -> str | None:
        bare = host.strip("[]")
        try:
            return str(ipaddress.ip_address(bare))
        except ValueError:
            pass
        until_s, known = self._known.get(host, (0.0, None))
        if time.monotonic() < until_s:
            return known
        try:
            found = await asyncio.wait_for(asyncio.to_thread(resolved, bare), _PATIENCE_S)
        except TimeoutError:
            found = known
        if len(self._known) >= _MOST_NAMES:
            self._known.clear()
        self._known[host] = time.monotonic() + _KEEP_S, found
        return found
