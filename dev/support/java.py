# SPDX-License-Identifier: Apache-2.0
"""A JVM as a judge: classes of Java and of RocketMQ, called from here. Nothing is compiled."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import py4j.java_gateway
import py4j.protocol
import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from pyspark import SparkContext

from dev.peers.java import classpath, java_executable
from dev.peers.java_client import leave


@contextmanager
def jvm(*jar_sets: str) -> Iterator[Any]:
    """A JVM with py4j's gateway, which PySpark brings along, and some jars of `dev.peers.java.classpath`."""
    jar = str(next((Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")))
    port, process = launch_gateway(
        port=0,
        jarpath=jar,
        classpath=os.pathsep.join([jar, *map(classpath, jar_sets)]),
        javaopts=["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Dfile.encoding=UTF-8"],
        die_on_exit=True,
        java_path=java_executable(),
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    # An earlier Spark session of this process has PySpark translate Java's exceptions with its own JVM, which does not
    # hold the exceptions of this one (pyspark.errors.exceptions.captured.install_exception_handler).
    translated, py4j.java_gateway.get_return_value = py4j.java_gateway.get_return_value, py4j.protocol.get_return_value
    try:
        yield gateway.jvm
    finally:
        py4j.java_gateway.get_return_value = translated
        gc.collect()  # a proxy that is collected later would call a JVM that is gone, in the middle of another test
        gateway.shutdown()
        process.stdin.close()
        process.kill()
        process.wait(20)


def end_spark() -> None:
    """End Spark in this process, with its JVM and its open ports. A later session starts a new JVM."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()
    gc.collect()  # proxies, as above
    gateway.shutdown()
    leave(gateway)
    SparkContext._gateway = SparkContext._jvm = None
    py4j.java_gateway.get_return_value = (
        py4j.protocol.get_return_value
    )  # PySpark's version needs its JVM to translate errors
    process = gateway.proc
    process.stdin.close()
    process.kill()
    process.wait(20)
