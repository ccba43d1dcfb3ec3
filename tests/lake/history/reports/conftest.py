# SPDX-License-Identifier: Apache-2.0
"""Two hours of 30 brokers, told once: a lake, DuckDB on it, a plain scan; and the page of questions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dev.support.drive import drive
from dev.support.generated_logs import batches
from dev.support.history_page import QUERIES, TEXT
from dev.support.two_hours import Scan, two_hours
from lake.history.intervals import rebuild
from lake.history.report_duckdb import DuckLake

SQL = {question: queries[0] for question, queries in QUERIES.items()}
COMMANDS: dict[str, str] = dict(
    re.findall(r"^### (.*?)\n+```\n\./routelake (history .*?)\n", TEXT.partition("## Twelve")[2], re.MULTILINE)
)
"""Question to the first command that answers it."""


class Told:
    """The lake, DuckDB on it, and the scan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = two_hours()
        self.scan = Scan(self.records)
        drive(folder / "lake", list(batches(self.records, (160,))))
        rebuild(folder / "lake", lambda epoch, last: None)
        self.duck = DuckLake(folder / "lake")

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        return self.duck.connection.execute(SQL[question]).fetchall()


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    told = Told(tmp_path_factory.mktemp("questions"))
    with told.duck:
        yield told
