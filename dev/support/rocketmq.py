# SPDX-License-Identifier: Apache-2.0
"""Stock RocketMQ peers in tests: NameServer, broker and mqadmin, started from their published jars."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dev.peers.broker import QUICK_BROKER, StockBroker
from dev.peers.class_data import options_of
from dev.peers.java import classpath, java_executable
from dev.peers.rocketmq import JAR_SETS, StockNameServer, prepare_home

_SILENT_PEER = re.compile(r"RemotingTimeoutException: wait response on the channel <[^/>]*/?([^>]+)>")
_BROKER_TRIES = 3


def mqadmin(
    args: list[str],
    namesrv_addr: str,
    release: str = "5.5.0",
    timeout_s: float = 60.0,
    *,
    tools: str | None = None,
    java_options: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run the stock mqadmin.

    It gives a peer five seconds to answer, which nothing can change. A NameServer has to keep to that here; where a
    broker did not, on a busy machine, the command is given again, as an operator would do.

    Args:
        args: Sub-command and its options, without -n.
        namesrv_addr: Value of the option -n.
        release: "5.5.0" or "4.9.7".
        timeout_s: Time after which it is killed, in seconds.
        tools: Contents of its conf/tools.yml, with the keys for signatures; None for none.
        java_options: Options of the JVM, such as -Dtls.enable=true.

    Returns:
        Exit status, stdout and stderr. The status is 0 even when the command failed: read the output.
    """
    for _ in range(_BROKER_TRIES):
        done = _run_mqadmin(args, namesrv_addr, release, timeout_s, tools, java_options)
        silent = set(_SILENT_PEER.findall(done.stdout + done.stderr))
        if not silent or silent & set(namesrv_addr.split(";")):
            break
    return done


def _run_mqadmin(
    args: list[str], namesrv_addr: str, release: str, timeout_s: float, tools: str | None, java_options: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="mqadmin-") as home:
        command = [
            java_executable(),
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            prepare_home(Path(home)),
            *options_of(JAR_SETS[release]),
            *java_options,
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            f"-Drocketmq.client.logRoot={home}",
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            *args[:1],
            "-n",
            namesrv_addr,
            *args[1:],
        ]
        path = classpath(JAR_SETS[release])
        if tools is not None:
            (Path(home) / "conf" / "tools.yml").write_text(tools)
        environment = {**os.environ, "ROCKETMQ_HOME": home, "CLASSPATH": path}
        return subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )


__all__ = ["QUICK_BROKER", "StockBroker", "StockNameServer", "mqadmin"]
