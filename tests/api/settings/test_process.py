# SPDX-License-Identifier: Apache-2.0
"""A real gateway process started with a namesrv.properties: no Spark, no fold, its own port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from dev.model.client import RemotingClient
from dev.peers.java import free_port, port_answers, wait_until
from dev.peers.routelake import ROOT
from dev.support.local import config_of


def gateway(folder: Path, file: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "cli.main", "gateway", "--data-dir", str(folder / "data")),
        *("--config", str(file), "--http", f"127.0.0.1:{free_port()}"),
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ROUTELAKE_")}
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def test_a_gateway_with_the_file_of_a_stock_nameserver(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "namesrv.properties"
    file.write_text(
        f"# Java's own\nlistenPort : {port}\nbindAddress=127.0.0.1\nsupportActingMaster = True\nenableTopicList=TRUE \n"
        "serverChannelMaxIdleTimeSeconds=77\nserverWorkerThreads=8\nkvConfigPath=/root/namesrv/kvConfig.json\n"
    )
    log = tmp_path / "one.log"
    process = gateway(tmp_path, file, log)
    try:
        wait_until(lambda: port_answers(port) or process.poll() is not None, 30, "the port")
        assert process.poll() is None, log.read_text()
        with RemotingClient("127.0.0.1", port) as client:
            shown = config_of(client)
        assert shown["listenPort"] == str(port)
        assert shown["bindAddress"] == "127.0.0.1"
        assert shown["supportActingMaster"] == "true"
        assert shown["enableTopicList"] == "false"
        assert shown["serverChannelMaxIdleTimeSeconds"] == "77"
        assert "kvConfigPath" not in shown
        # 50 of the bad-input list: the port is in use.
        other = tmp_path / "two.log"
        second = gateway(tmp_path / "second", file, other)
        assert second.wait(30) == 2, other.read_text()
        assert f"--remoting 127.0.0.1:{port} cannot be listened on" in other.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, log.read_text()
    text = log.read_text()
    assert text.count("have no meaning here and are ignored: kvConfigPath, serverWorkerThreads") == 1
    assert text.count("counts as false, as in RocketMQ") == 1
