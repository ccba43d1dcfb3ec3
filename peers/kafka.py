# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka itself: one KRaft process, controller and broker in one, started from its published jars."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from peers.java import JavaProcess, free_port, java_executable, port_answers
from peers.peer import Peer
from pipelines.log.kafka_client import connected

# One replica of everything, quick to start, nothing that waits for a second broker.
QUICK_KAFKA: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "controlled.shutdown.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.enable": "false",
    # A broker that was killed may register again only when its old session is over.
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "1500",
}


class Kafka(Peer):
    """A one-node cluster in a temporary directory that goes away with it."""

    def __init__(self, properties: Mapping[str, str] | None = None, host: str = "127.0.0.1") -> None:
        """Prepare it; `with` starts it.

        Args:
            properties: server.properties on top of QUICK_KAFKA.
            host: address of this machine to listen at.
        """
        super().__init__("kafka")
        self._host = host
        self.port = free_port()
        controller = free_port()
        listeners = {
            "listeners": f"PLAINTEXT://{host}:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{host}:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.home / "data"),
        }
        self._properties = self._write_properties(
            "server.properties", {**QUICK_KAFKA, **listeners, **(properties or {})}
        )
        self._formatted = False
        self.process = JavaProcess(
            "kafka.Kafka",
            [str(self._properties)],
            self._classpath,
            self.home,
            heap_mb=512,
            direct_mb=256,
            ready=self._is_ready,
        )

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self._host}:{self.port}"

    def start(self) -> None:
        """Start it, also after it was killed; its topics are kept."""
        if not self._formatted:
            self._format()
            self._formatted = True
        super().start()

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        subprocess.run(
            [
                java_executable(),
                "-Xmx128m",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Xshare:auto",
                "-cp",
                self._classpath,
                "kafka.tools.StorageTool",
                "format",
                # In one word: an id may begin with a hyphen, which would be taken for an option of its own.
                f"--cluster-id={cluster_id}",
                f"--config={self._properties}",
            ],
            cwd=self.home,
            capture_output=True,
            timeout=60,
            check=True,
        )

    def _is_ready(self, process: JavaProcess) -> bool:
        """The port opens before the broker has registered, so ask it."""
        if not port_answers(self.port, self._host):
            return False
        try:
            admin = connected(KafkaAdminClient, [self.address], bootstrap_timeout_ms=2000)
        except KafkaError:
            return False
        try:
            return bool(admin.describe_cluster()["brokers"])
        except KafkaError:
            return False
        finally:
            admin.close()
