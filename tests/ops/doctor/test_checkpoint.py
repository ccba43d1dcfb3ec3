# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint the fold goes on with: no file of it was synced, so a power cut may leave any of them in any state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from lake.checkpoint import check_compatible, write_seen
from lake.commits import last_commit
from lake.delta.ddl import open_lake
from lake.delta.types import arrow_schema
from schemas.tables import KV_CONFIG_TABLE, ROUTE_COMMIT_TABLE, Table
from tests.ops.doctor.data import EVENTS, go_on

FILES = ["metadata", "routelake.json", "epoch", "offsets/6", "offsets/7", "commits/6", "commits/7"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("made")
    go_on(data, EVENTS[:3])
    folder = data / "checkpoints" / "fold"
    for name in ("offsets", "commits"):
        shutil.copy(folder / name / "7", folder / name / "6")
    return data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "data"))


def goes_on(data: Path) -> bool:
    tables = open_lake(data / "lake", retention_days=30).values()
    return check_compatible(data / "checkpoints" / "fold", last_commit(data / "lake"), tables).goes_on


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garble(path: Path) -> None:
    path.write_bytes(b"\xff\x00v1{" * 20)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", [empty, halve, zero, garble])
def test_a_torn_file_is_found_before_spark_reads_it(data: Path, file: str, damage: Callable[[Path], None]) -> None:
    assert goes_on(data)
    damage(data / "checkpoints" / "fold" / file)
    assert not goes_on(data)


@pytest.mark.parametrize("file", ["metadata", "routelake.json", "epoch", "offsets", "commits", "state", "offsets/7"])
def test_a_file_or_folder_that_is_missing(data: Path, file: str) -> None:
    path = data / "checkpoints" / "fold" / file
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not goes_on(data)


def test_a_batch_that_is_done_and_was_not_noted(data: Path) -> None:
    """Spark's commit is on the disk, the note of its epoch is not: the tables may lack what the batch held."""
    write_seen(data / "checkpoints" / "fold", 3, 6)
    assert not goes_on(data)


def test_a_batch_that_was_noted_and_is_not_done_is_repeated(data: Path) -> None:
    checkpoint = data / "checkpoints" / "fold"
    write_seen(checkpoint, 3, 8)
    assert not goes_on(data)  # Spark would plan batch 8 with other events
    shutil.copy(checkpoint / "offsets" / "7", checkpoint / "offsets" / "8")
    assert goes_on(data)


@pytest.mark.parametrize("table", [KV_CONFIG_TABLE, ROUTE_COMMIT_TABLE])
def test_the_tables_have_a_batch_that_it_has_not_begun(data: Path, table: Table) -> None:
    """The disk of the checkpoint was restored from a snapshot."""
    lake = data / "lake"
    query_id = json.loads((data / "checkpoints" / "fold" / "metadata").read_text())["id"]
    opened = open_lake(lake, retention_days=30)[table.name]
    rows = pa.Table.from_pylist([], schema=arrow_schema(table))
    later = CommitProperties(app_transactions=[Transaction(query_id, 8)])
    write_deltalake(opened, rows, mode="append", commit_properties=later)
    assert not goes_on(data)
    shutil.copy(data / "checkpoints" / "fold" / "offsets" / "7", data / "checkpoints" / "fold" / "offsets" / "8")
    assert goes_on(data)


def test_it_has_seen_an_epoch_that_the_tables_lack(data: Path) -> None:
    write_seen(data / "checkpoints" / "fold", 4, 7)
    assert not goes_on(data)
