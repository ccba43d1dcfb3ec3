# SPDX-License-Identifier: Apache-2.0
"""A gateway for those who attack it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peers.routelake import Routelake
from pipelines.log.open import open_log
from tests.support.minifold import MiniFold


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Routelake]:
    """A gateway alone: what it acknowledges is durable, and folded by nobody."""
    running = Routelake(tmp_path / "data", "gateway")
    running.start(wait_ready_s=None)
    try:
        running.wait_listening()
        yield running
        assert running.process is not None
        assert running.process.poll() in {None, 0}, running.log_tail()
    finally:
        running.kill()


@pytest.fixture
def folding(tmp_path: Path) -> Iterator[Routelake]:
    """A gateway, and a fold in this process."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    log = open_log(f"sqlite://{data_dir / 'events.db'}")
    running = Routelake(data_dir, "gateway")
    with MiniFold(log, data_dir / "lake"):
        running.start(wait_ready_s=None)
        try:
            running.wait_listening()
            yield running
            assert running.stop() == 0
        finally:
            running.kill()
    log.close()
