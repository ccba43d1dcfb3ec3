# SPDX-License-Identifier: Apache-2.0
"""Progress and final report of a fleet."""

from __future__ import annotations

from collections import Counter

import msgspec
from rich.table import Table

PERCENTILES = (50, 99, 99.9)


class Kind(msgspec.Struct):
    """One kind of request.

    Attributes:
        took_ms: Of each answered one.
        failed: How many were not answered, or with an error.
        sent_bytes: Of bodies, to all NameServers.
    """

    took_ms: list[float] = msgspec.field(default_factory=list)
    failed: int = 0
    sent_bytes: int = 0

    @property
    def count(self) -> int:
        """Answered or not."""
        return len(self.took_ms) + self.failed

    def percentile(self, percent: float) -> float:
        """Milliseconds within which so many per cent of the answers came; 0 without any."""
        if not self.took_ms:
            return 0.0
        ordered = sorted(self.took_ms)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class FleetReport(msgspec.Struct):
    """Counts of a fleet.

    Attributes:
        brokers: How many it has.
        topics: How many each of them has.
        first: First registrations.
        rounds: Later full ones, and questions whether one is needed.
        changes: Incremental ones.
        errors: What went wrong, by message without the broker's part.
        first_took_s: From the start until every broker had been registered or given up.
    """

    brokers: int
    topics: int
    first: Kind = msgspec.field(default_factory=Kind)
    rounds: Kind = msgspec.field(default_factory=Kind)
    changes: Kind = msgspec.field(default_factory=Kind)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    first_took_s: float = 0.0

    def line(self, registered: int, elapsed_s: float) -> str:
        """One line of progress."""
        failed = self.first.failed + self.rounds.failed + self.changes.failed
        return (
            f"{elapsed_s:6.0f} s  {registered}/{self.brokers} brokers registered, {self.rounds.count} rounds, "
            f"{self.changes.count} changes, {failed} failed, p99 of rounds {self.rounds.percentile(99):.0f} ms"
        )

    def table(self, registered: int) -> Table:
        """The end of it."""
        table = Table(title=f"{registered} of {self.brokers} brokers registered, {self.topics} topics each")
        table.add_column("request")
        for column in ("answered", "failed", "MB sent", *(f"p{percent:g} ms" for percent in PERCENTILES), "max ms"):
            table.add_column(column, justify="right")
        for name, kind in (("first registration", self.first), ("round", self.rounds), ("change", self.changes)):
            table.add_row(
                name,
                str(len(kind.took_ms)),
                str(kind.failed),
                f"{kind.sent_bytes / 1e6:.1f}",
                *(f"{kind.percentile(percent):.1f}" for percent in PERCENTILES),
                f"{max(kind.took_ms, default=0.0):.1f}",
            )
        table.caption = f"all first registrations within {self.first_took_s:.1f} s"
        return table
