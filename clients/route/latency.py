# SPDX-License-Identifier: Apache-2.0
"""Brokers to avoid because they are slow or unreachable, from the results of sends. Pure: the time is an argument.

After a slow send, its broker counts as unavailable for some time. After a failed send, it does so for 10 s::

    latency   >= 50 ms  >= 100 ms  >= 550 ms  >= 1800 ms  >= 3 s  >= 5 s  >= 15 s   failed (counts as 10 s)
    avoided      0         0          2 s        5 s        6 s     10 s    30 s    10 s

Sources (5.5.0): org.apache.rocketmq.client.latency.MQFaultStrategy, LatencyFaultToleranceImpl.
"""

from __future__ import annotations

from typing import Final

import msgspec

LATENCY_MAX_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
NOT_AVAILABLE_DURATION_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
ISOLATION_LATENCY_MS: Final = 10_000
"""Latency that a failed send counts as, in milliseconds."""


def not_available_duration_ms(latency_ms: int) -> int:
    """Milliseconds to avoid a broker after a send with this latency (computeNotAvailableDuration)."""
    for least, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_DURATION_MS), strict=True):
        if latency_ms >= least:
            return duration
    return 0


class FaultItem(msgspec.Struct, frozen=True):
    """Latency data of one broker. It is avoided until ``start_timestamp_ms`` and checked from ``check_stamp_ms`` on."""

    current_latency_ms: int
    start_timestamp_ms: int
    reachable: bool
    check_stamp_ms: int = 0


class FaultTable:
    """Latency data of brokers by name. A broker without data counts as available and reachable."""

    def __init__(self) -> None:
        """Create an empty table."""
        self._items: dict[str, FaultItem] = {}

    def update_fault_item(
        self, broker_name: str, current_latency_ms: int, *, isolation: bool, reachable: bool, now_ms: int
    ) -> None:
        """Record the result of a send. A shorter avoidance never ends a longer one.

        Args:
            broker_name: Broker of the send.
            current_latency_ms: Duration of the send, in milliseconds.
            isolation: Whether the send failed.
            reachable: Whether the broker is reachable. False excludes it until a detector reaches it again.
            now_ms: Current time, in milliseconds.
        """
        duration = not_available_duration_ms(ISOLATION_LATENCY_MS if isolation else current_latency_ms)
        known = self._items.get(broker_name)
        start = 0 if known is None else known.start_timestamp_ms
        if duration > 0:
            start = max(start, now_ms + duration)
        check = 0 if known is None else known.check_stamp_ms
        self._items[broker_name] = FaultItem(current_latency_ms, start, reachable, check)

    def item(self, broker_name: str) -> FaultItem | None:
        """Return the latency data of a broker."""
        return self._items.get(broker_name)

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        """Return True if the broker need not be avoided any more."""
        known = self._items.get(broker_name)
        return known is None or now_ms >= known.start_timestamp_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Return True if the broker was reachable at the last check."""
        known = self._items.get(broker_name)
        return known is None or known.reachable

    def remove(self, broker_name: str) -> None:
        """Remove the data of a broker."""
        self._items.pop(broker_name, None)

    def due(self, now_ms: int, detect_interval_ms: int) -> list[str]:
        """Return the brokers to check now. Each is due again after the interval (detectByOneRound)."""
        names = [name for name, item in self._items.items() if now_ms >= item.check_stamp_ms]
        for name in names:
            self._items[name] = msgspec.structs.replace(self._items[name], check_stamp_ms=now_ms + detect_interval_ms)
        return names

    def detected(self, broker_name: str) -> None:
        """Mark a broker as reachable, because it has answered."""
        known = self._items.get(broker_name)
        if known is not None:
            self._items[broker_name] = msgspec.structs.replace(known, reachable=True)
