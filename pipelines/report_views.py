# SPDX-License-Identifier: Apache-2.0
"""The tables of a lake, and the views over them, as temporary views of a Spark session."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lake.commits import last_commit
from lake.delta.ddl import check_format
from lake.history.sql_views import VIEWS
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
        SetupError: The lake is of a newer format.
    """
    check_format(lake_dir)
    commit = last_commit(lake_dir)
    versions = {} if commit is None else commit.versions
    names: list[str] = []
    for table in (*ALL_TABLES, *INTERVAL_TABLES):
        path = lake_dir / table.name
        if not DeltaTable.is_deltatable(str(path)):
            continue  # a lake of an older routelake, which its fold has not opened yet
        reader = spark.read.format("delta")
        if table.name in versions:
            reader = reader.option("versionAsOf", versions[table.name])
        reader.load(str(path)).createOrReplaceTempView(table.name)
        names.append(table.name)
    for view in VIEWS:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view.name} AS {view.query}")
        names.append(view.name)
    return names
