# SPDX-License-Identifier: Apache-2.0
"""The views over the tables say in Spark what they say in DuckDB."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.reports.duck import DuckLake
from pipelines.reports.sql_views import VIEWS
from pipelines.reports.views import register
from schemas.tables import ALL_TABLES
from tests.support.drive import drive
from tests.support.generated_logs import batches, generated

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def answers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Any]]:
    """Of each view: what Spark says, and DuckDB."""
    folder = tmp_path_factory.mktemp("views")
    drive(folder, list(batches(generated(1), (9, 1, 20))))
    assert register(spark, folder) == [*(table.name for table in ALL_TABLES), *(view.name for view in VIEWS)]
    with DuckLake(folder) as duck:
        return {view.name: (by_spark(spark, view.name), by_duckdb(duck, view.name)) for view in VIEWS}


def by_spark(spark: SparkSession, name: str) -> list[dict[str, Any]]:
    found = spark.sql(f"SELECT * FROM {name}")
    times = [field.name for field in found.schema if field.dataType.typeName() == "timestamp"]
    columns = [f"unix_micros({column}) AS {column}" if column in times else f"`{column}`" for column in found.columns]
    return ordered([row.asDict() for row in found.selectExpr(*columns).collect()])


def by_duckdb(duck: DuckLake, name: str) -> list[dict[str, Any]]:
    described = duck.connection.execute(f"DESCRIBE {name}").fetchall()
    columns = [f'epoch_us("{row[0]}") AS "{row[0]}"' if "TIME ZONE" in row[1] else f'"{row[0]}"' for row in described]
    rows = duck.connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
    return ordered([dict(zip([row[0] for row in described], row, strict=True)) for row in rows])


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@pytest.mark.parametrize("name", [view.name for view in VIEWS])
def test_views(answers: dict[str, tuple[Any, Any]], name: str) -> None:
    spark_says, duckdb_says = answers[name]
    assert spark_says == duckdb_says
    if name != "unwritableTopics":
        assert spark_says
