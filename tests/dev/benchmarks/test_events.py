# SPDX-License-Identifier: Apache-2.0
"""Listeners by the hundred over real sockets: each gets every epoch, once and in time, and reads go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.benchmarks import events
from dev.benchmarks.harness.bench import Bench

pytestmark = pytest.mark.deep


def test_every_listener_gets_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {20: 1000, 1: 5}  # 1,000 listeners, and 5 s under load: time for some epochs on a busy machine
    monkeypatch.setattr(Bench, "size", lambda self, full, quick: sizes.get(quick, quick))
    result = events.run(Bench(folder=tmp_path, rounds=1, quick=True, say=lambda _: None))  # raises if one missed one
    found = {figure.name: figure.value or 0.0 for figure in result.figures}
    assert result.details["listeners"] == 1000
    assert found["to the last listener, longest"] < 20_000
    assert all(taken.load.answered > 0 and not taken.load.wrong for taken in result.details["samples"]["with"])
