# SPDX-License-Identifier: Apache-2.0
"""route-read-wide: the route of a topic that 300 broker groups have: an answer of 63 KB."""

from __future__ import annotations

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import Shape
from dev.benchmarks.harness.report import Result
from dev.benchmarks.route_read import compare

TARGETS = {Shape(16, 1): 8.0, Shape(64, 1): 8.0}


def run(bench: Bench) -> Result:
    """Measure."""
    groups = bench.size(300, 20)
    return compare(bench, "route-read-wide", groups=groups, topics=1, targets=TARGETS, p99_target=None)
