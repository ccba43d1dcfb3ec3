# SPDX-License-Identifier: Apache-2.0
"""Which gateways are there, by what they write: each one appends a CLOCK every few seconds, under its id.

An id that reads ``HOST:PORT`` is taken for the address that brokers and clients reach that gateway by; ``HOST:PORT/N``
for worker N of one (`cli.supervised.gateways`). Others name nobody's address. Pure: no clock, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_ADDRESS: Final = re.compile(r"(?P<address>(?:\[[0-9A-Fa-f:.]+\]|[^\s:;/,\[\]]+):[0-9]{1,5})(?:/[0-9]+)?")
_CLOCKS: Final = 3
"""So many CLOCK events may be missing before a gateway counts as gone."""


def address_of_id(gateway_id: str) -> str | None:
    """The address that an id names; None if it names none."""
    found = _ADDRESS.fullmatch(gateway_id)
    return found["address"] if found else None


def live_addresses(heard_ms: Mapping[str, int], own_id: str, clock_interval_s: float) -> list[str]:
    """Addresses of the gateways that wrote lately, sorted.

    Args:
        heard_ms: By gateway id, the time of the last event that it wrote, by the log's clock.
        own_id: Whoever answers is there, heard or not: while the log cannot be written nobody is heard.
        clock_interval_s: Time between a gateway's CLOCK events.
    """
    since_ms = max(heard_ms.values(), default=0) - _CLOCKS * clock_interval_s * 1000
    live = {own_id, *(gateway for gateway, time_ms in heard_ms.items() if time_ms >= since_ms)}
    return sorted({address for address in map(address_of_id, live) if address is not None})
