# SPDX-License-Identifier: Apache-2.0
"""Event times by a clock of the test's own."""

from __future__ import annotations

from eventlog.base import Clock
from eventlog.stamps import Stamps


def stamps_of(clock: Clock) -> Stamps:
    """Event times by a clock that is believed whatever it says; no other time passes."""
    return Stamps(clock, lambda: 0.0, max_leap_ms=0)
