# SPDX-License-Identifier: Apache-2.0
"""Fault injection in every run of the suite: 75 seconds that meet every kind of fault. test_deep.py runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.fault_injection.command import run_torture
from dev.fault_injection.plan import ALWAYS, LARGE

SEED = 20261123
OPTIONS = ("--seed", str(SEED), "--gateways", "2", "--without-spark")


@pytest.mark.timeout(600)
def test_nothing_contradicts_the_model(tmp_path: Path) -> None:
    """Two gateways, a fold without Spark, and each fault that this machine has the means for."""
    options = ("--minutes", "1.25", "--pace", "2", "--every-s", "3.3")
    figures = run_torture(*OPTIONS, *options, folder=tmp_path / "run")
    assert figures.faults.keys() >= {*ALWAYS, *LARGE, "kill-second", "stop-second"} - {"lost-checkpoint"}
    assert figures.writes > 300
    assert figures.answers > 1_000


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_nothing_contradicts_the_model_for_five_minutes(tmp_path: Path) -> None:
    options = ("--minutes", "5", "--pace", "4", "--every-s", "9")
    assert sum(run_torture(*OPTIONS, *options, folder=tmp_path / "run").faults.values()) > 20
