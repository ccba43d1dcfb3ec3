# SPDX-License-Identifier: Apache-2.0
"""A step of the intervals takes its time while epochs go on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from dev.support import events as make
from dev.support.drive import SHARDS, DeltaLake, open_writer
from dev.support.generated_logs import written
from dev.support.intervals import assert_kept, assert_now
from dev.support.microbatches import Query
from lake.history import intervals as keeping
from lake.history.intervals import BackgroundStep, IntervalKeeper
from schemas.tables import ROUTE_CHANGE_TABLE

WAIT_S = 60.0


def test_epochs_go_on_while_a_step_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge, begun, go_on = keeping._merge, threading.Semaphore(0), threading.Semaphore(0)

    def slowly(*args: Any) -> None:
        begun.release()
        assert go_on.acquire(timeout=WAIT_S)
        merge(*args)

    monkeypatch.setattr(keeping, "STEP_INTERVAL_S", 0.0)
    records = written([(5, make.put("n", "k", value)) for value in "abcde"])
    query = Query(SHARDS)
    query.lake = lake = DeltaLake(open_writer(tmp_path))
    keeper = IntervalKeeper(tmp_path)
    beside = BackgroundStep(keeper)

    def version() -> int:
        return lake.writer.tables[ROUTE_CHANGE_TABLE.name].version

    def epoch() -> None:
        query.run([records.pop(0)])
        beside.start(lake.writer.epoch, version())

    assert beside.is_idle
    query.run([records.pop(0)])
    keeper.catch_up(1, version())
    monkeypatch.setattr(keeping, "_merge", slowly)
    epoch()
    assert begun.acquire(timeout=WAIT_S)
    for _ in range(2):
        epoch()
        assert lake.writer.epoch > keeper.epoch == 1
        assert not beside.is_idle
        assert not beside.wait(0)
    assert not begun.acquire(blocking=False), "a second step began beside the first"
    go_on.release()
    assert beside.wait(WAIT_S)
    assert keeper.epoch == 2
    go_on.release()
    epoch()  # its step takes what came meanwhile, too
    assert beside.wait(WAIT_S)
    assert keeper.epoch == lake.writer.epoch == 5
    assert_kept(tmp_path)
    assert_now(tmp_path)
