# SPDX-License-Identifier: Apache-2.0
"""`routelake history report` as a person calls it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from cli import usage
from cli.history.report import Name
from cli.main import app
from dev.support import tables_page
from lake.history.reports import REPORTS, TIMES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    tables_page.write(folder / "lake")
    return folder


class ReportSpec:
    """Runs the command; the exit code and what was printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *args: str) -> tuple[int, str, str]:
        code = usage.run(app, ["history", "report", *args, "--data-dir", str(self.folder), "--time-zone", "UTC"])
        said = self.capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture
def report(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> ReportSpec:
    monkeypatch.setattr("runtime.no_pandas.keep_pandas_out", lambda: None)  # meant for a process of its own
    return ReportSpec(folder, capsys)


def test_names() -> None:
    assert [name.value for name in Name] == [report.name for report in REPORTS]
    assert TIMES == 2


def test_a_table(report: ReportSpec) -> None:
    code, out, err = report("unavailable", "--from", "2023-11-14T22:14:00Z", "--to", "2023-11-14T22:14:30Z")
    assert (code, err) == (0, "")
    title, *lines, window = out.splitlines()
    assert title.split()[:3] == ["#topic", "#kind", "#validFrom"]
    assert sorted(line.split()[0] for line in lines) == ["audit", "orders"]
    assert window == "from 2023-11-14 22:14:00.000 to 2023-11-14 22:14:30.000, UTC"
    few = report("unavailable", "--limit", "1")[1].splitlines()
    assert few[-1].endswith("more rows. Set --limit to show more (1)")
    assert report("refused")[1].splitlines()[0] == "there is nothing to report"


def test_for_programs(report: ReportSpec) -> None:
    (row,) = map(json.loads, report("flapping", "--times", "0", "--json")[1].splitlines())
    assert (row["brokerName"], row["timesBack"], row["firstWent"]) == ("x", 1, "2023-11-14T22:14:22Z")
    assert report("flapping", "--json")[1] == ""
    (hour, *_) = csv.DictReader(io.StringIO(report("churn", "--csv")[1]))
    assert hour == {
        "hour": "2023-11-14T22:00:00Z",
        "made": "2",
        "deleted": "1",
        "lost": "0",
        "returned": "0",
        "firstSeen": "2",
        "firstEpoch": "1",
        "lastEpoch": "8",
    }
    assert report("refused", "--csv")[1].startswith("command,reason,")


def test_a_page(report: ReportSpec) -> None:
    code, out, _ = report("peers", "--html")
    assert code == 0
    assert out.startswith("<!DOCTYPE html>")
    assert "from the beginning to 2023-11-14 23:21:14.000, UTC" in out


def test_nothing_for_as_long_as_is_asked_for(report: ReportSpec) -> None:
    """Not an error: in a quiet cluster the newest epoch may be older than --from."""
    code, out, err = report("peers", "--from", "2024-01-01T00:00:00Z")
    assert (code, err, out.splitlines()[0]) == (0, "", "there is nothing to report")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("peers --from 3 --to 2", "--from must not be after --to"),
        ("peers --from 1999-01-01T00:00:00Z", "is before the first epoch"),
        ("peers --from 1999-01-01T00:00:00Z", "; leave out --from to begin there"),
        ("peers --to 9999", "has not been committed yet"),
        ("peers --html --csv", "--html cannot be used with --json or --csv. Choose one"),
        ("peers --from tomorrow", "is not a point in time"),
        ("pears", "'pears'"),
    ],
)
def test_what_is_refused(report: ReportSpec, words: str, says: str) -> None:
    code, out, err = report(*words.split())
    assert code != 0
    assert out == ""
    assert says in err


def test_no_lake(report: ReportSpec, tmp_path: Path) -> None:
    report.folder = tmp_path
    code, _, err = report("peers")
    assert (code, "there is no lake in" in err) == (2, True)
