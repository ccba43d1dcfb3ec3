# SPDX-License-Identifier: Apache-2.0
"""What serve, gateway and fold have alike at their start."""

from __future__ import annotations

import socket
from pathlib import Path

from cli.preflight import Listen
from pipelines.backup.marker import refuse_unfinished_restore
from runtime.machine import guard_data


def default_gateway_id(remoting: Listen) -> str:
    """Host name and port: different for every gateway of a log."""
    return f"{socket.gethostname()}:{remoting.port}"


def make(data_dir: Path, data_mode: str) -> None:
    """Make the data directory. Raises SetupError when it cannot be written, or a restore into it was cut off."""
    refuse_unfinished_restore(data_dir)
    guard_data(data_dir, data_mode)
