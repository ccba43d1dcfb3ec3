# SPDX-License-Identifier: Apache-2.0
"""Four processes that burn the processor, each in a session of its own, during a start: it is ready all the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.peers.routelake import Routelake

READY_S = 180.0


@pytest.fixture
def burning() -> Iterator[None]:
    command = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(command, start_new_session=True) for _ in range(4)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


@pytest.mark.jvm
@pytest.mark.deep
@pytest.mark.usefixtures("burning")
@pytest.mark.parametrize("attempt", range(10))
def test_serve_becomes_ready(tmp_path: Path, attempt: int) -> None:
    server = Routelake(tmp_path / "data")
    try:
        server.start(wait_ready_s=READY_S)
        assert "starting again" not in server.log_path.read_text(), "the JVM was thrown away"
        assert server.stop(40) == 0
    finally:
        server.kill()
