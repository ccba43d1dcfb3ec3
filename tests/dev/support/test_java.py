# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dev.support.java import jvm

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.jvm
def test_a_java_exception_arrives_as_it_is_beside_a_spark_session(spark: SparkSession) -> None:
    assert spark.range(1).count() == 1
    with jvm() as java:
        # The ids of exceptions in the one JVM reach those of objects in the other: Spark's context has a low one.
        for _ in range(1 + int(spark.sparkContext._jsc._target_id.removeprefix("o"))):
            with pytest.raises(Py4JJavaError, match="NumberFormatException"):
                java.java.lang.Integer.parseInt("x")
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):  # PySpark's own translation is back
        spark.sql("this is no statement")
