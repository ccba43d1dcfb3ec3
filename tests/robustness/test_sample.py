# SPDX-License-Identifier: Apache-2.0
"""A sample of torture for every run of the suite; with --deep longer ones, and planted defects that the judge must find."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.developer import ROOT
from tests.robustness.judge import judge, open_case, report
from tests.robustness.plan import ALWAYS, plan
from tests.robustness.planted.sitecustomize import MUTANTS, SHOWN_BY
from tests.robustness.rules import OF_THE_RUN
from tests.robustness.torture import torture
from tests.robustness.world import Setup, possible

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1800)]

WELL_S = 120.0
"""On a machine that runs other tests as well; how long it takes on a quiet one is `./routelake torture`'s to judge."""

SEED = 20261123


def test_nothing_contradicts_the_model(tmp_path: Path) -> None:
    """Two gateways, a fold without Spark; one fault of each kind that is over in a few seconds."""
    setup = Setup(gateways=2, plants=("haste", "small-fold"))
    kinds = possible((*ALWAYS, "slow-disk", "failing-disk", "clock-forward", "clock-back"), setup)
    torture(plan(SEED, 30.0, kinds, 2.0, gateways=2), tmp_path, setup)
    case = open_case(tmp_path, well_limit_s=WELL_S)
    violations = judge(case)
    again = f"--minutes 0.5 --seed {SEED} --every-s 2 --gateways 2 --without-spark --faults {','.join(kinds)}"
    _, said = report(case, violations, f"./routelake torture {again}")
    print(said)
    assert not violations, said
    assert len(case.places) > 100
    assert len(case.reads) > 200


@pytest.mark.deep
@pytest.mark.parametrize(
    "options", [(), ("--gateways", "2"), ("--log", "kafka"), ("--log", "kafka", "--gateways", "2")]
)
def test_every_kind_of_fault(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Five minutes with a fresh seed, in a process that may have a disk of its own."""
    seed = str(random.SystemRandom().randrange(1 << 16))
    command = [sys.executable, "-m", "tests.robustness", "--seed", seed, "--every-s", "12", "--well-s", str(WELL_S)]
    command += ["--folder", str(tmp_path / "run"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.deep
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_planted_defect_is_found(tmp_path: Path, mutant: str) -> None:
    torture(plan(1, 40.0, SHOWN_BY.get(mutant, ()), 5.0), tmp_path, Setup(plants=("haste", mutant)))
    violations = judge(open_case(tmp_path, well_limit_s=WELL_S))
    violations = [violation for violation in violations if violation.rule not in OF_THE_RUN]
    assert violations
    print(mutant, violations[0].rule, violations[0].message)
