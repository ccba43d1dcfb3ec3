"""Figures, verdicts and what is kept of them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks.harness.bench import BENCHES, MICRO, run_of
from benchmarks.harness.report import Figure, Result, number, quantile, save
from benchmarks.harness.run import run_benches
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
    written = save(tmp_path, results, MACHINE, {"rounds": 3})
    found = json.loads(written.read_text())
    assert found["results"][0]["missed"] == ["bad"]
    assert found["results"][1]["error"] == "it broke"
    assert found["machine"] == MACHINE
    assert (tmp_path / "latest.json").read_text() == written.read_text()
    texts = [element.text or "" for element in ET.fromstring((tmp_path / "latest.svg").read_text()).iter()]
    assert "one: good & cheap" in texts
    assert any("MISSED" in text for text in texts)


def test_every_bench_can_be_loaded() -> None:
    for name in BENCHES:
        assert callable(run_of(name))
    folder = Path(__file__).parents[2] / "benchmarks"
    files = {path.stem.replace("_", "-") for path in folder.glob("*.py") if path.stem != "__init__"}
    assert files == {*BENCHES, *MICRO}


def test_unknown_name() -> None:
    with pytest.raises(SetupError, match="no benchmark 'route-reed'; there are route-read"):
        run_benches(["route-reed"], rounds=1, quick=True)
