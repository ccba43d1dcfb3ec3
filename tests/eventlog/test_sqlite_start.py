# SPDX-License-Identifier: Apache-2.0
"""Checks of a SQLite log at its start: the -wal in its folder is its own, and no record is missing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.peers.routelake import ROOT
from eventlog.sqlite.file import sqlite_errors
from eventlog.sqlite.log import SqliteLog
from schemas.errors import SetupError, UnavailableError

APPEND = """
import sys
from pathlib import Path
from eventlog.sqlite.log import SqliteLog
log = SqliteLog(Path(sys.argv[1]))
for line in sys.stdin:
    count, size = map(int, line.split())
    print(log.append([("k", bytes(size))] * count)[-1].offset, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@contextlib.contextmanager
def killed(path: Path) -> Iterator[Callable[..., int]]:
    """A process that has the log open, and is killed with -9 in the end. Appends records, and returns the last offset."""
    process = subprocess.Popen(
        [sys.executable, "-c", APPEND, str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None

    def append(count: int, size: int = 200) -> int:
        assert process.stdout is not None
        print(count, size, file=process.stdin, flush=True)
        return int(process.stdout.readline())

    try:
        yield append
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def copy_online(path: Path, to: Path) -> None:
    """As ``sqlite3 PATH '.backup TO'`` does."""
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(to)) as target:
        source.backup(target)


def refused(path: Path, match: str) -> None:
    """With what is there unchanged."""
    files = [path, path.with_name(path.name + "-wal")]
    before = [file.read_bytes() if file.exists() else None for file in files]
    with pytest.raises(SetupError, match=match) as raised:
        SqliteLog(path)
    assert "restore" in str(raised.value)
    after = [file.read_bytes() if file.exists() else None for file in files]
    assert [data or None for data in after] == [data or None for data in before]


def offsets(path: Path) -> list[int]:
    with contextlib.closing(SqliteLog(path)) as log:
        return [record.offset for record in log.read(0, max_records=10**9, max_bytes=10**12)]


@pytest.mark.parametrize("at_a_time", [1, pytest.param(50, marks=pytest.mark.deep), 300])
def test_a_copy_put_back_beside_the_wal_of_a_killed_process(path: Path, tmp_path: Path, at_a_time: int) -> None:
    """It was replayed: offsets 301 to 3000 were gone, and the next write was acknowledged as 3001."""
    with killed(path) as append:
        append(300)
        copy_online(path, tmp_path / "copy.db")
        for _ in range(2700 // at_a_time):
            last = append(at_a_time, 2000)
        assert last == 3000
    shutil.copy(tmp_path / "copy.db", path)
    refused(path, "lacks the records from offset 301 to|damaged")


def test_a_copy_put_back_beside_a_wal_that_goes_on_from_it(path: Path, tmp_path: Path) -> None:
    """Everything that was acknowledged is there: nothing tells it from a crash, and nothing is lost."""
    with killed(path) as append:
        append(300)
        copy_online(path, tmp_path / "copy.db")
        append(5)
    shutil.copy(tmp_path / "copy.db", path)
    assert offsets(path) == list(range(1, 306))


def test_a_copy_of_the_product_put_back_by_hand_is_of_another_generation(path: Path, tmp_path: Path) -> None:
    """Even where its records would fit: they would come back although the operator wanted the state of the copy."""
    with killed(path) as append:
        append(300)
        copy_online(path, tmp_path / "copy.db")
        append(5)
    with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        copy.execute("PRAGMA journal_mode = DELETE")
        clear(copy)
    shutil.copy(tmp_path / "copy.db", path)
    refused(path, "do not belong together")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).rename(tmp_path / f"aside{suffix}")
    assert offsets(path) == list(range(1, 301))

    with killed(path) as append:  # and put back once more, over the one that was begun with the copy
        append(5)
    shutil.copy(tmp_path / "copy.db", path)
    refused(path, "do not belong together")


def clear(copy: sqlite3.Connection) -> None:
    from eventlog.sqlite.start import clear_generation

    with copy:
        clear_generation(copy)


def test_a_newer_copy_beside_an_older_wal(path: Path, tmp_path: Path) -> None:
    with killed(path) as append:
        append(10)
        wal = path.with_name("events.db-wal").read_bytes()
        append(500)
        copy_online(path, tmp_path / "copy.db")
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    shutil.copy(tmp_path / "copy.db", path)
    path.with_name("events.db-wal").write_bytes(wal)
    refused(path, "do not belong together: .*up to offset 510|damaged, or was restored")


def test_the_wal_of_another_log(path: Path, tmp_path: Path) -> None:
    with killed(path) as append:
        append(300)
    other = tmp_path / "other.db"
    with contextlib.closing(SqliteLog(other)) as log:
        log.append([("k", b"x")] * 300)
    shutil.copy(other, path)
    refused(path, "do not belong together")


def test_a_wal_whose_file_is_gone_is_kept(path: Path) -> None:
    """SQLite deletes it: with what was acknowledged last."""
    with killed(path) as append:
        append(300)
    path.unlink()
    refused(path, "missing or empty")


def test_records_that_somebody_deleted(path: Path) -> None:
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", b"x")] * 100)
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        plain.execute("DELETE FROM event WHERE offset BETWEEN 40 AND 44 OR offset = 70")
    refused(path, "lacks the records from offset 40 to 44")


@pytest.mark.parametrize(("first", "lost"), [(90, "90 to 100"), (1, "1 to 100")])
def test_records_that_are_missing_at_the_end(path: Path, first: int, lost: str) -> None:
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", b"x")] * 100)
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        plain.execute("DELETE FROM event WHERE offset >= ?", (first,))
    refused(path, f"lacks the records from offset {lost}")


def test_pages_that_contradict_each_other_are_found_after_a_crash(path: Path) -> None:
    """Page by page, with a WAL to replay: counting the records alone does not find damaged pages."""
    with killed(path) as append:
        append(1, 100_000)
        append(50)
    with contextlib.closing(sqlite3.connect(path)) as plain:
        plain.execute("PRAGMA wal_checkpoint(PASSIVE)")
        (count,) = plain.execute("PRAGMA page_count").fetchone()
    with killed(path) as append:
        append(1)
    data = bytearray(path.read_bytes())
    for page in range(count):  # the overflow chain of the large record: each page names the next
        at = page * 4096
        if data[at : at + 4] == (page + 2).to_bytes(4, "big") and not any(data[at + 4 : at + 4096]):
            data[at : at + 4] = (page + 3).to_bytes(4, "big")
            break
    else:
        pytest.fail("no overflow page")
    path.write_bytes(data)
    with pytest.raises(SetupError, match="damaged"):
        SqliteLog(path)


@pytest.mark.parametrize("records", [1, pytest.param(40, marks=pytest.mark.deep), 3000])
def test_what_a_crash_leaves_is_in_order(path: Path, records: int) -> None:
    """The file torn from its WAL at many places of a checkpoint is its own nevertheless."""
    with killed(path) as append:
        for _ in range(records // 40 or 1):
            append(min(records, 40))
    last = offsets(path)[-1]
    for _ in range(2):
        with killed(path) as append:
            last = append(30)
        assert offsets(path) == list(range(1, last + 1))
    assert last >= records


def test_a_log_after_a_trim_is_in_order(path: Path) -> None:
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", bytes(1000))] * 100)
        assert log.trim(80, 2**60) == 79
    with killed(path) as append:
        append(1)
    assert offsets(path) == list(range(80, 102))


def test_a_log_from_before_generations_gets_one(path: Path, tmp_path: Path) -> None:
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", b"x")] * 3)
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        plain.execute("DELETE FROM meta WHERE key = 'generation'")
        plain.execute("DELETE FROM sqlite_sequence WHERE name <> 'event'")
    with contextlib.closing(sqlite3.connect(path)) as plain:
        plain.execute("PRAGMA journal_mode = WAL")
        plain.execute("INSERT INTO event VALUES (4, 2, 'k', x'00')")
        plain.commit()
        for suffix in ("", "-wal"):  # as a crash leaves it
            shutil.copy(f"{path}{suffix}", f"{tmp_path}/crashed.db{suffix}")
    assert offsets(tmp_path / "crashed.db") == [1, 2, 3, 4]
    with contextlib.closing(sqlite3.connect(tmp_path / "crashed.db")) as plain:
        (generation,) = plain.execute("SELECT value FROM meta WHERE key = 'generation'").fetchone()
        assert ("generation:" + generation, 0) in plain.execute("SELECT * FROM sqlite_sequence").fetchall()
    assert offsets(tmp_path / "crashed.db") == [1, 2, 3, 4]


def test_only_the_first_who_opens_a_log_looks(path: Path) -> None:
    """If other processes append and checkpoint, the start proves nothing and does not wait."""
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", b"x")] * 10)
        with contextlib.closing(sqlite3.connect(path)) as plain, plain:
            plain.execute("DELETE FROM event WHERE offset = 5")
        SqliteLog(path).close()
    refused(path, "lacks the records from offset 5 to 5")


def test_a_log_that_is_being_proved_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteLog(path).close()
    with (path.parent / "events.db-lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        timer = threading.Timer(0.2, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        timer.start()
        SqliteLog(path).close()
        timer.join()
        fcntl.flock(lock, fcntl.LOCK_EX)
        monkeypatch.setattr("eventlog.sqlite.start.LockedLog.__init__.__kwdefaults__", {"wait_s": 0.05})
        with pytest.raises(UnavailableError, match=r"fuser -v .*events.db-lock"):
            SqliteLog(path)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR | 20 << 8])
def test_a_disk_that_is_full_at_the_start_may_have_room_later(tmp_path: Path, code: int) -> None:
    """A supervisor tries again after this error; a SetupError would end it for good. Found by torture."""
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode, failed.sqlite_errorname = code, "SQLITE_IOERR_SHMSIZE"
    with (
        pytest.raises(UnavailableError, match="disk is full"),
        sqlite_errors(tmp_path / "events.db", "open", at_start=True),
    ):
        raise failed
