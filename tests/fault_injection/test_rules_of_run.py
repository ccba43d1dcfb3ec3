# SPDX-License-Identifier: Apache-2.0
"""A run in which nothing was asked, judged or broken is no good run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dev.fault_injection import rules_of_run
from dev.fault_injection.case import Case
from dev.fault_injection.evidence import Logged, read_logs
from dev.fault_injection.figures import Figures, figures_of, read_figures, table
from dev.fault_injection.hand_made import again, good_case
from dev.fault_injection.judge import judge
from dev.fault_injection.record import Injected
from schemas.events import Actor, Clock, Resume


@pytest.fixture
def case() -> Case:
    """See `good_case`."""
    return good_case()


def messages(case: Case) -> list[str]:
    return [violation.message for violation in judge(case)]


def test_a_fault_that_never_hit_anybody(case: Case) -> None:
    case.record.about["planned"] = {"kill-fold": 2, "rest": 1}
    case.record.faults = [Injected("kill-fold", 1.0, 2.0, hit=False), Injected("kill-fold", 3.0, 4.0)]
    assert messages(again(case)) == []
    case.record.faults.pop()
    assert messages(again(case)) == ["kill-fold was planned, and never hit anybody"]


def test_a_death_and_ends(case: Case, tmp_path: Path) -> None:
    """As `serve` says it; its children are killed all the time."""
    (tmp_path / "data-serve-1.log").write_text(
        "2026-11-23T20:31:14Z [warning  ] ended, starting again child=fold exit_code=-9 in_seconds=0.5 process=serve\n"
        * 2
        + "2026-11-23T20:31:15Z [error] who gives memory back has died, and with it this process cannot go on\n"
    )
    read_logs(tmp_path.glob("*.log"), case.evidence)
    assert messages(again(case)) == ["a thread or task of a server died"]
    assert figures_of(case, [], "").ends == {"fold -9": 2}


def test_a_rest_that_never_came(case: Case) -> None:
    case.record.about["planned"] = {"rest": 2}
    assert messages(again(case)) == ["2 rests were planned, 1 came"]


def test_a_second_fold_that_goes_on(case: Case) -> None:
    case.record.faults = [Injected("second-fold", 1.0, 2.0, wrong="it did not end")]
    assert messages(again(case)) == ["second-fold: it did not end"]


def test_a_clock_that_was_not_stepped(case: Case) -> None:
    """Because the library was not loaded, say."""
    case.record.faults = [Injected("clock-forward", 1.0, 2.0)] * 2
    assert messages(again(case)) == ["the clock went ahead 2 times, the log's times 0 times"]
    routelake = Actor(gateway="g", via="routelake")
    for offset, time_ms in ((5, 3_005_000), (6, 6_005_000)):
        case.evidence.log.append(Logged(offset, time_ms, Resume(actor=routelake)))
    assert rules_of_run.faults_happened(again(case)) == []


def test_a_fault_that_waits_for_somebody(case: Case) -> None:
    case.record.faults = [Injected("kill-gateway", 10.0, 38.0, waited_s=28.0)]
    assert messages(again(case)) == []
    case.record.faults = [Injected("kill-gateway", 10.0, 189.0, waited_s=179.0)]
    assert messages(again(case)) == ["kill-gateway found nobody for 179 s"]


def test_a_judge_who_sees_nothing(case: Case) -> None:
    """Every answer is there, and none can be told from a refusal."""
    case.record.entries = [
        replace(entry, code=503) if entry.operation.kind == "route" else entry for entry in case.record.entries * 10
    ]
    said = rules_of_run.everything_was_asked(again(case))
    assert [violation.message for violation in said if "route" in violation.message] == [
        "route http: nothing of that kind was judged",
        "route remoting: nothing of that kind was judged",
    ]


def test_a_whole_run_has_everything(case: Case) -> None:
    case.record.about["seconds"] = 60.0
    assert {message.partition(":")[0] for message in messages(again(case))} >= {"wipe remoting", "as-of time", "expiry"}


def test_clocks_are_counted(case: Case) -> None:
    case.evidence.log.append(Logged(5, 8_000, Clock(actor=Actor(gateway="g", via="routelake"))))
    case = again(case)
    judge(case)
    assert case.judged["clock"] == 2


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
