# SPDX-License-Identifier: Apache-2.0
"""`./routelake doctor`: it finds and names damage, repairs what it can, and the fold goes on from there."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from dev.support import events as make
from dev.support.command import process
from dev.support.lakes import Tables, check_epochs, commits, last_epoch_tables
from dev.support.sampled import sampled
from dev.support.stamps import stamps_of
from eventlog.base import now_ms
from eventlog.sqlite.file import mark_moved
from eventlog.sqlite.log import SqliteLog
from lake.delta.ddl import lock_lake
from ops.doctor.examine import examine
from ops.doctor.findings import Kind
from ops.doctor.repair import Repair
from ops.doctor.tables import TableOnDisk
from schemas.errors import SetupError
from schemas.events import encode, routing_key
from schemas.tables import ALL_TABLES
from tests.ops.doctor.data import EVENTS, flip, go_on, log_path, tree, trim, write_checkpoint

TABLES = ("topicQueueTable", "routeCommitTable", "brokerLiveTable", "routeChangeTable")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tables]:
    folder = tmp_path_factory.mktemp("made") / "data"
    return folder, go_on(folder, EVENTS)


@pytest.fixture
def data(made: tuple[Path, Tables], tmp_path: Path) -> Path:
    """A whole data directory."""
    return Path(shutil.copytree(made[0], tmp_path / "data"))


@pytest.fixture
def unstaged(data: Path) -> Path:
    """A data directory after the start of a fold, which has removed its staged files."""
    shutil.rmtree(data / "lake" / "_staging")
    return data


def kinds(data: Path) -> dict[str, str]:
    """What is found, by place."""
    return {finding.where: str(finding.kind) for finding in examine(data, log_path(data)).findings}


def entry(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def newest(table: Path) -> Path:
    return max((table / "_delta_log").glob("*.json"))


def files(table: Path) -> list[Path]:
    return sorted(
        path for path in table.rglob("*.parquet") if "_delta_log" not in path.parts and "_change_data" not in path.parts
    )


def without_lock(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: text for name, text in found.items() if not name.endswith("fold.lock")}


def repaired(data: Path, tables: Tables) -> Repair:
    """Repair, and let the fold go on: in the end the tables are what they were, and all is well."""
    work = Repair(data, log_path(data))
    assert not [finding for finding in work.run().findings if finding.kind is not Kind.FOLD_CHECKPOINT], work.refused
    assert go_on(data, []) == tables
    check_epochs(data / "lake")
    go_on(data, [make.put("n", "k", "3")])
    assert not kinds(data)
    return work


def test_a_healthy_data_directory_has_no_findings_and_is_not_changed(data: Path) -> None:
    before = tree(data)
    found = examine(data, log_path(data), thorough=True)
    assert found.is_well
    assert not found.findings
    assert found.last is not None
    assert found.last.epoch == len(EVENTS)
    assert found.place is not None
    assert found.place.commit.epoch == len(EVENTS)
    assert tree(data) == before


def test_an_empty_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="neither a lake nor an event log"):
        examine(tmp_path, log_path(tmp_path))


# --- the tables ---


def empty(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"")


def halve(path: Path) -> None:
    text = path.read_bytes()
    path.unlink()
    path.write_bytes(text[: len(text) // 2])


def lose_last_line(path: Path) -> None:
    """The rest is valid JSON, line by line: no reader of the table can notice."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.unlink()
    path.write_bytes(b"".join(lines[:-1]))


@pytest.mark.parametrize(
    ("name", "damage"),
    sampled(
        product(TABLES, (empty, halve, lose_last_line)),
        [("topicQueueTable", halve), ("routeCommitTable", lose_last_line)],
    ),
)
def test_the_last_entry_of_a_table_is_cut(
    unstaged: Path, made: tuple[Path, Tables], name: str, damage: Callable[[Path], None]
) -> None:
    broken = newest(unstaged / "lake" / name)
    damage(broken)
    assert kinds(unstaged)[str(broken)] == Kind.ENTRY
    work = repaired(unstaged, made[1])
    assert "set back" in work.done[0]
    assert (work.aside / "lake" / name / "_delta_log" / broken.name).exists()


@pytest.mark.parametrize("name", sampled(((name,) for name in TABLES[1:]), [("routeCommitTable",)]))
def test_an_entry_between_others_is_lost(unstaged: Path, made: tuple[Path, Tables], name: str) -> None:
    lost = entry(unstaged / "lake" / name, 2)
    lost.unlink()
    assert kinds(unstaged)[str(lost)] == Kind.ENTRY
    repaired(unstaged, made[1])


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
@pytest.mark.deep
def test_the_last_entry_is_lost(unstaged: Path, made: tuple[Path, Tables], table: object) -> None:
    """Of a table that epochs name: it is at another version than they need. Of routeCommitTable: an epoch is gone."""
    name = getattr(table, "name", "")
    lost = newest(unstaged / "lake" / name)
    if lost.stem == "0" * 20:
        pytest.skip("nothing was written to it")
    lost.unlink()
    expected = Kind.FOLD_CHECKPOINT if name == "routeCommitTable" else Kind.BEHIND
    assert expected in kinds(unstaged).values()
    repaired(unstaged, made[1])


@pytest.mark.parametrize(
    ("name", "how"),
    sampled(
        product(TABLES, ("lost", "cut", "flipped")), [("topicQueueTable", "lost"), ("routeCommitTable", "flipped")]
    ),
)
def test_a_file_of_the_newest_version(unstaged: Path, made: tuple[Path, Tables], name: str, how: str) -> None:
    found = examine(unstaged, log_path(unstaged))
    disk = found.tables[name].disk
    assert disk is not None
    path = disk.path / next(reversed(disk.files_at(disk.newest) or {}))
    if how == "lost":
        path.unlink()
    elif how == "cut":
        halve(path)
    else:
        flip(path, 0.999)  # the footer's length
    assert kinds(unstaged)[str(path)] == Kind.FILE
    repaired(unstaged, made[1])


def test_files_are_restored_from_the_staging_folder(made: tuple[Path, Tables], tmp_path: Path) -> None:
    data = tmp_path / "data"
    tables = go_on(data, EVENTS[:4])
    before = tree(data / "lake")
    disk = examine(data, log_path(data)).tables["brokerAddrTable"].disk
    assert disk is not None
    # Of the newest version: the staging folder need not have a file that a later epoch replaced.
    lost = [disk.path / next(reversed(disk.files_at(disk.newest) or {})), newest(data / "lake" / "topicQueueTable")]
    lost += [entry(data / "lake" / "routeCommitTable", 2), files(data / "lake" / "routeChangeTable")[0]]
    for path in lost:
        path.unlink()
    trim(data, 4)
    work = Repair(data, log_path(data))
    found = work.run()
    assert found.is_well, (work.refused, found.findings)
    assert len(work.done) == len(lost)
    assert without_lock(tree(data / "lake")) == without_lock(before)
    assert last_epoch_tables(data / "lake") == tables


def test_without_the_event_log_a_repair_is_refused_with_the_reason(unstaged: Path) -> None:
    """What the lost file held came before what the log still has."""
    found = examine(unstaged, log_path(unstaged))
    disk = found.tables["brokerLiveTable"].disk
    assert disk is not None
    for name in disk.files_at(disk.newest) or {}:
        (disk.path / name).unlink()
    assert found.last is not None
    trim(unstaged, found.last.log_offset)
    before = tree(unstaged)
    work = Repair(unstaged, log_path(unstaged))
    found = work.run()
    assert not found.is_well
    assert "cannot be repaired from the event log" in work.refused[-1]
    assert without_lock(tree(unstaged)) == without_lock(before)


def test_a_missing_file_of_an_old_version_is_reported_as_such(unstaged: Path) -> None:
    """Nothing stops for them."""
    disk = examine(unstaged, log_path(unstaged)).tables["topicQueueTable"].disk
    assert disk is not None
    old = set(disk.files_at(2) or {}) - set(disk.files_at(disk.newest) or {})
    path = disk.path / old.pop()
    path.unlink()
    assert kinds(unstaged) == {str(path): Kind.OLD_FILE}


@pytest.mark.parametrize(("days", "is_missed"), [(1, False), (90, True)])
def test_a_missing_old_file_is_reported_within_the_retention_of_its_table(
    unstaged: Path, days: int, is_missed: bool
) -> None:
    """Vacuum goes by that; the files here were removed 40 days ago."""
    path = unstaged / "lake" / "topicQueueTable"
    table = DeltaTable(str(path))
    table.alter.set_table_properties({"delta.deletedFileRetentionDuration": f"interval {days} days"})
    disk = examine(unstaged, log_path(unstaged)).tables["topicQueueTable"].disk
    assert disk is not None
    now = set(disk.files_at(disk.newest) or {})
    for version in range(disk.newest):
        older = entry(path, version)
        older.write_text(re.sub(r'("(?:timestamp|deletionTimestamp)":)(\d+)', _40_days_ago, older.read_text()))
    for name in set(disk.files_at(2) or {}) - now:
        (path / unquote(name)).unlink()
    for feed in (path / "_change_data").rglob("*.parquet"):
        feed.unlink()
    assert set(kinds(unstaged).values()) == ({Kind.OLD_FILE} if is_missed else set())
    DeltaTable(str(path)).create_checkpoint()
    for one in (path / "_delta_log").glob("*.json"):  # as clean-up leaves the log: a checkpoint and what is newer
        one.unlink()
    assert TableOnDisk(path).retention_days() == days


def _40_days_ago(found: re.Match[str]) -> str:
    return f"{found[1]}{int(found[2]) - 40 * 86_400_000}"


def test_a_repair_is_refused_while_a_fold_runs(unstaged: Path) -> None:
    halve(newest(unstaged / "lake" / "topicQueueTable"))
    with closing(lock_lake(unstaged / "lake")):
        assert examine(unstaged, log_path(unstaged)).fold_runs
        with pytest.raises(SetupError, match="in use by a running fold"):
            Repair(unstaged, log_path(unstaged)).run()


# --- the event log ---


def test_a_payload_that_is_flipped(data: Path) -> None:
    with closing(sqlite3.connect(log_path(data))) as connection:
        (payload,) = connection.execute("SELECT payload FROM event WHERE offset = 3").fetchone()
        connection.execute("UPDATE event SET payload = ? WHERE offset = 3", (payload[:-1] + bytes([payload[-1] ^ 1]),))
        connection.commit()
    (finding,) = examine(data, log_path(data)).findings
    assert finding.kind is Kind.RECORD
    assert "offset 3" in finding.what
    assert "the tables already include it" in finding.what


def damage_page_of(path: Path, offset: int) -> None:
    """Zero the page that has a record."""
    with closing(sqlite3.connect(path)) as connection:
        (payload,) = connection.execute("SELECT payload FROM event WHERE offset = ?", (offset,)).fetchone()
    path.with_name(path.name + "-wal").unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    begin = data.index(payload) // 4096 * 4096
    data[begin : begin + 4096] = bytes(4096)
    path.write_bytes(data)


def test_a_log_whose_old_pages_are_damaged_is_written_anew(data: Path) -> None:
    """The records on them are in the tables."""
    noise = random.Random(1)
    tables = go_on(data, [make.put("n", f"k{number}", noise.randbytes(700).hex()) for number in range(12)])
    with closing(SqliteLog(log_path(data))) as log:
        log_id, end = log.log_id, log.end()
        last = log.read(end.next_offset - 1)
    damage_page_of(log_path(data), 12)
    assert kinds(data)[str(log_path(data))] == Kind.LOG_UNREADABLE
    work = Repair(data, log_path(data))
    found = work.run()
    assert found.is_well, (work.refused, found.findings)
    with closing(SqliteLog(log_path(data))) as log:
        assert (log.log_id, log.end()) == (log_id, end)
        assert log.read(end.next_offset - 1) == last
    assert go_on(data, []) == tables


def test_a_damaged_log_on_another_disk_is_moved_aside_there(data: Path) -> None:
    go_on(data, [make.put("n", f"k{number}", random.Random(number).randbytes(700).hex()) for number in range(12)])
    with TemporaryDirectory(dir="/dev/shm") as other:
        path = Path(shutil.move(log_path(data), other))
        damage_page_of(path, 12)
        damaged = path.read_bytes()
        found = process("doctor", data, "--event-log", f"sqlite://{path}", "--repair")
        assert found.returncode == 0, found
        (aside,) = Path(other).glob("before-repair-*")
        assert (aside / "events.db").read_bytes() == damaged
        assert f"removed files are in {aside}" in found.stdout
        SqliteLog(path).close()


@pytest.mark.parametrize("is_folded", [False, True])
def test_event_times_in_the_future_are_reported(data: Path, is_folded: bool) -> None:
    """A clock was three hours ahead when it wrote. Nothing stops for it, and time goes on."""
    with closing(SqliteLog(log_path(data), stamps=stamps_of(lambda: now_ms() + 3 * 3_600_000))) as log:
        log.append([(routing_key(event), encode(event)) for event in (make.clock(), make.put("n", "later"))])
    tables = go_on(data, []) if is_folded else None
    assert kinds(data) == {str(log_path(data)): Kind.AHEAD}
    found = Repair(data, log_path(data)).run()
    assert [finding.kind for finding in found.findings] == [Kind.AHEAD]
    assert tables in (None, go_on(data, []))


def test_a_truncated_event_log_is_not_repaired(data: Path) -> None:
    path = log_path(data)
    path.write_bytes(path.read_bytes()[:6000])
    assert kinds(data)[str(path)] == Kind.LOG_UNREADABLE
    work = Repair(data, path)
    assert not work.run().is_well
    assert "cannot be repaired" in work.refused[0]


def test_a_missing_event_log_is_reported(data: Path) -> None:
    log_path(data).unlink()
    assert kinds(data)[str(log_path(data))] == Kind.LOG_MISSING


def test_a_moved_event_log_is_reported_and_not_taken_back(data: Path) -> None:
    path = log_path(data)
    mark_moved(path, "kafka://k:9092/t.from-1")
    before = path.read_bytes()
    (finding,) = examine(data, path).findings
    assert finding.kind == Kind.LOG_FORMAT and "Start with --event-log kafka://k:9092/t.from-1" in finding.what
    assert not Repair(data, path).run().is_well
    assert path.read_bytes() == before


def test_a_lake_beside_a_newer_log_goes_on(data: Path, tmp_path: Path) -> None:
    """It was restored alone, and the log has everything since: the checkpoint is of a later epoch."""
    shutil.copytree(data / "lake", tmp_path / "older")
    tables = go_on(data, [make.put("n", "newer", "1")])
    shutil.rmtree(data / "lake")
    shutil.copytree(tmp_path / "older", data / "lake")
    assert list(kinds(data).values()) == [Kind.FOLD_CHECKPOINT]
    assert examine(data, log_path(data)).is_well
    assert go_on(data, []) == tables


def test_a_lake_beside_a_log_that_was_trimmed_meanwhile(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "lake", tmp_path / "older")
    go_on(data, [make.put("n", "newer", str(number)) for number in range(4)])
    last = commits(data / "lake")[-1]["logOffset"]
    shutil.rmtree(data / "lake")
    shutil.copytree(tmp_path / "older", data / "lake")
    trim(data, last)
    assert kinds(data)[str(log_path(data))] == Kind.LOG_LACKS


def test_a_lake_beside_an_older_log(data: Path, tmp_path: Path) -> None:
    shutil.copy(log_path(data), tmp_path / "older.db")
    go_on(data, [make.put("n", "newer", "1")])
    shutil.copy(tmp_path / "older.db", log_path(data))
    assert kinds(data)[str(log_path(data))] == Kind.LOG_SHORT


def test_a_lake_beside_the_log_of_another(data: Path, tmp_path: Path) -> None:
    """It is long enough, and begins at 1: nothing but its records tell."""
    go_on(tmp_path / "other", [*EVENTS, *EVENTS])
    shutil.copy(log_path(tmp_path / "other"), log_path(data))
    assert kinds(data)[str(log_path(data))] == Kind.LOG_OTHER


# --- Spark's checkpoint ---


@pytest.mark.parametrize("folder", ["offsets", "commits"])
def test_a_torn_checkpoint_is_left_to_the_fold(data: Path, folder: str) -> None:
    """The fold makes it again by itself: tests/ops/doctor/test_checkpoint.py."""
    (data / "checkpoints" / "fold" / folder / "8").write_text("v1\n")
    found = examine(data, log_path(data))
    assert [finding.kind for finding in found.findings] == [Kind.FOLD_CHECKPOINT]
    assert str(data / "checkpoints" / "fold" / folder / "8") in found.findings[0].what
    assert found.is_well


def test_a_checkpoint_of_another_lake(data: Path, tmp_path: Path) -> None:
    go_on(tmp_path / "other", EVENTS[:2])
    shutil.rmtree(data / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", data / "checkpoints")
    found = examine(data, log_path(data))
    assert [finding.kind for finding in found.findings] == [Kind.FOLD_CHECKPOINT]
    assert found.is_well
    write_checkpoint(data)
    assert not examine(data, log_path(data)).findings
