# SPDX-License-Identifier: Apache-2.0
"""Tables of a lake, views over them, and reports, in a Spark session."""

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
    """Create a temporary view of each table at the newest epoch, and of each of `sql_views.VIEWS`.

    The interval tables (`schemas.intervals`) are at their newest version, some seconds behind.

    Args:
        spark: A session with Delta's SQL, such as `pipelines.session.session` with ``delta=True``.
        lake_dir: An existing lake. Another call replaces existing views by those of the newest epoch.

    Returns:
        Names of the views.

    Raises:
        SetupError: The lake has another format.
    """
    check_format(lake_dir)
    commit = last_commit(lake_dir)
    versions = {} if commit is None else commit.versions
    names: list[str] = []
    for table in (*ALL_TABLES, *INTERVAL_TABLES):
        path = lake_dir / table.name
        if not DeltaTable.is_deltatable(str(path)):
            continue  # interval tables are created some seconds after the first epoch
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
    """A report on a window of event time, at the newest epoch.

    Args:
        spark: A session, as for `register`, which this calls. Hours are in the time zone of the session.
        lake_dir: An existing lake.
        name: Name of a report in `lake.history.reports.BY_NAME`.
        since: Aware start of the window, not included.
        until: Aware end of the window, included.
        times: Parameter of ``flapping``: brokers that returned more often are reported.

    Returns:
        Rows in the order of the report, with its columns.

    Raises:
        KeyError: There is no such report.
        SetupError: The lake has another format.
    """
    query = query_of(BY_NAME[name], since, until, times)
    register(spark, lake_dir)
    return spark.sql(query)


def rows_by_spark(lake_dir: Path, query: str, driver_memory: str = "1g") -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query in a new Spark session, which ends afterwards.

    Args:
        lake_dir: An existing lake.
        query: SQL, such as the result of `lake.history.reports.query_of`.
        driver_memory: Heap of the JVM, such as ``1g``.

    Returns:
        Names of columns, and rows, as `lake.history.report_duckdb.rows_by_duckdb`.

    Raises:
        SetupError: The lake has another format, or Spark does not start.
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
    """Convert a time of PySpark, which is in this machine's time zone without saying so, to UTC."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
