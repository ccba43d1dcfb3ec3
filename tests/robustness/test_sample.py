# SPDX-License-Identifier: Apache-2.0
"""A sample of torture for every run of the suite; with --deep a longer one, and planted defects that the judge must find."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.robustness.__main__ import planted
from tests.robustness.judge import judge, open_case, report
from tests.robustness.mutants.sitecustomize import MUTANTS
from tests.robustness.plan import ALWAYS, plan
from tests.robustness.torture import torture

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(1800)]

WELL_S = 120.0
"""On a machine that runs other tests as well; how long it takes on a quiet one is `./routelake torture`'s to judge."""


def test_nothing_contradicts_the_model(tmp_path: Path) -> None:
    """One fault of each kind from which routelake comes back by itself."""
    seed = 20261123
    torture(plan(seed, 30.0, ALWAYS, 4.0), tmp_path)
    case = open_case(tmp_path, well_limit_s=WELL_S)
    violations = judge(case)
    said = report(case, violations, f"./routelake torture --minutes 0.5 --seed {seed} --faults {','.join(ALWAYS)}")
    print(said)
    assert not violations, said
    assert len(case.places) > 100
    assert len(case.reads) > 200


@pytest.mark.deep
def test_every_kind_of_fault(tmp_path: Path) -> None:
    """Five minutes with a fresh seed."""
    seed = random.SystemRandom().randrange(1 << 16)
    torture(plan(seed, 300.0, every_s=12.0), tmp_path)
    case = open_case(tmp_path, well_limit_s=WELL_S)
    violations = judge(case)
    assert not violations, report(case, violations, f"./routelake torture --minutes 5 --seed {seed} --every-s 12")


@pytest.mark.deep
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_planted_defect_is_found(tmp_path: Path, mutant: str) -> None:
    torture(plan(1, 40.0, ()), tmp_path, environment=planted(mutant))
    violations = judge(open_case(tmp_path, well_limit_s=WELL_S))
    assert violations
    print(mutant, violations[0].rule, violations[0].message)
