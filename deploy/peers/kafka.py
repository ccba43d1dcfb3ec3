"""Apache Kafka itself: one KRaft process, controller and broker in one, started from its published jars."""

from __future__ import annotations

import base64
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from deploy.peers.java import JavaProcess, classpath, free_port, java_executable, port_answers

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


class Kafka:
    """A one-node cluster in a temporary directory that goes away with it."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        """Prepare it; `with` starts it.

        Args:
            properties: server.properties on top of QUICK_KAFKA.
        """
        self._cleanup = ExitStack()
        self.home = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="kafka-")))
        self.port = free_port()
        controller = free_port()
        self._classpath = classpath("kafka")
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.home / "data"),
        }
        self._properties = self.home / "server.properties"
        self._properties.write_text(
            "".join(f"{key}={value}\n" for key, value in {**QUICK_KAFKA, **listeners, **(properties or {})}.items())
        )
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
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Kafka:
        """Format its storage, start it, wait until it answers."""
        try:
            self._format()
            self.process.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill it and remove its files."""
        self.close()

    def close(self) -> None:
        """Kill the process and remove its files."""
        self.process.sigkill()
        self._cleanup.close()

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
        if not port_answers(self.port):
            return False
        try:
            admin = KafkaAdminClient(bootstrap_servers=self.address, bootstrap_timeout_ms=2000)
        except KafkaError:
            return False
        try:
            return bool(admin.describe_cluster()["brokers"])
        except KafkaError:
            return False
        finally:
            admin.close()
