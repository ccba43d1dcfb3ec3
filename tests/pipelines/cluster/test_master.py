# SPDX-License-Identifier: Apache-2.0
"""The cluster that the options name, and the options that Spark gets. Without Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dev.peers.java import free_port
from lake.write.shards import SHARD_KEYS
from pipelines.cluster.master import (
    Address,
    Cluster,
    master_addresses,
    own_address,
    read_cluster,
    shards_for,
    spark_options,
)
from schemas.errors import SetupError, UnavailableError

K8S = "k8s://https://10.0.0.1:6443"
IMAGE = "spark.kubernetes.container.image registry/routelake-fold:1"
MOUNT = "spark.kubernetes.executor.volumes.persistentVolumeClaim.routes.mount.path"
CLAIM = "spark.kubernetes.executor.volumes.persistentVolumeClaim.routes.options.claimName routes"


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("spark://spark-1:7077", [Address("spark-1", 7077)]),
        ("spark://a:7077,b:7078", [Address("a", 7077), Address("b", 7078)]),
        ("spark://[::1]:7077", [Address("::1", 7077)]),
        ("k8s://https://10.0.0.1:6443", [Address("10.0.0.1", 6443)]),
        ("k8s://kubernetes.default.svc", [Address("kubernetes.default.svc", 443)]),
        ("k8s://http://127.0.0.1:8001", [Address("127.0.0.1", 8001)]),
        ("k8s://http://127.0.0.1", [Address("127.0.0.1", 80)]),
    ],
)
def test_masters(master: str, addresses: list[Address]) -> None:
    assert master_addresses(master) == addresses


@pytest.mark.parametrize(
    "master",
    [
        "",
        "local[4]",
        "yarn",
        "spark://",
        "spark://host",
        "spark://host:0",
        "spark://a:7077,",
        "k8s://",
        "spark://h:7077/x",
    ],
)
def test_what_is_no_master(master: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=re.escape(f"--master {master!r}: expected local, spark://HOST:PORT")):
        read_cluster(master, tmp_path, None)


def config(folder: Path, *lines: str) -> Path:
    file = folder / "spark.properties"
    file.write_text("\n".join(lines))
    return file


def test_local_is_no_cluster(tmp_path: Path) -> None:
    assert read_cluster("local", tmp_path, None) is None
    with pytest.raises(SetupError, match="needs a cluster"):
        read_cluster("local", tmp_path, config(tmp_path))


@pytest.mark.parametrize(
    ("master", "lines", "says"),
    [
        ("spark://h:1", (), "can run code in it, unless Spark requires authentication"),
        ("spark://h:1", ("spark.authenticate true",), "spark.authenticate needs spark.authenticate.secret"),
        ("spark://h:1", ("spark.authenticate=false", "spark.master x"), "spark.master is set by routelake"),
        ("spark://h:1", ("a=\\u00",), "malformed"),
        (K8S, (), "set the image of the executors in .*, spark.kubernetes.container.image"),
        (K8S, (IMAGE,), "executors would not see"),
        (K8S, (IMAGE, f"{MOUNT} /elsewhere"), "executors would not see"),
    ],
)
def test_contradictory_cluster_settings_are_refused(
    tmp_path: Path, master: str, lines: tuple[str, ...], says: str
) -> None:
    with pytest.raises(SetupError, match=says):
        read_cluster(master, tmp_path, config(tmp_path, *lines))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"none cannot be read: No such file"):
        read_cluster("spark://h:1", tmp_path, tmp_path / "none")


def test_settings_of_a_standalone_cluster(tmp_path: Path) -> None:
    file = config(tmp_path, "spark.authenticate true", "spark.authenticate.secret abc", "spark.executor.memory=2g")
    cluster = read_cluster("spark://h:7077", tmp_path, file)
    assert cluster is not None
    assert "abc" not in repr(cluster)
    assert spark_options(cluster, "10.0.0.9", [Path("/jars/fs.jar")]) == {
        "spark.driver.host": "10.0.0.9",
        "spark.driver.bindAddress": "10.0.0.9",
        "spark.executor.extraJavaOptions": "-Xss4m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true",
        "spark.jars": "/jars/fs.jar",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.executor.syncLogLevel.enabled": "true",
    }


def test_settings_of_a_kubernetes_cluster(tmp_path: Path) -> None:
    own = "spark.driver.host routelake-fold.routes.svc"
    cluster = read_cluster(K8S, tmp_path / "shared", config(tmp_path, IMAGE, f"{MOUNT} {tmp_path}", CLAIM, own))
    assert cluster is not None
    told = spark_options(cluster, "10.1.2.3", [])
    assert "spark.driver.host" not in told, "the file's own"
    assert told["spark.driver.bindAddress"] == "10.1.2.3"
    assert told["spark.authenticate"] == "true", "Spark makes a secret for its pods"


@pytest.mark.parametrize(("cores", "shards"), [(1, 2), (2, 4), (3, 8), (4, 8), (8, 16), (40, 16)])
def test_two_shards_a_core(cores: int, shards: int) -> None:
    assert shards_for(cores, list(SHARD_KEYS)) == shards


def test_a_master_that_does_not_answer(tmp_path: Path) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(
        UnavailableError, match=r"does not answer \(127.0.0.1:[0-9]+ Connection refused\). Start a Spark master"
    ):
        own_address(Cluster(master, tmp_path))
