# SPDX-License-Identifier: Apache-2.0
"""Gain of a fold by executors, computed from the processor time of its parts."""

from __future__ import annotations

from typing import NamedTuple


class Cost(NamedTuple):
    """Processor milliseconds a registration."""

    driver: float
    executors: float

    def seconds(self, executors: int, registrations: int) -> float:
        """Return the time for so many registrations with so many executors of a core each, in seconds."""
        return (self.driver + self.executors / executors) * registrations / 1000

    def gain(self, executors: int) -> float:
        """Return the rate with so many executors, relative to one executor."""
        return self.seconds(1, 1) / self.seconds(executors, 1)
