# SPDX-License-Identifier: Apache-2.0
"""When to look into an object store for the next epoch: each look is a request. Pure but for what it is told."""

from __future__ import annotations

from typing import Final

POLL_S: Final = 0.15
"""While an epoch is expected. Each is a small request."""
IDLE_POLL_S: Final = 10.0
OVERDUE_POLL_S: Final = 1.0
OVERDUE_AFTER_S: Final = 10.0
"""The fold writes a batch a second; where it does not, it may be down for long."""
HEARING_POLL_S: Final = 60.0
"""Where epochs are announced: only for announcements that are lost."""


class StorePace:
    """The looks of one follower. Told of epochs from any thread, asked by one.

    An epoch is *expected* where the live view shows more than the tables. Where epochs are *announced*
    (`lake.announce`) nothing but an announcement is waited for, though one that does not come may be lost.
    """

    def __init__(self) -> None:
        self._looked_s = 0.0
        self._is_due = True
        self._hears = False
        self._expected_offset, self._expected_since_s = -1, 0.0

    def expect(self, offset: int, shown_offset: int, now_s: float) -> None:
        """An epoch is to come that shows the log up to an offset."""
        if shown_offset >= self._expected_offset:
            self._expected_since_s = now_s
        self._expected_offset = offset

    def hears(self, is_so: bool) -> None:
        """Whether epochs are announced from now on; there may have been some before."""
        self._hears, self._is_due = is_so, True

    def announced(self) -> None:
        """There is an epoch."""
        self._is_due = True

    def is_due(self, shown_offset: int, now_s: float) -> bool:
        """Whether to look now."""
        if self._is_due:
            return True
        is_expected = shown_offset < self._expected_offset
        if self._hears:
            wait_s = IDLE_POLL_S if is_expected else HEARING_POLL_S
            since_s = max(self._looked_s, self._expected_since_s) if is_expected else self._looked_s
            return now_s - since_s >= wait_s
        if not is_expected:
            wait_s = IDLE_POLL_S
        else:
            wait_s = POLL_S if now_s - self._expected_since_s <= OVERDUE_AFTER_S else OVERDUE_POLL_S
        return now_s - self._looked_s >= wait_s

    def look(self, now_s: float) -> None:
        """A look begins."""
        self._is_due, self._looked_s = False, now_s

    def again(self) -> None:
        """The last look found something, or failed: there may be more."""
        self._is_due = True
