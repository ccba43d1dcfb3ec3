# SPDX-License-Identifier: Apache-2.0
"""`./routelake history rebuild`: refused, and done by a process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from dev.support import any_lake
from dev.support import events as make
from dev.support.command import command, process
from dev.support.fold import Fold
from dev.support.intervals import assert_kept, assert_now
from dev.support.memory_log import MemoryLog
from dev.support.stores import SteppingStore, store
from lake.delta.ddl import lock_lake
from lake.publisher import Publisher
from lake.store import StoreError
from schemas.events import EventEncoder, routing_key


def test_intervals_are_made_anew(tmp_path: Path) -> None:
    words = ("history", "rebuild", "--data-dir", tmp_path)
    assert command(*words).returncode == 2
    any_lake.write(tmp_path / "lake")
    with closing(lock_lake(tmp_path / "lake")):
        refused = command(*words)
    assert refused.returncode == 2
    assert "is in use by a running fold" in refused.stderr
    done = process(*words)
    assert done.returncode == 0, done
    assert "interval tables rebuilt from the changes of epochs 1 to " in done.stdout
    assert_kept(tmp_path / "lake")
    assert_now(tmp_path / "lake")


class Failing(SteppingStore):
    """Takes no data file of intervals."""

    def put(self, path: str, data: bytes | Path) -> None:
        if "History/" in path:
            raise StoreError(f"PUT {path}: 503")
        super().put(path, data)


def test_a_store_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, log = MemoryStore(), MemoryLog()
    event = make.register()
    log.append([(routing_key(event), EventEncoder().encode(event))])
    Fold(log, tmp_path / "one", store=store(memory), intervals=True).fold()
    own: SteppingStore = Failing(memory)
    for module in ("lake.store", "lake.lease"):
        monkeypatch.setattr(f"{module}.open_store", lambda url: own)
    monkeypatch.setattr("lake.lease.probe", lambda store: None)
    words = ("history", "rebuild", "--lake", "s3://lake/routes")
    failed = command(*words)
    assert failed.returncode == 1, failed
    assert "503" in failed.stderr and "Then run the command again" in failed.stderr
    own = SteppingStore(memory)
    assert command(*words).returncode == 0
    Publisher(store(memory), tmp_path / "read").fetch()
    assert_kept(tmp_path / "read")
