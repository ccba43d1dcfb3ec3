# SPDX-License-Identifier: Apache-2.0
"""Refusals are counted each, and logged within bounds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from remoting.server import refusals
from remoting.server.refusals import LOG_INTERVAL_S, Refusals


def test_a_thousand_refusals_are_a_few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    # The module's own clock only: event loops of other tests' servers live in this process.
    monkeypatch.setattr(refusals, "time", SimpleNamespace(monotonic=lambda: now[0]))
    noted = Refusals("remoting")
    with capture_logs() as lines:
        for number in range(1_000):
            noted.note("protocol-error", f"192.0.2.1:{number}", "x" * 10_000)
            now[0] += LOG_INTERVAL_S / 250
        noted.note("evicted-idle", "192.0.2.1:1", "another reason")
    assert noted.counts == {"protocol-error": 1_000, "evicted-idle": 1}
    assert [(line["reason"], line["since_last_line"], line["in_all"]) for line in lines] == [
        ("protocol-error", 1, 1),
        ("protocol-error", 250, 251),
        ("protocol-error", 250, 501),
        ("protocol-error", 250, 751),
        ("evicted-idle", 1, 1),
    ]
    assert max(len(line["detail"]) for line in lines) == 200
