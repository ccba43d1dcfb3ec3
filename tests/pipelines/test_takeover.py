# SPDX-License-Identifier: Apache-2.0
"""A fold that takes over a lake goes on with no checkpoint of its own, wherever the other one was interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

import pipelines.main as main
from dev.support.stores import SteppingStore, store
from lake.checkpoint import MARKER_FILE
from lake.lease import LEASE_FILE, Lease, LeasedLake
from pipelines.job import FoldSettings
from runtime.process import EXIT_FAILED


def test_the_checkpoint_is_gone_before_the_lake_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryStore()
    other = Lease(store(memory), "other")
    other.try_to_take()
    other.release()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / MARKER_FILE).write_text("{}")
    own = SteppingStore(memory)
    seen: list[bool] = []

    def killed(number: int, path: str) -> None:
        assert path == LEASE_FILE
        seen.append(checkpoint.exists())
        raise OSError("killed")

    own.before = killed
    monkeypatch.setattr(LeasedLake, "at", lambda url, folder: LeasedLake(own, folder))
    settings = FoldSettings(tmp_path / "copy", checkpoint, "memory:", tmp_path / "scratch", lake_url="memory://lake")
    assert main.run_fold(settings) == EXIT_FAILED
    assert seen == [False]
