# SPDX-License-Identifier: Apache-2.0
"""A run in which nothing was asked, judged or broken is no good run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dev.fault_injection import rules_of_run
from dev.fault_injection.case import Case
from dev.fault_injection.figures import Figures, figures_of, read_figures, table
from dev.fault_injection.hand_made import again, good_case
from dev.fault_injection.judge import judge
from dev.fault_injection.record import Injected


@pytest.fixture
def case() -> Case:
    """See `good_case`."""
    return good_case()


def messages(case: Case) -> list[str]:
    return [violation.message for violation in judge(case)]


def test_a_planned_fault_that_hit_no_process_is_a_violation(case: Case) -> None:
    case.record.about["planned"] = {"kill-fold": 2, "rest": 1}
    case.record.faults = [Injected("kill-fold", 1.0, 2.0, hit=False), Injected("kill-fold", 3.0, 4.0)]
    assert messages(again(case)) == []
    case.record.faults.pop()
    assert messages(again(case)) == ["kill-fold was planned, and never hit anybody"]


def test_a_missing_rest_is_a_violation(case: Case) -> None:
    case.record.about["planned"] = {"rest": 2}
    assert messages(again(case)) == ["2 rests were planned, 1 came"]


def test_a_kind_of_answer_that_was_never_checked_is_a_violation(case: Case) -> None:
    """Every answer is there, and none can be distinguished from a refusal."""
    case.record.entries = [
        replace(entry, code=503) if entry.operation.kind == "route" else entry for entry in case.record.entries * 10
    ]
    said = rules_of_run.everything_was_asked(again(case))
    assert [violation.message for violation in said if "route" in violation.message] == [
        "route http: nothing of that kind was judged",
        "route remoting: nothing of that kind was judged",
    ]


def test_figures_of_many_runs_come_together(case: Case, tmp_path: Path) -> None:
    case.record.about |= {"seconds": 1_800.0, "log": "sqlite", "gateways": 2, "plants": ["haste"]}
    case.record.faults = [Injected("kill-fold", 1.0, 2.0)]
    judge(case)
    for name, seed in (("a", 2), ("b", 1)):
        (tmp_path / name).mkdir()
        figures = figures_of(case, [], f"--seed {seed}")
        figures.about = {**figures.about, "seed": seed}
        figures.write(tmp_path / name)
    (tmp_path / "c").mkdir()
    Figures("--seed 3", {"seed": 3, "seconds": 0}, "it is not over").write(tmp_path / "c")
    runs = read_figures([tmp_path])
    assert [run.about["seed"] for run in runs] == [1, 2, 3]
    said = table(runs)
    assert "| 1 | 30 | sqlite, 2, Spark | 1 | 3 | 7 | 1 s | no violation |" in said
    assert "| it is not over after 0 s |" in said
    assert "3 runs, 1.00 hours of traffic, 2 of them without a violation." in said
    assert "Faults: 2: 2 kill-fold." in said


def test_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_figures([tmp_path])
