# SPDX-License-Identifier: Apache-2.0
"""The test helper itself: it folds what Spark folds, and goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lake.commits import last_commit
from pipelines.fold.replay import replay
from pipelines.log.memory import MemoryLog
from pipelines.tables.seed import read_seed
from schemas.broker import DataVersion, QueueRow
from schemas.events import Actor, AnyEvent, DeleteTopic, RegisterBroker, encode, routing_key, topic_config_digest
from tests.support.minifold import MiniFold

ACTOR = Actor(gateway="gw", via="test")
ROW = QueueRow(8, 8, 6, 0)


def registration(name: str, *topics: str) -> RegisterBroker:
    table = dict.fromkeys(topics, ROW)
    return RegisterBroker(
        actor=ACTOR,
        cluster_name="c1",
        broker_name=name,
        broker_addr=f"{name}:10911",
        broker_id=0,
        data_version=DataVersion(0, 1, 1),
        topic_config_digest=topic_config_digest(table),
        topic_config_table=table,
    )


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log = MemoryLog()
    events: list[AnyEvent] = [
        registration("a", "t1", "t2"),
        registration("b", "t1", "t3"),
        DeleteTopic(actor=ACTOR, topic="t1"),
        registration("c", "t1", "t4"),
    ]
    for event in events:
        with MiniFold(log, tmp_path) as fold:
            (appended,) = log.append([(routing_key(event), encode(event))])
            fold.wait_for(appended.offset)
    state = read_seed(tmp_path, log).state
    expected = replay(type(state)(), log.read(0))
    topics = {name: dict(group.topics.rows) for name, group in state.groups.items()}
    assert topics == {name: dict(group.topics.rows) for name, group in expected.groups.items()}
    assert topics == {"a": {"t2": ROW}, "b": {"t3": ROW}, "c": {"t1": ROW, "t4": ROW}}
    commit = last_commit(tmp_path)
    assert commit is not None
    assert commit.log_offset == log.end().next_offset - 1


def test_it_stands_still_while_paused(tmp_path: Path) -> None:
    log = MemoryLog()
    with MiniFold(log, tmp_path) as fold:
        fold.pause()
        event = registration("a", "t1", "t2")
        (appended,) = log.append([(routing_key(event), encode(event))])
        assert fold.writer.epoch == 0
        fold.resume()
        fold.wait_for(appended.offset)
        assert fold.writer.epoch == 1


def test_its_error_is_shown_and_fails_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = MemoryLog()
    fold = MiniFold(log, tmp_path)

    def fail(*_: object) -> None:
        raise RuntimeError("torn")

    monkeypatch.setattr(fold.writer, "write", fail)
    fold.start()
    event = registration("a", "t1", "t2")
    (appended,) = log.append([(routing_key(event), encode(event))])
    waits: list[Callable[[], None]] = [partial(fold.wait_for, appended.offset), fold.pause, fold.stop]
    for wait in waits:
        with pytest.raises(RuntimeError, match="torn"):
            wait()
    assert "RuntimeError: torn" in capsys.readouterr().err
