# SPDX-License-Identifier: Apache-2.0
"""Processes that stand still for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def stopped(pids: Collection[int]) -> Iterator[None]:
    """SIGSTOP, and SIGCONT in the end."""
    try:
        _send(pids, signal.SIGSTOP)
        yield
    finally:
        _send(pids, signal.SIGCONT)


def _send(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
