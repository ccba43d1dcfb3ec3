# SPDX-License-Identifier: Apache-2.0
"""`routelake broker` as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.peers.java import free_port, wait_until
from dev.peers.routelake import ROOT
from dev.support.command import environment


@contextmanager
def broker_agent(
    namesrv_addr: str, store: Path, name: str = "broker-a", cluster: str = "DefaultCluster"
) -> Iterator[str]:
    """Run an agent.

    Args:
        namesrv_addr: Addresses of the NameServers.
        store: Its folder, which is made.
        name: Its brokerName.
        cluster: Its cluster.

    Yields:
        Its address. It serves, and ends by SIGTERM.
    """
    address = f"127.0.0.1:{free_port()}"
    options = {"namesrv": namesrv_addr, "listen": address, "name": name, "cluster": cluster, "store": store}
    command = [sys.executable, "-m", "cli.main", "broker", *(f"--{key}={value}" for key, value in options.items())]
    store.mkdir(exist_ok=True)
    output = store / "output.log"
    with (
        output.open("w") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or "serving" in output.read_text(), 60, "the broker agent")
            assert process.poll() is None, output.read_text()
            yield address
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, output.read_text()
        finally:
            process.kill()
            process.wait()
