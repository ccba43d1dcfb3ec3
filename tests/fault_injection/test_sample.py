# SPDX-License-Identifier: Apache-2.0
"""Five minutes of torture in every run of the suite; what takes longer is in test_deep.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.fault_injection.command import run_torture

SEED = 20261123


@pytest.mark.timeout(1800)
def test_nothing_contradicts_the_model(tmp_path: Path) -> None:
    """Two gateways, a fold without Spark, and every fault that this machine has the means for."""
    options = ("--minutes", "5", "--seed", str(SEED), "--gateways", "2", "--pace", "4", "--every-s", "9")
    figures = run_torture(*options, "--without-spark", folder=tmp_path / "run")
    assert figures.writes > 300
    assert figures.answers > 1_000
    assert sum(figures.faults.values()) > 20
