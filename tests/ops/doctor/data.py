# SPDX-License-Identifier: Apache-2.0
"""A data directory to be damaged: a SQLite log, tables of several epochs, a checkpoint as far as it is looked at."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from dev.support import events as make
from dev.support.fold import FoldThread
from dev.support.lakes import Tables, last_epoch_tables
from eventlog.sqlite.log import SqliteLog
from lake.commits import last_commit
from lake.delta.ddl import lock_lake, open_lake
from lake.write.writer import rewind
from schemas.events import AnyEvent, encode, routing_key

EVENTS: list[AnyEvent] = [
    make.register("a0:1", 0, name="a"),
    make.register("b0:1", 0, name="b"),
    make.put("n", "k", "1"),
    make.register("b1:1", 1, name="b"),
    make.wipe("a"),
    make.put("n", "k", "2"),
    make.delete_topic("T"),
    make.add("a"),
]
"""Each an epoch of its own."""


def log_path(data_dir: Path) -> Path:
    return data_dir / "events.db"


def go_on(data_dir: Path, events: list[AnyEvent]) -> Tables:
    """Let the fold start, go on with some events, and stop; returns the tables."""
    lake_dir = data_dir / "lake"
    lake_dir.mkdir(parents=True, exist_ok=True)
    with closing(lock_lake(lake_dir)), closing(SqliteLog(log_path(data_dir))) as log:
        rewind(lake_dir, open_lake(lake_dir, retention_days=30))  # as with a new checkpoint
        with FoldThread(log, lake_dir, liveness_interval_s=0) as fold:
            if (last := log.end().next_offset - 1) > 0:
                fold.wait_for(last)
            for event in events:
                (appended,) = log.append([(routing_key(event), encode(event))])
                fold.wait_for(appended.offset)
        write_checkpoint(data_dir)
    return last_epoch_tables(lake_dir)


def fold_on(data_dir: Path, offset: int) -> None:
    """Let the fold reach an offset of a log that another process writes."""
    lake_dir = data_dir / "lake"
    with closing(lock_lake(lake_dir)), closing(SqliteLog(log_path(data_dir))) as log:
        rewind(lake_dir, open_lake(lake_dir, retention_days=30))
        with FoldThread(log, lake_dir, liveness_interval_s=0) as fold:
            fold.wait_for(offset)


def write_checkpoint(data_dir: Path) -> None:
    """What there is of Spark's checkpoint after the last epoch."""
    last = last_commit(data_dir / "lake")
    assert last is not None
    folder = data_dir / "checkpoints" / "fold"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("offsets", "commits", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": last.query_id}))
    (folder / "routelake.json").write_text('{"format":3,"shards":2}')
    (folder / "epoch").write_text(f"{last.epoch} 7")
    (folder / "offsets" / "7").write_text('v1\n{"batchWatermarkMs":0}\n{"offset":7}')
    (folder / "commits" / "7").write_text('v1\n{"nextBatchWatermarkMs":0}')


def flip(path: Path, at: float) -> None:
    """Change a byte in the middle of a stretch of the file; ``at`` is its place as a share of the size."""
    data = bytearray(path.read_bytes())
    place = int(len(data) * at)
    data[place] ^= 0xFF
    path.unlink()  # it may have another name, in the staging folder
    path.write_bytes(data)


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a data directory, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def trim(data_dir: Path, before_offset: int) -> None:
    """As retention does."""
    with closing(sqlite3.connect(log_path(data_dir))) as connection:
        connection.execute("DELETE FROM event WHERE offset < ?", (before_offset,))
        connection.commit()
