# SPDX-License-Identifier: Apache-2.0
"""Data directories for the query, and `spark-sql`, in the Spark session of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipelines.spark.harness import Stage


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Iterator[Stage]:
    """A new data directory."""
    made = Stage(spark, tmp_path)
    yield made
    made.close()


@pytest.fixture
def stages(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    """Makes data directories with settings of their own."""
    made: list[Stage] = []

    def make(name: str, **settings: Any) -> Stage:
        (tmp_path / name).mkdir()
        made.append(Stage(spark, tmp_path / name, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def in_shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`spark-sql` as a command in this process: it uses the session of all tests, and leaves it running and empty."""
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    _forget_tables(spark)
    yield
    _forget_tables(spark)


def _forget_tables(spark: SparkSession) -> None:
    """Empty the catalog. The files of its tables are another's, and stay."""
    for table in spark.sql("SHOW TABLES").collect():
        spark.sql(f"DROP {'VIEW' if table['isTemporary'] else 'TABLE'} {table['tableName']}")
