# SPDX-License-Identifier: Apache-2.0
"""Figures against targets, as they are printed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

Sense = Literal["at least", "at most"]

BENCHES: Final = (
    "route-read",
    "route-read-wide",
    "route-read-under-change",
    "route-read-tls",
    "http-read",
    "freshness",
    "auto-create",
    "acknowledge",
    "storm",
    "one-frame",
    "cold-start",
    "idle",
    "events",
    "time-travel",
    "growth",
    "request-cost",
)
"""In the order of reports/performance.md."""

BENCH_ORDER: Final = {name: position for position, name in enumerate(BENCHES)}


class Figure(msgspec.Struct, rename="camel", omit_defaults=True):
    """One result with its target.

    Attributes:
        name: Measured quantity.
        value: Measured value; None without one (the note says why).
        unit: Unit, such as ``x``, ``req/s``, ``ms``.
        target: Value to reach; None for context.
        sense: Good side of the target.
        note: Composition of the value.
        peers: Values of other servers, by name: the parts of a ratio.
    """

    name: str
    value: float | None
    unit: str
    target: float | None = None
    sense: Sense = "at least"
    note: str = ""
    peers: dict[str, float] = {}

    @property
    def reached(self) -> bool | None:
        """Return whether the target was reached; None without a target."""
        if self.target is None:
            return None
        if self.value is None:
            return False
        return self.value >= self.target if self.sense == "at least" else self.value <= self.target

    def line(self) -> str:
        """One line for people."""
        value = "none" if self.value is None else f"{number(self.value)} {self.unit}"
        if self.target is None:
            goal, verdict = "", ""
        else:
            goal = f"{self.sense} {number(self.target)} {self.unit}"
            verdict = "reached" if self.reached else f"MISSED{self._by()}"
        return f"  {self.name:<44} {value:>18}   {goal:<24} {verdict:<16} {self.note}".rstrip()

    def _by(self) -> str:
        if self.value is None or not self.target:
            return ""
        return f" by {abs(self.value - self.target) / self.target:.0%}"


class Result(msgspec.Struct, rename="camel"):
    """One bench: its figures, and everything they were computed from.

    ``load_average`` is that of the minute before: what else went on.
    """

    bench: str
    figures: list[Figure]
    started_at: str = ""
    load_average: float = 0.0
    seconds: float = 0.0
    details: dict[str, Any] = {}
    error: str | None = None

    def lines(self) -> Iterable[str]:
        """For people."""
        yield f"{self.bench} ({self.seconds:.0f} s)"
        for figure in self.figures:
            yield figure.line()
        if self.error:
            yield f"  FAILED: {self.error}"

    @property
    def missed(self) -> list[Figure]:
        """Figures that miss their target."""
        return [figure for figure in self.figures if figure.reached is False]


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def median(values: Sequence[float]) -> float:
    """Return the median of at least one value."""
    return statistics.median(values)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1))]
