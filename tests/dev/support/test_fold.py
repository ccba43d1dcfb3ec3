# SPDX-License-Identifier: Apache-2.0
"""The test helper itself: it folds what Spark folds, and goes on where it stopped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dev.model import codes
from dev.model.client import ConnectionClosed
from dev.model.wire import Request
from dev.support import events as make
from dev.support.fold import FoldThread
from dev.support.local import LocalLake
from dev.support.memory_log import MemoryLog
from lake.commits import last_commit
from lake.write.seed import read_seed
from nameserver.state_machine.replay import replay
from schemas.events import (
    AnyEvent,
    encode,
    routing_key,
)


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log = MemoryLog()
    events: list[AnyEvent] = [
        make.register("a:1", name="a", table=make.topics("t1", "t2")),
        make.register("b:1", name="b", table=make.topics("t1", "t3")),
        make.delete_topic("t1"),
        make.register("c:1", name="c", table=make.topics("t1", "t4")),
    ]
    for event in events:
        with FoldThread(log, tmp_path) as fold:
            (appended,) = log.append([(routing_key(event), encode(event))])
            fold.wait_for(appended.offset)
    state = read_seed(tmp_path, log).state
    expected = replay(type(state)(), log.read(0))
    topics = {name: dict(group.topics.rows) for name, group in state.groups.items()}
    assert topics == {name: dict(group.topics.rows) for name, group in expected.groups.items()}
    assert topics == {"a": {"t2": make.ROW}, "b": {"t3": make.ROW}, "c": {"t1": make.ROW, "t4": make.ROW}}
    commit = last_commit(tmp_path)
    assert commit is not None
    assert commit.log_offset == log.end().next_offset - 1


def test_it_stands_still_while_paused(tmp_path: Path) -> None:
    log = MemoryLog()
    with FoldThread(log, tmp_path) as fold:
        fold.pause()
        event = make.register("a:1", name="a", table=make.topics("t1", "t2"))
        (appended,) = log.append([(routing_key(event), encode(event))])
        assert fold.writer.epoch == 0
        fold.resume()
        fold.wait_for(appended.offset)
        assert fold.writer.epoch == 1


def test_whoever_waits_for_a_fold_that_failed_learns_why_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    lake = LocalLake(tmp_path)
    lake.start()
    began = time.monotonic()
    with lake.gateway() as gateway, gateway.connect() as client:
        monkeypatch.setattr(lake.fold.writer, "write", full)
        put = make.put("n", "k")
        (appended,) = lake.log.append([(routing_key(put), encode(put))])
        with pytest.raises(OSError, match="the disk is full"):
            gateway.loop.run(gateway.gateway.committed.wait_for(appended.offset, 60))
        with pytest.raises((ConnectionClosed, ConnectionError)):
            while True:
                client.call(Request(codes.GET_KV_CONFIG, {"namespace": "n", "key": "k"}), 60)
    with pytest.raises(OSError, match="the disk is full"):
        lake.fold.wait_for(10)
    with pytest.raises(OSError, match="the disk is full"):
        lake.close()
    assert time.monotonic() - began < 20, "it has waited for what will never be folded"
    assert "the disk is full" in capsys.readouterr().err
