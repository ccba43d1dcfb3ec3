# SPDX-License-Identifier: Apache-2.0
"""Spark and DuckDB answer alike: the questions of docs/how-to/analyze/queries.md, the views, the interval tables and the reports.

`tests/lake/history/reports` holds DuckDB's answers against the events.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dev.support.drive import drive
from dev.support.generated_logs import batches
from dev.support.history_page import PROOF, QUERIES
from dev.support.two_hours import two_hours
from lake.history.intervals import rebuild
from lake.history.report_duckdb import DuckLake
from lake.history.reports import BY_NAME, REPORTS, query_of
from lake.history.sql_views import VIEWS
from pipelines.report_views import register, report
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

ALWAYS, NOW = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
ASKED = {
    **{question: queries[-1] for question, queries in QUERIES.items() if question != PROOF},
    **{name: f"SELECT * FROM {name}" for name in [*(view.name for view in VIEWS), *(t.name for t in INTERVAL_TABLES)]},
    **{report.name: query_of(report, ALWAYS, NOW, 0) for report in REPORTS},
}
"""SQL by what is asked."""


@pytest.fixture(scope="module")
def duck(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckLake]:
    """Two hours of 30 brokers, registered in Spark, too."""
    folder: Path = tmp_path_factory.mktemp("two-hours")
    drive(folder, list(batches(two_hours(), (160,))))
    rebuild(folder, lambda epoch, last: None)
    tables = [table.name for table in (*ALL_TABLES, *INTERVAL_TABLES)]
    assert register(spark, folder) == [*tables, *(view.name for view in VIEWS)]
    with DuckLake(folder) as duck:
        yield duck


def plain(columns: list[str], rows: Any) -> tuple[list[str], list[list[str]]]:
    """Rows in one order. PySpark's times are of this machine's zone; its numbers may be of another type."""
    return columns, sorted([_text(value) for value in row] for row in rows)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return str(value.astimezone(UTC))
    return str(dict(sorted(value.items()))) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("asked", ASKED)
def test_an_answer(spark: SparkSession, duck: DuckLake, asked: str) -> None:
    found = duck.connection.execute(ASKED[asked])
    wanted = plain([str(column[0]) for column in found.description or []], found.fetchall())
    answer = spark.sql(ASKED[asked])
    assert plain(answer.columns, answer.collect()) == wanted
    assert wanted[1] or asked in ("refused", "kvHistory")


def test_a_report_as_a_job(spark: SparkSession, duck: DuckLake) -> None:
    wanted = duck.connection.execute(query_of(BY_NAME["peers"], ALWAYS, NOW)).fetchall()
    found = report(spark, duck._lake_dir, "peers", ALWAYS, NOW)
    assert [tuple(map(_text, row)) for row in found.collect()] == [tuple(map(_text, row)) for row in wanted]
    with pytest.raises(KeyError):
        report(spark, duck._lake_dir, "nothing", ALWAYS, NOW)
