# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint the fold goes on with: no file of it was synced, so a power cut may leave any of them in any state."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lake.checkpoint import check_compatible, write_seen
from lake.commits import last_commit
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
    return check_compatible(data / "checkpoints" / "fold", last_commit(data / "lake")).goes_on


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
    write_seen(data / "checkpoints" / "fold", 3, 8)
    assert goes_on(data)


def test_it_has_seen_an_epoch_that_the_tables_lack(data: Path) -> None:
    write_seen(data / "checkpoints" / "fold", 4, 7)
    assert not goes_on(data)
