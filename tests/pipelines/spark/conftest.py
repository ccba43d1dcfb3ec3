# SPDX-License-Identifier: Apache-2.0
"""Data directories for the query in the Spark session of all tests."""

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
