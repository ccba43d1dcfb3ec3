# SPDX-License-Identifier: Apache-2.0
"""A lake that lost what was not synced, in any combination, is folded to what it was."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from dev.support.lakes import Tables, check_epochs
from lake.commits import last_commit
from lake.delta.ddl import lock_lake
from lake.write.staging import STAGING_FOLDER
from lake.write.synced import SYNCED_FILE, sync_lake, unsynced_damage
from ops.doctor.examine import examine
from ops.doctor.rollback import go_back_to_whole
from schemas.errors import SetupError
from schemas.tables import ROUTE_COMMIT_TABLE
from tests.ops.doctor.data import EVENTS, go_on, log_path, trim

LATER = EVENTS[3:]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str], Tables]:
    """A data directory, synced after three epochs and trimmed; the files of its lake that were synced; its tables."""
    data = tmp_path_factory.mktemp("made")
    go_on(data, EVENTS[:3])
    last = last_commit(data / "lake")
    assert last is not None
    versions = {**last.versions, ROUTE_COMMIT_TABLE.name: last.epoch}
    sync_lake(data / "lake", versions)
    synced = files(data / "lake")
    tables = go_on(data, LATER)
    trim(data, last.log_offset + 1)
    shutil.rmtree(data / "lake" / STAGING_FOLDER)
    return data, synced, tables


@pytest.fixture
def data(made: tuple[Path, set[str], Tables], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "data"))


def files(lake: Path) -> set[str]:
    return {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}


def cut(lake: Path, synced: set[str], draw: random.Random) -> None:
    """What a power cut may leave of files that were not synced: all, nothing, no bytes, some, zeros."""
    torn = draw.choice([0.05, 0.3, 0.9])
    for name in sorted(files(lake) - synced):
        path = lake / name
        if draw.random() > torn:
            continue
        was = path.read_bytes()
        path.unlink()
        kind = draw.randrange(4)
        if kind:
            path.write_bytes([b"", was[: len(was) // 2], bytes(len(was))][kind - 1])


def start(data: Path) -> None:
    """As the fold's process does, before it opens anything."""
    with closing(lock_lake(data / "lake")):
        go_back_to_whole(data / "lake", data / "checkpoints" / "fold", f"sqlite://{log_path(data)}")


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(4, 12))])
def test_whatever_was_lost_comes_back_from_the_log(data: Path, made: tuple[Path, set[str], Tables], seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(2):  # the second cut comes before anything was synced again
        cut(data / "lake", made[1], draw)
        start(data)
        assert go_on(data, []) == made[2]
    check_epochs(data / "lake")
    found = examine(data, log_path(data), thorough=True)
    assert found.is_well, found.findings


def test_a_whole_lake_stays_as_it_is(data: Path) -> None:
    before = files(data / "lake")
    start(data)
    assert files(data / "lake") == before
    assert (data / "checkpoints" / "fold").exists()


def test_a_lake_that_was_cut_off_while_it_was_made(data: Path, made: tuple[Path, set[str], Tables]) -> None:
    """Nothing of it was synced, and the log has everything."""
    fresh = data / "fresh"
    tables = go_on(fresh, EVENTS)
    for seed in range(4):
        cut(fresh / "lake", {"lake.json", "fold.lock"}, random.Random(seed))
        start(fresh)
        assert go_on(fresh, []) == tables


def test_what_was_synced_and_is_damaged_is_not_touched(data: Path, made: tuple[Path, set[str], Tables]) -> None:
    """No power cut does that: an operator has to look, and the log no longer has its source."""
    lake = data / "lake"
    for entry in sorted((lake / ROUTE_COMMIT_TABLE.name / "_delta_log").glob("*.json"))[1:]:
        entry.write_bytes(b"")
    before = files(lake)
    (lake / SYNCED_FILE).unlink()
    assert unsynced_damage(lake)
    with pytest.raises(SetupError, match="doctor"):
        start(data)
    assert files(lake) == before - {SYNCED_FILE}
