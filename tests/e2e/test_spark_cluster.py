# SPDX-License-Identifier: Apache-2.0
"""The fold's executors on a standalone Spark cluster, while executors, a worker and the master are killed under load.

Each worker has a folder and an address of its own. What judges the end is the log: `history verify` folds it again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.peers.spark_cluster import SparkMaster, SparkWorker, write_properties
from dev.support.command import process
from eventlog.open import open_log, open_reader
from lake.commits import last_commit
from ops.verify.verify import verify
from schemas.events import RegisterBroker, decode
from tests.e2e.test_kill import SmallLoad, in_a_hurry

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(1800)]

BUSY_S = 300.0
"""For what takes ten seconds where nothing else runs."""


class Cluster:
    """A master at 127.0.0.1, workers at 127.0.0.2 and 127.0.0.3."""

    def __init__(self, folder: Path) -> None:
        self.properties = write_properties(
            folder / "spark.properties", secrets.token_hex(16), "spark.executor.memory 512m"
        )
        self.master = SparkMaster(folder / "master", self.properties)
        self.workers = [
            SparkWorker(folder / f"worker-{number}", self.properties, self.master.url, f"127.0.0.{number}")
            for number in (2, 3)
        ]

    @property
    def options(self) -> tuple[str, ...]:
        return ("--master", self.master.url, "--spark-config", str(self.properties))


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.master.start()
        for worker in cluster.workers:
            worker.start()
        yield cluster
    finally:
        for worker in cluster.workers:
            print(worker.output())
            worker.kill()
        cluster.master.kill()


def epoch_of(server: Routelake) -> int:
    last = last_commit(server.lake_dir)
    return 0 if last is None else last.epoch


def commits_again(server: Routelake, why: str, epochs: int = 3) -> None:
    """Epochs that began after this was asked, not only one under way."""
    seen = epoch_of(server)
    wait_until(lambda: epoch_of(server) >= seen + epochs, BUSY_S, f"the fold to commit {why}")


def test_executors_worker_and_master_die(tmp_path: Path) -> None:
    with running(Cluster(tmp_path)) as cluster:
        options = (*cluster.options, "--liveness-interval-s", "0.2")
        server = Routelake(tmp_path / "data", options=options)
        try:
            server.start(BUSY_S)
            loads = [SmallLoad(server, seed) for seed in range(2)]
            for load in loads:
                load.start()
            commits_again(server, "on the cluster")
            one, two = cluster.workers
            with in_a_hurry(loads):
                assert one.kill_executors() == 1
            commits_again(server, "after an executor's end")
            wait_until(one.executors, BUSY_S, "the worker to have another executor")
            with in_a_hurry(loads):
                two.kill()
            commits_again(server, "without a worker")
            two.start()
            wait_until(two.executors, BUSY_S, "the worker to have an executor again")
            one.kill()  # so that what it held has to come from the checkpoint
            commits_again(server, "on the other worker")
            one.start()
            fold = server.child("fold")
            cluster.master.kill()
            commits_again(server, "without a master")
            cluster.master.start()  # which knows nothing of the fold, and kills what executors it finds
            wait_until(lambda: fold not in server.children("fold"), BUSY_S, "the fold to be started again")
            commits_again(server, "with the new master")
            for load in loads:
                load.stop()
            acknowledged = {offset: what for load in loads for offset, what in load.acknowledged.items()}
            wait_until(lambda: folded(server) >= max(acknowledged), BUSY_S, "everything to be folded")
            assert not [unseen for load in loads for unseen in load.unseen]
            assert server.stop() == 0
        finally:
            server.kill()
            print(server.log_tail(200))
    url = f"sqlite://{server.data_dir / 'events.db'}"
    with closing(open_log(url)) as log:
        for offset, (broker, counter) in acknowledged.items():
            event = decode(log.read(offset, 1)[0].payload)
            assert isinstance(event, RegisterBroker)
            assert (event.broker_name, event.data_version.counter) == (broker, counter)
    with closing(open_reader(url)) as reader:
        proof = verify(server.lake_dir, reader)
    assert (proof.refuted, proof.not_verified) == ([], [])


def folded(server: Routelake) -> int:
    last = last_commit(server.lake_dir)
    return -1 if last is None else last.log_offset


def test_a_cluster_that_does_not_work_is_named(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)

    def said(*options: str) -> tuple[int, str]:
        found = process("fold", "--data-dir", str(tmp_path / "data"), *cluster.options, *options)
        return found.returncode, found.stderr

    code, words = said()
    assert code == 1
    assert f"--master {cluster.master.url} does not answer" in words
    with running(cluster):
        code, words = said("--shared-dir", "/proc/self")
        assert code == 2, words
        other = tmp_path / "other.properties"
        other.write_text(cluster.properties.read_text() + "spark.pyspark.python /nowhere/python\n")
        code, words = said("--spark-config", str(other))
        assert code == 2, words
        assert "no Python at /nowhere/python" in words
        write_properties(other, "another")
        code, words = said("--spark-config", str(other))
        assert code == 1, words
        assert "refused the fold" in words
