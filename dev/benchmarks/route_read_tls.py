# SPDX-License-Identifier: Apache-2.0
"""route-read-tls: as route-read, over TLS 1.3 with one suite and one certificate for both.

The NameServer encrypts with what its jars bring: the JDK's implementation.
"""

from __future__ import annotations

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import Shape
from dev.benchmarks.harness.report import Result
from dev.benchmarks.route_read import TOPICS, compare

TARGETS = {Shape(64, 1): 1.5, Shape(64, 4): 1.5, Shape(8, 16): 1.5}


def run(bench: Bench) -> Result:
    """Measure."""
    return compare(bench, "route-read-tls", groups=1, topics=TOPICS, targets=TARGETS, p99_target=None, tls=True)
