# SPDX-License-Identifier: Apache-2.0
"""Torture with Spark and Kafka, each time with another seed; and planted defects, which the judge must find."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dev.fault_injection.command import WELL_S, run_torture
from dev.fault_injection.judge import judge, open_case
from dev.fault_injection.plan import plan
from dev.fault_injection.planted.sitecustomize import FOUND_BY, MUTANTS, SHOWN_BY, WITHOUT_SPARK
from dev.fault_injection.torture import torture
from dev.fault_injection.world import Setup

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    "options", [(), ("--gateways", "2"), ("--event-log", "kafka"), ("--event-log", "kafka", "--gateways", "2")]
)
def test_every_kind_of_fault(tmp_path: Path, options: tuple[str, ...]) -> None:
    seed = str(random.SystemRandom().randrange(1 << 16))
    run_torture("--seed", seed, "--every-s", "12", *options, folder=tmp_path / "run")


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_planted_defect_is_found(tmp_path: Path, mutant: str) -> None:
    plants = ("haste", *(["small-fold"] if mutant in WITHOUT_SPARK else []), mutant)
    torture(plan(1, 40.0, SHOWN_BY.get(mutant, ()), 5.0), tmp_path, Setup(plants=plants))
    violations = judge(open_case(tmp_path, well_limit_s=WELL_S))
    found = {violation.rule for violation in violations}
    print(mutant, sorted(found))
    assert FOUND_BY[mutant] in found
