# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/how-to/analyze in Polars, pandas and DuckDB, word for word, as a user runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dev.support import tables_page
from lake.history.intervals import rebuild

ANALYZE = Path(__file__).parents[4] / "docs" / "how-to" / "analyze"
PAGE = (ANALYZE / "connect.md").read_text(encoding="utf-8")
DUCKDB, POLARS, PANDAS, SPARK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    lake = folder / "data" / "lake"
    tables_page.write(lake)
    rebuild(lake, lambda epoch, last: None)
    return folder


def run(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_duckdb(folder: Path) -> None:
    assert re.search(r"audit\s+│ b\s+│\s+4 │\s+4 │", run(folder, DUCKDB))


def test_polars(folder: Path) -> None:
    now, once = run(folder, POLARS).split("shape:")[1:]
    assert "writeQueueNums" in now
    assert re.search(r"orders\s+┆ b\s+┆ 27s", once), once


def test_pandas(folder: Path) -> None:
    (line,) = [line for line in run(folder, PANDAS).splitlines() if line.startswith("x:1")]
    assert line.split()[1] == "2"


def test_two_tables_are_joined_at_one_epoch(folder: Path) -> None:
    page = (ANALYZE / "choose-a-table.md").read_text(encoding="utf-8")
    duckdb, polars = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for code in (duckdb, polars):
        assert re.search(r"orders\s+[│┆] \w+\s+[│┆] \w+\s+[│┆]\s+\d+", run(folder, code))
