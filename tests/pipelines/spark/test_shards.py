# SPDX-License-Identifier: Apache-2.0
"""Shards by Spark's own functions: one per partition."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lake.write.shards import SHARD_KEYS, shard_keys

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize("shards", sorted(SHARD_KEYS))
def test_each_shard_has_a_partition_of_its_own(spark: SparkSession, shards: int) -> None:
    keys = spark.createDataFrame([(key,) for key in shard_keys(shards)], "shard INT")
    placed = keys.select("shard", F.pmod(F.hash("shard"), F.lit(shards)).alias("partition")).collect()
    assert [row["partition"] for row in placed] == list(range(shards)), "what the planner's hash partitioning does"
    really = keys.repartition(shards, "shard").select("shard", F.spark_partition_id().alias("partition")).collect()
    assert {row["shard"]: row["partition"] for row in really} == {key: at for at, key in enumerate(shard_keys(shards))}
