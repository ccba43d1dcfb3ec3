# SPDX-License-Identifier: Apache-2.0
"""What Spark itself reads from the tables is what the fold says: another reader, another Delta implementation."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dev.support import any_lake, lakes
from dev.support.drive import drive
from dev.support.expected import Expected
from dev.support.generated_logs import batches
from dev.support.microbatches import Tables
from dev.support.sampled import sampled
from schemas.tables import (
    ALL_TABLES,
    BROKER_ADDR_TABLE,
    FILTER_SERVER_TABLE,
    ROUTE_CHANGE_TABLE,
    STATE_TABLES,
    TOPIC_QUEUE_TABLE,
    Table,
)
from tests.pipelines.spark.test_query import random_log

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

RECORDS = random_log(7, 200)


def some(*tables: Table) -> list[Any]:
    """State tables that every run reads, and all others with --deep. Each has a kind of column that the others lack."""
    return sampled(((table,) for table in STATE_TABLES), [(table,) for table in tables])


def name_of(table: Table) -> str:
    return table.name


@pytest.fixture(scope="module")
def lake_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("lake")
    drive(directory, list(batches(RECORDS, [20])))
    return directory


@pytest.mark.parametrize("how", ["written", pytest.param("compacted", marks=pytest.mark.deep)])
def test_every_column_can_be_filtered(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Whether appends, merges, deletes or a compaction wrote the files; tests/lake/delta/test_arrow_types.py has others' turn."""
    lake = any_lake.write(tmp_path)
    if how == "compacted":
        any_lake.compact(lake)
    for table in ALL_TABLES:
        found, rows = read(spark, tmp_path, table), lakes.rows(tmp_path, table.name)
        counts, expected, of_keys = [], [], []
        for column in table.column_names:
            value = next((row[column] for row in rows if row[column] is not None), None)
            nested = value is None or isinstance(value, list)
            wanted = F.col(column).isNotNull() if nested else F.col(column) == F.lit(value)
            counts.append(F.count(F.when(wanted, 1)).alias(column))
            expected.append(sum(row[column] is not None if nested else row[column] == value for row in rows))
            if not nested and column in table.key:  # a filter on files, too
                of_keys.append((column, found.where(wanted).agg(F.count("*").alias("rows")), expected[-1]))
        assert list(found.agg(*counts).collect()[0]) == expected, table.name
        if of_keys:
            one_query = reduce(DataFrame.unionAll, [each.select(F.lit(column), "rows") for column, each, _ in of_keys])
            assert {tuple(row) for row in one_query.collect()} == {(name, rows) for name, _, rows in of_keys}, (
                table.name
            )


def read(spark: SparkSession, lake_dir: Path, table: Table, **options: Any) -> DataFrame:
    reader = spark.read.format("delta")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(lake_dir / table.name))


def frame(spark: SparkSession, table: Table, tables: Tables) -> DataFrame:
    """Rows of the fold as a DataFrame with the declared schema."""
    schema = ", ".join(f"`{column.name}` {column.type}" for column in table.columns)
    rows = [
        tuple(_cell(column.type, value) for column, value in zip(table.columns, (*key, *values), strict=True))
        for key, values in tables[table.name].items()
    ]
    return spark.createDataFrame(rows, schema)


def _cell(type_: str, value: Any) -> Any:
    if type_.startswith("map") and value is not None:
        return dict(value)
    return list(value) if type_.startswith("array") else value


@pytest.mark.parametrize("table", some(TOPIC_QUEUE_TABLE, BROKER_ADDR_TABLE, FILTER_SERVER_TABLE), ids=name_of)
def test_state_tables(spark: SparkSession, lake_dir: Path, table: Table) -> None:
    last = lakes.commits(lake_dir)[-1]
    expected = Expected(RECORDS).tables()
    found = read(spark, lake_dir, table, versionAsOf=dict(last["versions"])[table.name])
    keys = list(table.key)
    # Maps cannot be compared by Spark, so as sorted arrays.
    maps = [column.name for column in table.columns if column.type.startswith("map")]
    ours = frame(spark, table, expected)
    for name in maps:
        found = found.withColumn(name, F.sort_array(F.map_entries(name)))
        ours = ours.withColumn(name, F.sort_array(F.map_entries(name)))
    assert_df_equality(found.orderBy(*keys), ours.orderBy(*keys), ignore_nullable=True, ignore_metadata=True)


def test_an_earlier_epoch(spark: SparkSession, lake_dir: Path) -> None:
    commit = lakes.commits(lake_dir)[3]
    records = [record for record in RECORDS if record.offset <= commit["logOffset"]]
    expected = Expected(records).tables()
    for table in STATE_TABLES[:3]:
        found = read(spark, lake_dir, table, versionAsOf=dict(commit["versions"])[table.name])
        assert {tuple(row[name] for name in table.key) for row in found.collect()} == expected[table.name].keys()


def test_the_history(spark: SparkSession, lake_dir: Path) -> None:
    found = read(spark, lake_dir, ROUTE_CHANGE_TABLE)
    assert found.columns == list(ROUTE_CHANGE_TABLE.column_names)
    by_epoch = {row["epoch"]: row["count"] for row in found.groupBy("epoch").count().collect()}
    ours: dict[int, int] = {}
    for row in lakes.history(lake_dir):
        ours[row["epoch"]] = ours.get(row["epoch"], 0) + 1
    assert by_epoch == ours


@pytest.mark.parametrize("table", some(TOPIC_QUEUE_TABLE), ids=name_of)
def test_the_change_feed(spark: SparkSession, lake_dir: Path, table: Table) -> None:
    """Inserts less deletes, over all versions, are the rows that are there."""
    feed = read(spark, lake_dir, table, readChangeFeed="true", startingVersion=0)
    sign = F.when(F.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    left = feed.groupBy(*table.key).agg(F.sum(sign).alias("left")).where("left <> 0").collect()
    assert all(row["left"] == 1 for row in left)
    assert {tuple(row[name] for name in table.key) for row in left} == lakes.state_tables(lake_dir)[table.name].keys()
