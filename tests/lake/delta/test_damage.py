# SPDX-License-Identifier: Apache-2.0
"""A table with a damaged log, at the start of fold and gateway: the file's name, a way out, and one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from api.gateway.follower import Follower
from dev.support import events as make
from dev.support.drive import drive
from dev.support.generated_logs import written
from lake.delta.ddl import open_lake
from lake.delta.log import DamagedTableError
from schemas.errors import SetupError

NEWER = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["v2Checkpoint"],
    "writerFeatures": ["v2Checkpoint"],
}


def commit(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def tear(table: Path) -> Path:
    whole = commit(table, 1).read_bytes()
    commit(table, 1).write_bytes(whole[: len(whole) // 2])
    return commit(table, 1)


def empty(table: Path) -> Path:
    """As a power cut leaves a file: its name was on the disk before its bytes."""
    commit(table, 1).write_bytes(b"")
    return commit(table, 1)


def lose_one(table: Path) -> Path:
    commit(table, 1).rename(commit(table, 2))
    return commit(table, 1)


def upgrade(table: Path) -> Path:
    """What ALTER TABLE ... SET TBLPROPERTIES of another program may do."""
    commit(table, 2).write_text(json.dumps({"protocol": NEWER}))
    return table


def loop(table: Path) -> Path:
    shutil.rmtree(table)
    table.symlink_to(table)
    return table


@pytest.mark.parametrize("name", ["routeCommitTable", "topicQueueTable"])
@pytest.mark.parametrize("damage", [tear, empty, lose_one, upgrade, loop])
def test_the_damaged_file_is_named(tmp_path: Path, name: str, damage: Callable[[Path], Path]) -> None:
    drive(tmp_path, [written([(0, make.register())])])
    named = str(damage(tmp_path / name))
    with pytest.raises(SetupError) as refused:
        open_lake(tmp_path, retention_days=30)
    assert named in str(refused.value)
    assert "restore" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "0: " not in str(refused.value), "frames of Rust"


@pytest.mark.parametrize("name", ["routeCommitTable", "topicQueueTable"])
@pytest.mark.parametrize("damage", [tear, empty, loop])
def test_a_follower_names_it_and_keeps_its_view(tmp_path: Path, name: str, damage: Callable[[Path], Path]) -> None:
    lake = drive(tmp_path, [written([(0, make.register())])])
    follower = Follower(str(tmp_path), lambda *_: None)
    assert follower.poll()
    named = str(damage(tmp_path / name))
    late = Follower(str(tmp_path), lambda *_: None)
    with pytest.raises((DamagedTableError, OSError)) as failed:
        late.poll()
    assert named in str(failed.value)
    assert follower.view.epoch == len(lake.epochs)


@pytest.mark.parametrize("name", ["routeCommitTable", "topicQueueTable"])
def test_a_column_that_another_program_has_added(tmp_path: Path, name: str) -> None:
    """The next commit of the fold would leave it out, or fail: who added it must say what it means."""
    lake = drive(tmp_path, [written([(0, make.register())])])
    follower = Follower(str(tmp_path), lambda *_: None)
    assert follower.poll()
    added = Schema.from_arrow(pa.schema([pa.field("extra", pa.string())])).fields
    DeltaTable(str(tmp_path / name)).alter.add_columns(added)
    with pytest.raises(SetupError, match=f"{name} has columns .*extra"):
        open_lake(tmp_path, retention_days=30)
    follower.poll()
    assert follower.view.epoch == len(lake.epochs)
