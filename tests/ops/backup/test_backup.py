# SPDX-License-Identifier: Apache-2.0
"""`routelake backup` while a gateway writes, and `routelake restore` over any contents."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dev.peers.java import wait_until
from dev.support.command import command, told
from eventlog.sqlite.log import SqliteLog
from lake.delta.ddl import LOCK_FILE, lock_lake
from ops.backup.manifest import read_manifest
from ops.backup.marker import refuse_unfinished_restore
from ops.backup.restore import restore
from ops.backup.take import take_backup
from schemas.errors import SetupError
from tests.ops.backup.live import all_records, assert_whole, go_on
from tests.ops.backup.processes import epochs, living, routelake, run, start


def url(data_dir: Path) -> str:
    return f"sqlite://{data_dir}/events.db"


def tree(folder: Path) -> dict[str, bytes]:
    """Every file but locks, which say nothing, an empty -wal, which says as much, and what a shard of the kit was writing
    when its process was killed: no such folder is in a data directory.
    """
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
        and not path.name.endswith(("lock", "-shm"))
        and path.parent.name != "lake.spool"
        and path.stat().st_size
    }


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the fixtures below are copies of: a data directory, a backup of it, and what a killed process then made of it."""
    folder = tmp_path_factory.mktemp("made")
    go_on(folder / "data", 4)
    take_backup(folder / "data", url(folder / "data"), folder / "backup")
    shutil.copytree(folder / "data", folder / "killed")
    with living(folder / "killed"):
        pass
    (folder / "killed" / "checkpoints").mkdir()
    (folder / "killed" / "lake.spool" / "x").write_text("cut")
    return folder


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    """A data directory with four epochs."""
    return Path(shutil.copytree(made / "data", tmp_path / "data"))


@pytest.fixture
def backup(made: Path, tmp_path: Path) -> Path:
    """Of that."""
    return Path(shutil.copytree(made / "backup", tmp_path / "backup"))


@pytest.fixture
def killed(made: Path, tmp_path: Path) -> Path:
    """That data directory after a gateway had gone on with it and was killed: its log has a -wal."""
    return Path(shutil.copytree(made / "killed", tmp_path / "data"))


def test_a_backup_of_a_running_gateway_can_be_restored_elsewhere(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with living(data):
        for number in range(3):
            code, printed = told("backup", tmp_path / str(number), "--data-dir", data)
            assert code == 0, printed
        before = epochs(data)
        wait_until(lambda: epochs(data) > before, 60, "the fold to go on")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "data"]
    assert told("restore", tmp_path / "1", "--data-dir", elsewhere)[0] == 0
    manifest = read_manifest(tmp_path / "1")
    assert assert_whole(elsewhere) == manifest.lake.log_offset
    assert len(all_records(elsewhere)) + 1 == manifest.log.next_offset
    go_on(elsewhere, 2)
    assert assert_whole(elsewhere) > manifest.log.next_offset


def test_a_restore_over_the_wal_of_a_killed_process_is_complete(tmp_path: Path) -> None:
    """Its -wal would be replayed over the log of the backup."""
    data, backup = tmp_path / "data", tmp_path / "backup"
    with living(data):
        take_backup(data, url(data), backup)
        before = epochs(data)
        wait_until(lambda: epochs(data) > before + 2, 60, "the fold to go on")
    (data / "checkpoints" / "fold").mkdir(parents=True)
    newer = tree(data)
    assert any(name.endswith("-wal") for name in newer)
    manifest = read_manifest(backup)
    for _ in range(2):
        code, printed = routelake("restore", backup, "--data-dir", data)
        assert code == 0, printed
        assert len(all_records(data)) == manifest.log.next_offset - 1
        assert assert_whole(data) == manifest.lake.log_offset
        with living(data):  # and it is killed again
            pass
    first, _ = sorted(data.glob("before-restore-*"))
    assert str(first) in told("restore", backup, "--data-dir", data, "--dry-run")[1] or first.exists()
    assert tree(first) == newer
    assert not (data / "checkpoints").exists()


def test_the_log_of_a_backup_put_back_by_hand_beside_the_wal_is_refused(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup"
    with living(data):
        take_backup(data, url(data), backup)
    shutil.copy(backup / "events.db", data)
    with pytest.raises(SetupError, match="do not belong together"):
        SqliteLog(data / "events.db")


def test_nothing_is_taken_into_a_folder_that_holds_something(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "full"
    target.mkdir()
    (target / "letter").write_text("")
    refused = command("backup", target, "--data-dir", data)
    assert refused.returncode == 2
    assert "is not empty" in refused.stderr
    (target / "letter").unlink()
    assert told("backup", target, "--data-dir", data)[0] == 0  # an empty one will do


def test_a_backup_of_nothing_is_refused(tmp_path: Path) -> None:
    refused = command("backup", tmp_path / "backup", "--data-dir", tmp_path / "none")
    assert refused.returncode == 2
    assert "no lake to back up" in refused.stderr
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, sys
from pathlib import Path
from ops.backup import take
from ops.backup import restore
{patch}
data, backup = Path(sys.argv[1]), Path(sys.argv[2])
{what}
"""
TAKE = "take.take_backup(data, f'sqlite://{data}/events.db', backup)"
RESTORE = "restore.restore(backup, data, f'sqlite://{data}/events.db')"


def cut_off(what: str, patch: str, data: Path, backup: Path) -> tuple[int, str]:
    """Exit code and output of one that meets something on its way."""
    return run("-c", KILLED.format(patch=patch, what=what), str(data), str(backup))


@pytest.mark.parametrize("function", ["_copy_table", "_copy_log", "check_backup", "sync_folder"])
def test_a_backup_that_was_killed_is_none(data: Path, tmp_path: Path, function: str) -> None:
    backup = tmp_path / "backup"
    assert cut_off(TAKE, f"take.{function} = lambda *_: os.kill(os.getpid(), 9)", data, backup)[0] == -9
    if function != "sync_folder":  # that is after the rename: it is whole by then
        assert not backup.exists()
        with pytest.raises(SetupError, match="not a complete backup"):
            restore(tmp_path / "backup.unfinished", tmp_path / "other", url(tmp_path / "other"))
        take_backup(data, url(data), backup)
    restore(backup, tmp_path / "other", url(tmp_path / "other"))
    assert_whole(tmp_path / "other")
    assert not (tmp_path / "backup.unfinished").exists()


@pytest.mark.parametrize("step", [1, pytest.param(4, marks=pytest.mark.deep), 6, 8])
def test_a_restore_that_was_killed_is_given_again(killed: Path, backup: Path, step: int) -> None:
    """At each file that is moved: five of what was there, two of the backup; then all is done but for the mark."""
    data = killed
    was = tree(data)
    patch = f"""
rename, calls = Path.rename, []
def counted(path, target):
    calls.append(path)
    if len(calls) == {step}:
        os.kill(os.getpid(), 9)
    return rename(path, target)
Path.rename = counted
restore.check_log = (lambda check: lambda *a: os.kill(os.getpid(), 9) if len(calls) == 7 else check(*a))(restore.check_log)
"""
    assert cut_off(RESTORE, patch, data, backup)[0] == -9
    with pytest.raises(SetupError, match="is running or was interrupted"):
        refuse_unfinished_restore(data)
    code, printed = routelake("gateway", "--data-dir", data)
    assert code == 2
    assert f"restore {backup} --data-dir {data}" in printed
    kept = {**tree(data), **{name: text for aside in data.glob("before-*") for name, text in tree(aside).items()}}
    assert {name: kept.get(name) for name in was} == was or step > 5
    done = command("restore", backup, "--data-dir", data)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "an earlier restore was interrupted here" in printed
    refuse_unfinished_restore(data)
    aside = sorted(data.glob("before-*"))
    assert all(str(folder) in printed for folder in aside)
    found: dict[str, bytes] = {}
    for folder in reversed(aside):
        found |= tree(folder)
    assert {name: found.get(name) for name in was} == was
    assert assert_whole(data) == read_manifest(backup).lake.log_offset


@pytest.mark.parametrize("step", [3, 7])
def test_a_restore_that_fails_leaves_everything_as_it_was(killed: Path, backup: Path, step: int) -> None:
    data = killed
    was = tree(data)
    patch = f"""
rename, calls = Path.rename, []
def counted(path, target):
    calls.append(path)
    if len(calls) == {step}:
        raise PermissionError(13, 'no', str(path))
    return rename(path, target)
Path.rename = counted
"""
    assert "SetupError" in cut_off(RESTORE, patch, data, backup)[1]
    assert tree(data) == was
    assert not list(data.glob("before-*"))
    refuse_unfinished_restore(data)
    restore(backup, data, url(data))


@pytest.mark.parametrize("function", ["write_marker", "sync_folder", "give_to_owner"])
def test_a_restore_that_fails_before_it_moves_a_file_leaves_everything_as_it_was(
    data: Path, backup: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """The staged copy is as large as the backup, and fills the disk for the marker and the lock."""
    before = sorted(path.name for path in data.iterdir())

    def full(path: Path, *_: object) -> None:
        if function != "give_to_owner" or path.name == LOCK_FILE:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(f"ops.backup.restore.{function}", full)
        with pytest.raises(SetupError, match="No space left"):
            restore(backup, data, url(data))
    assert sorted(path.name for path in data.iterdir()) == before
    refuse_unfinished_restore(data)


def test_a_full_disk_leaves_everything_as_it_was(data: Path, backup: Path, tmp_path: Path) -> None:
    """No file may be larger than a page of the log: the system's own error, at a place that is always the same."""
    was = tree(data)
    small = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    small += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))"
    for what, target in ((TAKE, tmp_path / "another"), (RESTORE, backup)):
        assert "disk is full" in cut_off(what, small, data, target)[1]
    assert tree(data) == was
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]


@pytest.fixture(params=["log", "fold"])
def user(request: pytest.FixtureRequest, data: Path) -> Iterator[str]:
    held = SqliteLog(data / "events.db") if request.param == "log" else lock_lake(data / "lake")
    with closing(held):
        yield request.param


def test_nothing_is_restored_under_those_who_use_it(data: Path, backup: Path, user: str) -> None:
    was = tree(data)
    code, printed = told("restore", backup, "--data-dir", data)
    assert code == 2
    assert ("is in use. Stop routelake" if user == "log" else "in use by a running fold") in printed
    assert tree(data) == was


def test_a_second_backup_or_restore_at_the_same_time_is_refused(data: Path, backup: Path, tmp_path: Path) -> None:
    held = os.open(data, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SetupError, match="another restore"):
            restore(backup, data, url(data))
    finally:
        os.close(held)
    (tmp_path / "twice.unfinished").mkdir()
    with (tmp_path / "twice.unfinished" / "unfinished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SetupError, match="another backup"):
            take_backup(data, url(data), tmp_path / "twice")


def test_a_file_of_the_backup_that_was_changed_or_lost(data: Path, backup: Path) -> None:
    was = tree(data)
    files = sorted(path for path in backup.rglob("*") if path.is_file())
    for file in [*files[:: len(files) // 8], *backup.glob("*.*"), backup / "lake" / "lake.json"]:
        text = file.read_bytes()
        changed = bytearray(text)
        changed[len(text) // 2] ^= 1
        for damage in (bytes(changed), text[:-1], None):
            file.unlink() if damage is None else file.write_bytes(damage)
            if file.name == "backup.json" and damage is not None and _still_true(damage, text):
                continue
            with pytest.raises(SetupError):
                restore(backup, data, url(data), dry_run=True)
        file.write_bytes(text)
    assert tree(data) == was
    restore(backup, data, url(data), dry_run=True)


def _still_true(damaged: bytes, text: bytes) -> bool:
    try:
        return bool(json.loads(damaged) == json.loads(text))
    except ValueError:
        return False


def test_a_backup_of_a_later_routelake(data: Path, backup: Path) -> None:
    (backup / "backup.json").write_text('{"format": 2, "whatever": []}')
    with pytest.raises(SetupError, match="format 2.*Upgrade"):
        restore(backup, data, url(data))


def test_a_backup_is_not_restored_into_itself(backup: Path) -> None:
    was = tree(backup)
    with pytest.raises(SetupError, match="is the backup itself"):
        restore(backup, backup, url(backup))
    assert tree(backup) == was


def test_a_dry_run_changes_nothing_and_says_what_would_be(data: Path, backup: Path) -> None:
    was = tree(data)
    said = command("restore", backup, "--data-dir", data, "--dry-run")
    assert said.returncode == 0
    assert f"{data}/lake would move to {data}/before-restore-" in said.stdout + said.stderr
    assert tree(data) == was


def test_the_tables_alone_with_the_log_that_is_there(data: Path, backup: Path, tmp_path: Path) -> None:
    """A lake is lost: what was acknowledged since the backup is folded again."""
    go_on(data, 3)
    newest = len(all_records(data))
    shutil.rmtree(data / "lake" / "topicQueueTable")
    restore(backup, data, url(data), keep_log=True)
    assert len(all_records(data)) == newest
    go_on(data, 1)
    assert assert_whole(data) > newest

    # Another log, which began with the same records and went its own way.
    other = tmp_path / "other"
    restore(backup, other, url(other))
    go_on(other, 3)
    take_backup(other, url(other), tmp_path / "of the other")
    with pytest.raises(SetupError, match="differs or is missing"):
        restore(tmp_path / "of the other", data, url(data), keep_log=True)


def test_a_log_that_is_damaged_is_not_backed_up(data: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(data / "events.db")) as plain, plain:
        plain.execute("DELETE FROM event WHERE offset = 3")
    with pytest.raises(SetupError, match="lacks the records from offset 3 to 3"):
        take_backup(data, url(data), tmp_path / "backup")
    assert not list(tmp_path.glob("backup*"))


def test_records_that_the_tables_need_and_retention_took(data: Path, tmp_path: Path) -> None:
    with closing(SqliteLog(data / "events.db")) as log:
        log.append([("k", b"x")] * 5)
        log.trim(12, 2**60)
    with pytest.raises(SetupError, match="need those from"):
        take_backup(data, url(data), tmp_path / "backup")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_restores_for_the_owner_of_the_data_directory(data: Path, backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    os.chown(other, 65534, 65534)
    restore(backup, other, url(other))
    made = [path for path in other.rglob("*") if not path.name.endswith("lock")]
    assert {path.stat().st_uid for path in made} == {65534}


def test_a_lake_without_an_epoch(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    process = start("-c", "import sys; from pathlib import Path; from lake.delta.ddl import open_lake; "
                    "open_lake(Path(sys.argv[1]) / 'lake', retention_days=30)", str(data))  # fmt: skip
    assert process.wait(60) == 0
    process.communicate()
    SqliteLog(data / "events.db").close()
    take_backup(data, url(data), tmp_path / "backup")
    restore(tmp_path / "backup", other, url(other))
    go_on(other, 2)
    assert_whole(other)


@pytest.mark.parametrize(("options", "others"), [((), 0o077), (("--data-mode", "750"), 0o027)])
def test_a_backup_is_for_those_who_may_read_the_lake(
    data: Path, tmp_path: Path, options: tuple[str, ...], others: int
) -> None:
    made = [tmp_path / "private", tmp_path / "restored"]
    for words in (("backup", made[0], "--data-dir", data), ("restore", made[0], "--data-dir", made[1])):
        code, printed = routelake(*words, *options)
        assert code == 0, printed
    for folder in made:
        found = {path: path.stat().st_mode & others for path in (folder, *folder.rglob("*"))}
        assert not {str(path): oct(mode) for path, mode in found.items() if mode}
