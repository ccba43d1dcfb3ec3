# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dev.peers.java_http import JavaHttpClient
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


@pytest.mark.jvm
def test_a_proxy_that_is_collected_late_does_not_call_a_jvm_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()
    with JavaHttpClient() as client:
        assert client._gateway is not None
        proxies = [client._gateway.jvm.java.util.ArrayList()]
    caplog.clear()
    proxies.clear()
    gc.collect()
    assert [record.message for record in caplog.records if record.name.startswith("py4j")] == []
