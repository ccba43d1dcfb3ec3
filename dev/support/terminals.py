# SPDX-License-Identifier: Apache-2.0
"""A terminal of a test's own."""

from __future__ import annotations

import pty

import pytest


def terminal() -> tuple[int, int]:
    """The two ends of one; skips the test where the machine has none to give, as a bare container without /dev/pts."""
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be had here (/dev/pts): {error}")
