# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's own integration tests (rocketmq-test 5.5.0), with a gateway in the NameServer's place.

They start three brokers in their own JVM, and a NameServer, for which a class of ours stands in that names the gateway's
port. JUnit says which tests passed: all that are asked for, with RocketMQ's own NameServer and with ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.java import QUICK_JVM, classpath, java_executable
from peers.rocketmq import prepare_home
from peers.routelake import Routelake

PACKAGE = "org.apache.rocketmq.test"
CLASSES = {
    "smoke.NormalMessageSendAndRecvIT": 2,
    "route.CreateAndUpdateTopicIT": 3,  # and one that RocketMQ leaves out itself
    "client.producer.oneway.OneWaySendIT": 1,
    "client.consumer.cluster.DynamicAddConsumerIT": 2,
    "client.consumer.topic.MulConsumerMulTopicIT": 3,
    "client.producer.order.OrderMsgIT": 3,
}
"""Classes, and how many tests each has."""

OPENS = ("java.base/java.nio=ALL-UNNAMED", "java.base/sun.nio.ch=ALL-UNNAMED", "java.base/jdk.internal.ref=ALL-UNNAMED")


@pytest.fixture
def stand_in(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What comes first on the class path and among the options: nothing, or a running gateway's."""
    if request.param == "NameServer":
        yield []
        return
    source = Path(__file__).parent / "integration" / "NamesrvController.java"
    ours = tmp_path / "ours"
    subprocess.run(["javac", "-d", str(ours), "-cp", classpath("rocketmq-test"), str(source)], check=True, timeout=120)
    gateway = Routelake(tmp_path / "data", "gateway", ("--allow-config-update",)).start(wait_ready_s=None)
    try:
        gateway.wait_listening()
        yield [str(ours), f"-Droutelake.port={gateway.remoting_port}"]
        assert gateway.get("/v1/clusters")
        gateway.stop()
    finally:
        gateway.kill()


@pytest.mark.jvm
@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a Java compiler")
@pytest.mark.parametrize("stand_in", ["NameServer", "routelake"], indirect=True)
def test_they_pass(tmp_path: Path, stand_in: list[str]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = [*stand_in[:1], classpath("rocketmq-test")]
    ran = subprocess.run(
        [
            *(java_executable(), *QUICK_JVM, "-Xmx1g", "-XX:MaxDirectMemorySize=512m"),
            *(f"--add-opens={name}" for name in OPENS),
            *(*stand_in[1:], prepare_home(home), f"-Duser.home={home}", "-Djava.net.preferIPv4Stack=true"),
            *("-cp", os.pathsep.join(path)),
            *("org.junit.runner.JUnitCore", *(f"{PACKAGE}.{name}" for name in CLASSES)),
        ],
        cwd=home,
        env={**os.environ, "ROCKETMQ_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    found = re.search(r"^OK \((\d+) tests?\)", ran.stdout, re.MULTILINE)
    assert found is not None, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert int(found[1]) == sum(CLASSES.values())
