# SPDX-License-Identifier: Apache-2.0
"""The questions of docs/reference/tables.md, in Spark: the same words as in DuckDB, and the same answers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dev.support.tables_page import EXPECTED, QUERIES, write
from schemas.tables import ALL_TABLES

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


def test_every_question_has_its_answer(spark: SparkSession, tmp_path: Path) -> None:
    """In one session, which costs more than all the questions."""
    write(tmp_path)
    for table in ALL_TABLES:
        spark.read.format("delta").load(str(tmp_path / table.name)).createOrReplaceTempView(table.name)
    found = {
        question: [tuple(map(_utc, row)) for row in spark.sql(query).collect()] for question, query in QUERIES.items()
    }
    assert found == EXPECTED


def _utc(cell: Any) -> Any:
    return cell.astimezone(UTC) if isinstance(cell, datetime) else cell
