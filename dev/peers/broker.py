# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ's broker, started from its published jars."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Final

from dev.peers.java import QUICK_JVM, JavaProcess, free_port, port_answers
from dev.peers.rocketmq import JAR_SETS, Stock

# Small files and few queues: a broker that is ready in seconds and needs a few megabytes of disk.
QUICK_BROKER: Final[Mapping[str, str]] = {
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "60000",
    "maxMessageSize": "262144",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "mappedFileSizeTimerLog": "1048576",
    # By default the broker compares 38 MB of its timer wheel byte by byte each second: a third of a core.
    "timerFlushIntervalMs": "3600000",
    "transientStorePoolEnable": "false",
    "warmMapedFileEnable": "false",
    "haSendHeartbeatInterval": "1000",
    "registerNameServerPeriod": "10000",
    "diskMaxUsedSpaceRatio": "99",
    "traceTopicEnable": "false",
    # By default a request that waited 0.2 s is refused as "broker busy": on a busy machine, that is any request.
    "waitTimeMillsInSendQueue": "60000",
    "waitTimeMillsInAdminBrokerQueue": "60000",
    # The broker's TransactionMetricsFlushService asks for the time in a loop until this has passed, by default 3 s.
    "transactionMetricFlushInterval": "500",
}


class StockBroker(Stock):
    """Apache RocketMQ's own broker, 5.5.0 unless told otherwise, with small files so that it starts in seconds."""

    def __init__(
        self,
        namesrv_addr: str,
        cluster: str = "DefaultCluster",
        name: str = "broker-a",
        broker_id: int = 0,
        properties: Mapping[str, str] | None = None,
        release: str = "5.5.0",
        java_options: Sequence[str] = (),
    ) -> None:
        """Prepare it; `with` starts it.

        Args:
            namesrv_addr: host:port, `;`-separated when several.
            cluster: brokerClusterName.
            name: brokerName.
            broker_id: 0 makes a master, anything else a slave.
            properties: broker.conf on top of QUICK_BROKER.
            release: "5.5.0" or "4.9.7".
            java_options: More of the JVM's.
        """
        super().__init__(JAR_SETS[release])
        self.cluster, self.name, self.broker_id = cluster, name, broker_id
        # A broker also opens the "fast" port two below and the HA port one above its own.
        self.port = free_port((0, -2, 1))
        self._file = self._write_properties(
            "broker.conf",
            {
                **QUICK_BROKER,
                "namesrvAddr": namesrv_addr,
                "brokerClusterName": cluster,
                "brokerName": name,
                "brokerId": str(broker_id),
                "brokerRole": "ASYNC_MASTER" if broker_id == 0 else "SLAVE",
                "listenPort": str(self.port),
                "haListenPort": str(self.port + 1),
                "storePathRootDir": str(self.home / "store"),
                "storePathCommitLog": str(self.home / "store" / "commitlog"),
                **(properties or {}),
            },
        )
        self.process = JavaProcess(
            "org.apache.rocketmq.broker.BrokerStartup",
            ["-c", str(self._file)],
            self._classpath,
            self.home,
            heap_mb=384,
            direct_mb=256,
            jvm_args=(*QUICK_JVM, *self._options, *java_options),
            ready=self._is_ready,
            start_timeout_s=90,
        )
        self._seen_output = 0

    def configure(self, name: str, value: str) -> None:
        """Set a property in broker.conf. The broker reads it at its next start."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{name}={value}\n")  # the last line of a name counts

    @property
    def address(self) -> str:
        """Address that the broker registers."""
        return f"127.0.0.1:{self.port}"

    def _is_ready(self, process: JavaProcess) -> bool:
        """The line of this start, not of an earlier one in the same file."""
        return "boot success" in process.output.read_text(errors="replace")[self._seen_output :] and port_answers(
            self.port
        )

    def start(self) -> None:
        """Start it, also after it was killed; its store is kept."""
        output = self.process.output
        self._seen_output = len(output.read_text(errors="replace")) if output.exists() else 0
        super().start()

    def sigkill(self) -> None:
        """Kill it at once."""
        self.process.sigkill()

    def sigstop(self) -> None:
        """Freeze it; its connections stay open and silent."""
        self.process.sigstop()

    def sigcont(self) -> None:
        """Let it go on."""
        self.process.sigcont()

    def terminate(self, *, wait: bool = True) -> None:
        """Shut it down in order. It unregisters itself first; what follows takes ten seconds and more.

        Args:
            wait: Whether to wait until it has ended.
        """
        if wait:
            self.process.terminate()
        else:
            self.process.signal(signal.SIGTERM)
