# SPDX-License-Identifier: Apache-2.0
"""What a fold gains by executors, computed from the processor time of its parts."""

from __future__ import annotations

from typing import NamedTuple


class Cost(NamedTuple):
    """Processor milliseconds a registration."""

    driver: float
    executors: float

    def seconds(self, executors: int, registrations: int) -> float:
        """How long so many take so many executors of a core each."""
        return (self.driver + self.executors / executors) * registrations / 1000

    def gain(self, executors: int) -> float:
        """How much more they fold than one."""
        return self.seconds(1, 1) / self.seconds(executors, 1)
