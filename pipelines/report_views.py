# SPDX-License-Identifier: Apache-2.0
"""The tables of a lake, the views over them, and the reports, in a Spark session."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from lake.commits import last_commit
from lake.delta.ddl import check_format
from lake.history.reports import BY_NAME, TIMES, query_of
from lake.history.sql_views import VIEWS
from pipelines.session import session
from schemas.intervals import INTERVAL_TABLES
from schemas.tables import ALL_TABLES


def register(spark: SparkSession, lake_dir: Path) -> list[str]:
    """Make a temporary view of each table, all at the newest epoch, and of each of `sql_views.VIEWS`.

    The tables of intervals (`schemas.intervals`) are as they are: some seconds behind.

    Args:
        spark: A session with Delta's SQL, such as `pipelines.session.session` with ``delta=True``.
        lake_dir: An existing lake. Views that are there already are replaced, by those of the newest epoch now.

    Returns:
        Their names.

    Raises:
        SetupError: The lake is of another format.
    """
    check_format(lake_dir)
    commit = last_commit(lake_dir)
    versions = {} if commit is None else commit.versions
    names: list[str] = []
    for table in (*ALL_TABLES, *INTERVAL_TABLES):
        path = lake_dir / table.name
        if not DeltaTable.is_deltatable(str(path)):
            continue  # tables of intervals begin some seconds after the first epoch
        reader = spark.read.format("delta")
        if table.name in versions:
            reader = reader.option("versionAsOf", versions[table.name])
        reader.load(str(path)).createOrReplaceTempView(table.name)
        names.append(table.name)
    for view in VIEWS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {view.query}")
        names.append(view.name)
    return names


def report(
    spark: SparkSession, lake_dir: Path, name: str, since: datetime, until: datetime, *, times: int = TIMES
) -> DataFrame:
    """A report of a window of event time, as of the newest epoch now.

    Args:
        spark: See `register`, which this calls. Hours are those of the session's time zone.
        lake_dir: An existing lake.
        name: One of `lake.history.reports.BY_NAME`.
        since: Aware; what happened then is not in it.
        until: Aware; what happened then is in it.
        times: Of ``flapping``: who came back more often than that.

    Returns:
        Its rows, in their order; columns as the report says.

    Raises:
        KeyError: There is no such report.
        SetupError: The lake is of another format.
    """
    query = query_of(BY_NAME[name], since, until, times)
    register(spark, lake_dir)
    return spark.sql(query)


def rows_by_spark(lake_dir: Path, query: str, driver_memory: str = "1g") -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query in a Spark session of its own, which ends with it.

    Args:
        lake_dir: An existing lake.
        query: Such as `lake.history.reports.query_of` gives.
        driver_memory: Heap of the JVM.

    Returns:
        Names of columns, and rows, as `lake.history.report_duckdb.rows_by_duckdb`.

    Raises:
        SetupError: The lake is of another format, or Spark does not start.
    """
    with tempfile.TemporaryDirectory(prefix="routelake-report-") as scratch:
        spark = session("routelake-report", driver_memory=driver_memory, delta=True, scratch_dir=Path(scratch))
        try:
            register(spark, lake_dir)
            found = spark.sql(query)
            return found.columns, [tuple(map(_aware, row)) for row in found.collect()]
        finally:
            spark.stop()


def _aware(value: object) -> object:
    """PySpark's times are of this machine's zone, and do not say so."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
