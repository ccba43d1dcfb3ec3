# SPDX-License-Identifier: Apache-2.0
"""A gateway for those who attack it; the Go client."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from dev.peers.routelake import Routelake
from dev.support.fold import FoldThread
from eventlog.open import open_log


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Routelake]:
    """A gateway alone: acknowledged events are durable, and no fold applies them."""
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
    """A gateway, and a fold in this process with the maintenance of the product's fold."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    log = open_log(f"sqlite://{data_dir / 'events.db'}")
    running = Routelake(data_dir, "gateway")
    with FoldThread(log, data_dir / "lake", log_retention_hours=24.0):
        running.start(wait_ready_s=None)
        try:
            running.wait_listening()
            yield running
            assert running.stop() == 0
        finally:
            running.kill()
    log.close()


@pytest.fixture(scope="session")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rocketmq-client-go/v2 as a program, built from the Go module proxy by pinned digests."""
    if shutil.which("go") is None:
        pytest.skip("no `go` on the PATH")
    folder = Path(__file__).parent / "go_client"
    go = partial(subprocess.run, cwd=folder, capture_output=True, text=True, check=False, timeout=500)
    listed = go(["go", "list", "-mod=readonly", "-deps", "."])
    if listed.returncode:
        pytest.skip(f"the Go client's modules cannot be had: {listed.stderr.strip()[-300:]}")
    program = tmp_path_factory.mktemp("go") / "go_client"
    built = go(["go", "build", "-mod=readonly", "-o", str(program), "."])
    assert built.returncode == 0, built.stderr
    return program
