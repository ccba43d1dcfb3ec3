# SPDX-License-Identifier: Apache-2.0
"""Figures, verdicts and what is kept of them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from math import inf
from pathlib import Path

import msgspec
import pytest

from dev.benchmarks.harness.bench import BENCHES, MICRO, run_of
from dev.benchmarks.harness.report import Figure, Result, number, quantile
from dev.benchmarks.harness.results import Run, save
from dev.benchmarks.harness.run import run_benches
from dev.benchmarks.harness.table import BEGIN, END, fill
from dev.benchmarks.history_pairs import known_to, verdict
from schemas.errors import SetupError

MACHINE = {"cores": 2, "processor": "Some <CPU>", "memoryGib": 24.0}


@pytest.mark.parametrize(
    ("figure", "reached", "said"),
    [
        (Figure("f", 2.0, "x", 2.0), True, "reached"),
        (Figure("f", 1.5, "x", 2.0), False, "MISSED by 25%"),
        (Figure("f", 0.5, "s", 0.6, "at most"), True, "reached"),
        (Figure("f", 0.9, "s", 0.6, "at most"), False, "MISSED by 50%"),
        (Figure("f", None, "s", 0.6, "at most", "it broke"), False, "MISSED"),
        (Figure("f", 3.0, "MB"), None, "3 MB"),
    ],
)
def test_verdict(figure: Figure, reached: bool | None, said: str) -> None:
    assert figure.reached is reached
    assert said in figure.line()


def test_quantile() -> None:
    values = [float(value) for value in range(1, 101)]
    assert (quantile(values, 0.99), quantile(values, 0.5), quantile([7.0], 0.99)) == (99.0, 50.0, 7.0)


def test_numbers_for_people() -> None:
    assert [number(value) for value in (0.0, 0.01234, 12.345, 123.4, 12345.6)] == [
        "0",
        "0.0123",
        "12.3",
        "123",
        "12,346",
    ]


def test_save_writes_json_and_chart(tmp_path: Path) -> None:
    results = [
        Result("one", [Figure("good & cheap", 3.0, "x", 2.0), Figure("bad", 9.0, "s", 3.0, "at most")]),
        Result("two", [], error="it broke"),
    ]
    written = save(tmp_path, Run("20260102T030405Z", MACHINE, {"rounds": 3}, results))
    found = json.loads(written.read_text())
    assert written.name == "20260102T030405Z.json"
    assert found["results"][0]["figures"][1] == {
        "name": "bad",
        "value": 9.0,
        "unit": "s",
        "target": 3.0,
        "sense": "at most",
    }
    assert found["results"][1]["error"] == "it broke"
    assert found["machine"] == MACHINE
    assert (tmp_path / "latest.json").read_text() == written.read_text()
    texts = [element.text or "" for element in ET.fromstring((tmp_path / "latest.svg").read_text()).iter()]
    assert "one: good & cheap" in texts
    assert any("MISSED" in text for text in texts)


def test_latest_keeps_what_was_not_measured_again(tmp_path: Path) -> None:
    def kept(started_at: str, machine: dict[str, object], *results: Result) -> list[tuple[str, float | None]]:
        save(tmp_path, Run(started_at, machine, {}, list(results)))
        latest = msgspec.json.decode((tmp_path / "latest.json").read_bytes(), type=Run)
        return [(result.bench, result.figures[0].value) for result in latest.results]

    def result(bench: str, value: float) -> Result:
        return Result(bench, [Figure("f", value, "x")])

    assert kept("1", MACHINE, result("growth", 1.0), result("storm", 2.0)) == [("growth", 1.0), ("storm", 2.0)]
    assert kept("2", MACHINE, result("idle", 3.0), result("growth", 4.0)) == [
        ("storm", 2.0),
        ("idle", 3.0),
        ("growth", 4.0),
    ]
    assert kept("3", {**MACHINE, "cores": 64}, result("idle", 5.0)) == [("idle", 5.0)]


def test_table_for_the_docs() -> None:
    result = Result("storm", [Figure("all new", 9.0, "s", 15.0, "at most", "a | b"), Figure("context", 1.0, "GB")])
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    filled = fill(text, Run("20260102T030405Z", MACHINE, {}, [result]))
    assert filled.startswith(f"before\n{BEGIN}\n") and filled.endswith(f"{END}\nafter\n")
    assert "| storm | all new | 9 s | at most 15 s | reached | a / b |" in filled
    assert "| storm | context | 1 GB | | | |" in filled
    assert "old" not in filled


def test_every_bench_can_be_loaded() -> None:
    for name in BENCHES:
        assert callable(run_of(name))
    folder = Path(__file__).parents[3] / "dev" / "benchmarks"
    files = {path.stem.replace("_", "-") for path in folder.glob("*.py") if path.stem != "__init__"}
    assert files == {*BENCHES, *MICRO}


def test_unknown_name() -> None:
    with pytest.raises(SetupError, match="no benchmark 'route-reed'; there are route-read"):
        run_benches(["route-reed"], rounds=1, quick=True)


def test_what_blocks_show() -> None:
    assert known_to([1.0] * 5) == (0.0, inf)  # five are never enough
    assert known_to([float(place) for place in range(1, 21)]) == (6.0, 15.0)
    assert verdict([1.0 + place / 1000 for place in range(-15, 15)]).endswith("at most 1.05 times: shown")
    assert verdict([1.0 + place / 50 for place in range(-15, 15)]).endswith("at most 1.05 times: not shown")
    assert verdict([1.1 + place / 1000 for place in range(-15, 15)]).endswith("more than 1.05 times: shown")
