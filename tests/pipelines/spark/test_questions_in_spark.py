# SPDX-License-Identifier: Apache-2.0
"""The questions of docs/history.md in Spark: it answers as DuckDB does, which `test_questions` holds against the events."""

from __future__ import annotations

from collections import Counter
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
from pipelines.report_views import register

pytestmark = [pytest.mark.jvm, pytest.mark.deep]


@pytest.fixture(scope="module")
def duck(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckLake]:
    """The lake is registered in Spark, too."""
    folder: Path = tmp_path_factory.mktemp("two-hours")
    drive(folder, list(batches(two_hours(), (160,))))
    rebuild(folder, lambda epoch, last: None)
    register(spark, folder)
    with DuckLake(folder) as duck:
        yield duck


def plain(rows: Any) -> Counter[tuple[str, ...]]:
    """PySpark's times are of this machine's zone; its numbers may be of another type."""
    return Counter(tuple(map(_text, row)) for row in rows)


def _text(value: object) -> str:
    return str(value.astimezone(UTC)) if isinstance(value, datetime) else str(value)


@pytest.mark.parametrize("question", [question for question in QUERIES if question != PROOF])
def test_a_question(spark: SparkSession, duck: DuckLake, question: str) -> None:
    queries = QUERIES[question]
    wanted = plain(duck.connection.execute(queries[-1]).fetchall())
    assert wanted
    assert plain(spark.sql(queries[-1]).collect()) == wanted


@pytest.mark.parametrize("question", [question for question, queries in QUERIES.items() if len(queries) > 1])
def test_with_macros_and_without(duck: DuckLake, question: str) -> None:
    with_macros, without = QUERIES[question]
    assert len(without.splitlines()) <= 6
    wanted, found = (plain(duck.connection.execute(query).fetchall()) for query in (with_macros, without))
    assert found == wanted
