# SPDX-License-Identifier: Apache-2.0
"""Yielder: a thread that computes gives the interpreter to the thread that serves, between slices of its work."""

from __future__ import annotations

import time


class Yielder:
    """Called between small pieces of work: every ``slice_s`` it sleeps, so that other threads get the interpreter."""

    def __init__(self, slice_s: float = 0.001, rest_s: float = 0.0002) -> None:
        """Start the first slice now."""
        self._slice_s, self._rest_s = slice_s, rest_s
        self._end = time.perf_counter() + slice_s

    def __call__(self) -> None:
        """Sleep if the slice is over."""
        if time.perf_counter() >= self._end:
            time.sleep(self._rest_s)
            self._end = time.perf_counter() + self._slice_s
