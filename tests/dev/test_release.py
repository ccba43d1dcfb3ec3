# SPDX-License-Identifier: Apache-2.0
"""The release checklist."""

from __future__ import annotations

import pytest

from dev.release import checklist
from dev.release.checklist import Step, main
from dev.support.command import command


def test_all_steps_run_though_one_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    steps = (
        Step("first", lambda: None), Step("second", lambda: "it is wrong"), Step("third", lambda: None),
        Step("absent", lambda: "not reached", needs="no-such-program-here"),
    )  # fmt: skip
    monkeypatch.setattr(checklist, "STEPS", steps)
    assert main([]) == 1
    said = capsys.readouterr().out
    assert [line.split()[1] for line in said.splitlines() if line.startswith(("ok", "FAILED"))] == [
        "first", "second", "third",
    ]  # fmt: skip
    assert "it is wrong" in said and "skipped absent: there is no no-such-program-here" in said
    assert main(["third"]) == 0


def test_an_unknown_step_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert "no step 'nothing'; there are version, wheel, check" in capsys.readouterr().err


def test_it_needs_check() -> None:
    done = command("release")
    assert done.returncode == 2 and "./routelake release --check" in done.stderr
