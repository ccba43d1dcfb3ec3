# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka itself: one KRaft process, controller and broker in one, started from its published jars."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from dev.peers.java import JavaProcess, free_port, java_executable, port_answers
from dev.peers.peer import Peer
from eventlog.kafka.client import connected

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


_JAAS: Final = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Secured:
    """Settings of a Kafka with ports for authenticated clients, next to the open one.

    Attributes:
        keystore: PEM file with its key (PKCS #8) and certificate.
        truststore: PEM file of the authority that signs clients' certificates.
        users: Passwords by name, for SCRAM-SHA-512 and PLAIN.
    """

    keystore: Path
    truststore: Path
    users: Mapping[str, str]

    def properties(self) -> dict[str, str]:
        """Lines of server.properties, without the listeners."""
        users = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.truststore),
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{_JAAS}.scram.ScramLoginModule required;",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_JAAS}.plain.PlainLoginModule required {users};",
        }

    def format_arguments(self) -> list[str]:
        """Arguments of StorageTool: SCRAM's users are records of the cluster."""
        return [f"--add-scram=SCRAM-SHA-512=[name={name},password={password}]" for name, password in self.users.items()]


class Kafka(Peer):
    """A one-node cluster in a temporary directory that goes away with it.

    Attributes:
        port: Open to everybody.
        sasl_port: SASL_SSL; 0 without ``secured``.
        mutual_port: SSL with clients' certificates; 0 without ``secured``.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        secured: Secured | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        advertised: str = "",
    ) -> None:
        """Prepare it; `with` starts it.

        Args:
            properties: server.properties on top of QUICK_KAFKA.
            secured: Has two more ports.
            host: address of this machine to listen at, openly.
            port: there; else a free one.
            advertised: host:port by which clients reach that port, if it is another one.
        """
        super().__init__("kafka")
        self._host = host
        self.port = port or free_port()
        controller = free_port()
        self._secured = secured
        self.sasl_port, self.mutual_port = (free_port(), free_port()) if secured else (0, 0)
        listeners = {
            "listeners": f"PLAINTEXT://{host}:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{advertised or self.address}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(self.home / "data"),
        }
        if secured is not None:
            more = f",SASL_SSL://127.0.0.1:{self.sasl_port},SSL://127.0.0.1:{self.mutual_port}"
            listeners["listeners"] += more
            listeners["advertised.listeners"] += more
            listeners["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL,SSL:SSL"
            listeners |= secured.properties()
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
                *(self._secured.format_arguments() if self._secured is not None else ()),
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
