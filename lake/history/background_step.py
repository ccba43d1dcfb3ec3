# SPDX-License-Identifier: Apache-2.0
"""Intervals beside the epochs: a step has a thread of its own, so that no epoch waits for one.

Nearly all of a step is Arrow's and delta-rs's work, which leaves the interpreter to others. It touches the tables of
intervals, which nobody else writes meanwhile: maintenance waits until it is idle.
"""

from __future__ import annotations

import threading

from lake.history.intervals import IntervalKeeper
from runtime.supervised_tasks import critical_thread


class BackgroundStep:
    """Runs the steps of a keeper, one at a time. For the thread that writes the lake.

    Args:
        keeper: Nobody else calls it.
    """

    def __init__(self, keeper: IntervalKeeper) -> None:
        self._keeper = keeper
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no step is under way: the tables may be written by others until the next `start`."""
        return self._thread is None or not self._thread.is_alive()

    def start(self, epoch: int, version: int) -> None:
        """Begin a step, where one is due and none is under way. The arguments are those of `IntervalKeeper.step`."""
        if self.is_idle and self._keeper.is_due:
            # As a daemon: a process that has to end leaves a step as it leaves a batch, and another one goes on.
            self._thread = critical_thread(self._keeper.step, "intervals", (epoch, version))
            self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is idle; returns whether it is."""
        if self._thread is not None:
            self._thread.join(max(timeout_s, 0))
        return self.is_idle
