# SPDX-License-Identifier: Apache-2.0
"""Stock RocketMQ peers in tests: NameServer, broker and mqadmin, started from their published jars."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from peers.java import JavaProcess, classpath, free_port, java_executable, port_answers
from peers.rocketmq import Stock, StockNameServer, prepare_home

_JAR_SETS = {"5.5.0": "rocketmq", "4.9.7": "rocketmq-4"}

# Small files and few queues: a broker that is ready in seconds and needs a few megabytes of disk.
QUICK_BROKER: Mapping[str, str] = {
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "60000",
    "maxMessageSize": "262144",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "mappedFileSizeTimerLog": "1048576",
    "transientStorePoolEnable": "false",
    "warmMapedFileEnable": "false",
    "haSendHeartbeatInterval": "1000",
    "registerNameServerPeriod": "10000",
    "diskMaxUsedSpaceRatio": "99",
    "traceTopicEnable": "false",
    # By default a request that waited 0.2 s is refused as "broker busy": on a busy machine, that is any request.
    "waitTimeMillsInSendQueue": "60000",
    "waitTimeMillsInAdminBrokerQueue": "60000",
}


_SILENT_PEER = re.compile(r"RemotingTimeoutException: wait response on the channel <[^/>]*/?([^>]+)>")
_BROKER_TRIES = 3


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
    ) -> None:
        """Prepare it; `with` starts it.

        Args:
            namesrv_addr: host:port, `;`-separated when several.
            cluster: brokerClusterName.
            name: brokerName.
            broker_id: 0 makes a master, anything else a slave.
            properties: broker.conf on top of QUICK_BROKER.
            release: "5.5.0" or "4.9.7".
        """
        super().__init__(_JAR_SETS[release])
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
            ready=self._is_ready,
            start_timeout_s=90,
        )
        self._seen_output = 0

    @property
    def address(self) -> str:
        """What the broker registers as its address."""
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


def mqadmin(
    args: list[str], namesrv_addr: str, release: str = "5.5.0", timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run the stock mqadmin.

    It gives a peer five seconds to answer, which nothing can change. A NameServer has to keep to that here; where a
    broker did not, on a busy machine, the command is given again, as an operator would do.

    Args:
        args: Sub-command and its options, without -n.
        namesrv_addr: Given as -n.
        release: "5.5.0" or "4.9.7".
        timeout_s: Kill it after this long.

    Returns:
        Exit status, stdout and stderr. The status is 0 even when the command failed: read the output.
    """
    for _ in range(_BROKER_TRIES):
        done = _run_mqadmin(args, namesrv_addr, release, timeout_s)
        silent = set(_SILENT_PEER.findall(done.stdout + done.stderr))
        if not silent or silent & set(namesrv_addr.split(";")):
            break
    return done


def _run_mqadmin(
    args: list[str], namesrv_addr: str, release: str, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="mqadmin-") as home:
        command = [
            java_executable(),
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            f"-Drocketmq.client.logRoot={home}",
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            *args[:1],
            "-n",
            namesrv_addr,
            *args[1:],
        ]
        path = prepare_home(Path(home)) + classpath(_JAR_SETS[release])
        environment = {**os.environ, "ROCKETMQ_HOME": home, "CLASSPATH": path}
        return subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )


__all__ = ["QUICK_BROKER", "StockBroker", "StockNameServer", "mqadmin"]
