# SPDX-License-Identifier: Apache-2.0
"""Shards by Spark's own functions: one per partition, and every record where the seed put its group."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lake.write.partition import SHARD_KEYS, shard_keys, shard_of
from pipelines.job import by_shard
from schemas.events import KEY_EVERYTHING, KEY_KV, broker_key

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]

KEYS = [KEY_KV, "", "b:", *(broker_key(name) for name in ("broker-a", "it's", "per%cent", "ünï-☃", "𝔘𝔘", "x" * 500))]
KEYS += [broker_key(f"broker-{number}") for number in range(200)]


@pytest.mark.parametrize("shards", sorted(SHARD_KEYS))
def test_each_shard_has_a_partition_of_its_own(spark: SparkSession, shards: int) -> None:
    keys = spark.createDataFrame([(key,) for key in shard_keys(shards)], "shard INT")
    placed = keys.select("shard", F.pmod(F.hash("shard"), F.lit(shards)).alias("partition")).collect()
    assert [row["partition"] for row in placed] == list(range(shards)), "what the planner's hash partitioning does"
    really = keys.repartition(shards, "shard").select("shard", F.spark_partition_id().alias("partition")).collect()
    assert {row["shard"]: row["partition"] for row in really} == {key: at for at, key in enumerate(shard_keys(shards))}


@pytest.mark.parametrize("shards", [1, 2, 4, 16])
def test_spark_and_python_agree_on_the_shard_of_a_key(spark: SparkSession, shards: int) -> None:
    schema = "offset LONG, eventTime TIMESTAMP, beforeMs LONG, key STRING, payload BINARY"
    records = spark.createDataFrame([(number, None, 0, key, b"") for number, key in enumerate(KEYS)], schema)
    found = {row["key"]: row["shard"] for row in by_shard(records, shards).collect()}
    assert found == {key: shard_of(key, shards) for key in KEYS}


def test_events_for_all_groups_go_to_every_shard(spark: SparkSession) -> None:
    schema = "offset LONG, eventTime TIMESTAMP, beforeMs LONG, key STRING, payload BINARY"
    records = spark.createDataFrame([(1, None, 0, KEY_EVERYTHING, b"p"), (2, None, 0, None, b"p")], schema)
    rows = by_shard(records, 4).collect()
    assert sorted(row["shard"] for row in rows if row["offset"] == 1) == sorted(shard_keys(4))
    assert [row["shard"] for row in rows if row["offset"] == 2] == [shard_of("", 4)], "a foreign record without key"
