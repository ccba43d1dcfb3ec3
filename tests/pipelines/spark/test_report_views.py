# SPDX-License-Identifier: Apache-2.0
"""The views over the tables, the tables of intervals and the reports say in Spark what they say in DuckDB."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dev.support.drive import drive
from dev.support.generated_logs import batches, generated
from lake.history.intervals import rebuild
from lake.history.report_duckdb import DuckLake, rows_by_duckdb
from lake.history.reports import BY_NAME, REPORTS, query_of
from lake.history.sql_views import VIEWS
from pipelines.report_jobs import report
from pipelines.report_views import register
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES

pytestmark = pytest.mark.jvm

ALWAYS, NOW = datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
ASKED = {
    **{view.name: view.name for view in VIEWS},
    **{table.name: table.name for table in INTERVAL_TABLES},
    **{report.name: f"({query_of(report, ALWAYS, NOW, 0)})" for report in REPORTS},
}
"""Each of them, and what to select it from."""


@pytest.fixture(scope="module")
def answers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """Of each view: what Spark says, and DuckDB."""
    folder = tmp_path_factory.mktemp("views")
    drive(folder, list(batches(generated(1), (9, 1, 20))))
    rebuild(folder, lambda epoch, last: None)
    tables = [table.name for table in (*ALL_TABLES, *INTERVAL_TABLES)]
    assert register(spark, folder) == [*tables, *(view.name for view in VIEWS)]
    with DuckLake(folder) as duck:
        return {name: (by_spark(spark, rows), by_duckdb(duck, rows)) for name, rows in ASKED.items()}


def by_spark(spark: SparkSession, rows: str) -> list[dict[str, Any]]:
    found = spark.sql(f"SELECT * FROM {rows}")
    times = [field.name for field in found.schema if field.dataType.typeName() == "timestamp"]
    columns = [f"unix_micros({column}) AS {column}" if column in times else f"`{column}`" for column in found.columns]
    return ordered([row.asDict() for row in found.selectExpr(*columns).collect()])


def by_duckdb(duck: DuckLake, rows: str) -> list[dict[str, Any]]:
    described = duck.connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()
    columns = [f'epoch_us("{row[0]}") AS "{row[0]}"' if "TIME ZONE" in row[1] else f'"{row[0]}"' for row in described]
    found = duck.connection.execute(f"SELECT {', '.join(columns)} FROM {rows}").fetchall()
    return ordered([dict(zip([row[0] for row in described], row, strict=True)) for row in found])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@pytest.mark.parametrize("name", ASKED)
def test_the_same(answers: dict[str, tuple[Any, Any]], name: str) -> None:
    spark_says, duckdb_says = answers[name]
    assert spark_says == duckdb_says
    if name not in ("unwritableTopics", "refused", "kvHistory", "expiry"):
        assert spark_says


def test_a_report_as_a_job(spark: SparkSession, tmp_path: Path) -> None:
    drive(tmp_path, list(batches(generated(1), (9, 1, 20))))
    found = report(spark, tmp_path, "peers", ALWAYS, NOW)
    columns, rows = rows_by_duckdb(tmp_path, query_of(BY_NAME["peers"], ALWAYS, NOW))
    assert found.columns == columns
    assert [row["changedRows"] for row in found.collect()] == [row[columns.index("changedRows")] for row in rows]
    with pytest.raises(KeyError):
        report(spark, tmp_path, "nothing", ALWAYS, NOW)
