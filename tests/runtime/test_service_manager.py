# SPDX-License-Identifier: Apache-2.0
"""What systemd hears: one datagram, from the process that it started."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from runtime.children import SUPERVISED
from runtime.process import tell_ready


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_readiness_is_sent_once_to_the_service_manager(tmp_path: Path, kind: str) -> None:
    name = str(tmp_path / "notify") if kind == "file" else f"@{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name[1:] if kind == "abstract" else name)
        receiver.settimeout(5)
        tell_ready({"NOTIFY_SOCKET": name, SUPERVISED: "1"})  # says nothing, or it would be read twice below
        tell_ready({"NOTIFY_SOCKET": name})
        assert receiver.recv(100) == b"READY=1"
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(100)


def test_without_a_service_manager_readiness_is_not_sent(tmp_path: Path) -> None:
    tell_ready({})
    tell_ready({"NOTIFY_SOCKET": ""})
    tell_ready({"NOTIFY_SOCKET": str(tmp_path / "gone")})
