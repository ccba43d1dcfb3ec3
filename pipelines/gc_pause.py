# SPDX-License-Identifier: Apache-2.0
"""Limits for Python's garbage collector in Spark's Python workers, where it takes longer than the fold's own work."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_seen_modules = 0


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disable the garbage collector in this context.

    A batch makes millions of objects and no cycles. The search for cycles took more than half of the fold's time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def spare_imports() -> None:
    """Exclude imported modules from garbage collection. Call this before a task ends.

    A worker of Spark collects garbage after each task (pyspark.daemon). That would scan every object from the import of
    pandas, pyarrow and pyspark, which takes 30 to 40 ms, three times in a micro-batch.
    """
    global _seen_modules
    if len(sys.modules) != _seen_modules:
        _seen_modules = len(sys.modules)
        gc.freeze()
