# SPDX-License-Identifier: Apache-2.0
"""Python's garbage collector in Spark's Python workers, where it costs more than the fold itself."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_seen_modules = 0


@contextmanager
def gc_paused() -> Iterator[None]:
    """A batch makes millions of objects and no cycles; looking for some took more than half of the fold's time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def spare_imports() -> None:
    """Take what has been imported out of the collector's sight. To be called before a task ends.

    Spark has a worker collect its garbage after each task (pyspark.daemon), which looks through every object that
    pandas, pyarrow and pyspark made when they were imported: 30 to 40 ms, three times in a micro-batch.
    """
    global _seen_modules
    if len(sys.modules) != _seen_modules:
        _seen_modules = len(sys.modules)
        gc.freeze()
