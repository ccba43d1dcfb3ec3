# SPDX-License-Identifier: Apache-2.0
"""Apache RocketMQ's NameServer, started from its published jars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dev.peers.class_data import options_of
from dev.peers.java import QUICK_JVM, JavaProcess, free_port, port_answers
from dev.peers.peer import Peer

JAR_SETS: Final = {"5.5.0": "rocketmq", "4.9.7": "rocketmq-4"}
"""Jars (runtime/jars.lock) of each release of RocketMQ."""

# distribution/bin/runserver.sh (5.5.0) for Java 9 and newer, without the log of the garbage collector.
RUNSERVER_MEMORY: Final = ("-Xms4g", "-Xmx4g", "-XX:MetaspaceSize=128m", "-XX:MaxMetaspaceSize=320m")
RUNSERVER_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:-UseLargePages",
)

# Logging off: the peers' own log files are never read, and configuring them costs a second and fills the output.
_LOGBACK_FILES = (
    "rmq.logback-test.xml",
    "conf/logback_tools.xml",
    "conf/logback_broker.xml",
    "conf/logback_namesrv.xml",
)
_NO_LOGGING = '<?xml version="1.0" encoding="UTF-8"?>\n<configuration><root level="OFF"/></configuration>\n'


def prepare_home(home: Path) -> str:
    """Write the logging configuration of all releases; the option of the JVM that names it.

    It is no part of the class path, which would then not be what class data was written for (`runtime.class_data`).
    """
    for name in _LOGBACK_FILES:
        file = home / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(_NO_LOGGING)
    return f"-Drmq.logback.configurationFile={home / _LOGBACK_FILES[0]}"


class Stock(Peer):
    """A peer of RocketMQ's: without logging, and with its start's duration."""

    def __init__(self, jar_set: str = "rocketmq") -> None:
        super().__init__(jar_set)
        self._options = (prepare_home(self.home), *options_of(jar_set))

    @property
    def start_seconds(self) -> float:
        """Duration of the last start, in seconds."""
        return self.process.start_seconds


class StockNameServer(Stock):
    """Apache RocketMQ's own NameServer."""

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        production: bool = False,
        java_options: Sequence[str] = (),
        release: str = "5.5.0",
        port: int | None = None,
    ) -> None:
        """Prepare it; `with` starts it.

        Args:
            properties: namesrv.properties on top of the port, for example scanNotActiveBrokerInterval.
            production: With the JVM options of RocketMQ's runserver.sh instead of quickly.
            java_options: More of the JVM's.
            release: "5.5.0" or "4.9.7".
            port: Port to listen on. None: a free one.
        """
        super().__init__(JAR_SETS[release])
        self.host = "127.0.0.1"
        self.port = free_port() if port is None else port
        file = self._write_properties(
            "namesrv.properties",
            {"listenPort": str(self.port), "bindAddress": self.host, **(properties or {})},
        )
        self.process = JavaProcess(
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            ["-c", str(file)],
            self._classpath,
            self.home,
            heap_mb=192,
            memory=RUNSERVER_MEMORY if production else None,
            jvm_args=(*(RUNSERVER_JVM if production else QUICK_JVM), *self._options, *java_options),
            ready=lambda process: "boot success" in process.tail() and port_answers(self.port),
        )

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self.host}:{self.port}"
