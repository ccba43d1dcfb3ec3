# SPDX-License-Identifier: Apache-2.0
"""What only the SQLite log can get wrong: its file, its lock, its clock, and being killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dev.peers.routelake import ROOT
from dev.support.stamps import stamps_of
from eventlog import LogRecord, open_log
from eventlog.sqlite import log as sqlite
from eventlog.sqlite.file import wal_bytes
from eventlog.sqlite.log import SqliteLog
from ops.doctor.findings import Kind
from ops.doctor.log import examine_log
from schemas.errors import SetupError, UnavailableError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@contextlib.contextmanager
def appender(path: Path, name: str, count: int, payload_bytes: int = 100) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.eventlog.appender",
            f"sqlite://{path}",
            name,
            str(count),
            str(payload_bytes),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def all_records(log: SqliteLog) -> list[LogRecord]:
    return log.read(0, max_records=10**9, max_bytes=10**12)


def assert_gapless_and_monotonic(records: list[LogRecord]) -> None:
    assert [record.offset for record in records] == list(range(1, len(records) + 1))
    times = [record.event_time_ms for record in records]
    assert times == sorted(times)


def parse(output: str) -> dict[int, tuple[int, int]]:
    """number -> (offset, event time); the last line may be torn by a kill."""
    lines = [line for line in output.split("\n")[:-1] if line]
    return {int(number): (int(offset), int(time)) for number, offset, time in map(str.split, lines)}


def assert_acknowledged_is_there(name: str, acknowledged: dict[int, tuple[int, int]], records: list[LogRecord]) -> None:
    for number, (offset, event_time_ms) in acknowledged.items():
        record = records[offset - 1]
        assert (record.offset, record.event_time_ms, record.key) == (offset, event_time_ms, name)
        assert record.payload.startswith(f"{name}:{number}:".encode())


def test_several_processes_append_at_once(path: Path) -> None:
    """They also create the file at once."""
    names = [f"p{index}" for index in range(5)]
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(appender(path, name, 60)) for name in names]
        outputs = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(names)
    with contextlib.closing(SqliteLog(path)) as log:
        records = all_records(log)
    assert_gapless_and_monotonic(records)
    by_name = {name: parse(output) for name, output in zip(names, outputs, strict=True)}
    assert len(records) == sum(map(len, by_name.values()))
    for name, acknowledged in by_name.items():
        assert len(acknowledged) >= 60
        assert_acknowledged_is_there(name, acknowledged, records)
        offsets = [offset for _, (offset, _) in sorted(acknowledged.items())]
        assert offsets == sorted(offsets)


def test_sigkill_loses_nothing_acknowledged(request: pytest.FixtureRequest, path: Path) -> None:
    """Five lives of one appender, or twelve with --deep, while another goes on; nothing is lost, doubled or out of order."""
    rng = random.Random(3)
    killed: dict[str, dict[int, tuple[int, int]]] = {}
    with appender(path, "steady", 0, 3000) as steady:
        assert steady.stdout is not None
        for life in range(12 if request.config.getoption("--deep") else 5):
            name = f"life{life}"
            with appender(path, name, 0, rng.choice([10, 3_000, 200_000])) as process:
                assert process.stdout is not None
                lines = [process.stdout.readline() for _ in range(rng.randint(1, 40))]
                os.kill(process.pid, signal.SIGKILL)
                killed[name] = parse("".join(lines) + process.stdout.read())
        os.kill(steady.pid, signal.SIGKILL)
        killed["steady"] = parse(steady.stdout.read())
    with contextlib.closing(SqliteLog(path)) as log:
        records = all_records(log)
        assert_gapless_and_monotonic(records)
        for name, acknowledged in killed.items():
            assert acknowledged
            assert_acknowledged_is_there(name, acknowledged, records)
            # What was written but not acknowledged any more is whole and in order, too.
            mine = [record.payload.split(b":")[1] for record in records if record.key == name]
            assert mine == [str(number).encode() for number in range(len(mine))]
        assert log.append([("k", b"after")])[0].offset == len(records) + 1
    with contextlib.closing(sqlite3.connect(path)) as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_clock_that_jumps_back_never_lowers_event_time(path: Path) -> None:
    now = 1_700_000_000_000
    with contextlib.closing(SqliteLog(path, stamps=stamps_of(lambda: now))) as log:
        log.append([("k", b"1")])
        now -= 3_600_000
        (second,) = log.append([("k", b"2")])
        assert second.event_time_ms == 1_700_000_000_000
        now += 3_600_001
        (third,) = log.append([("k", b"3")])
        assert third.event_time_ms == 1_700_000_000_001


def test_the_clock_of_another_process_never_lowers_event_time_even_after_a_trim(path: Path) -> None:
    with contextlib.closing(SqliteLog(path, stamps=stamps_of(lambda: 2_000_000))) as fast:
        fast.append([("k", b"1"), ("k", b"2"), ("k", b"3")])
        assert fast.trim(100, 2**60) == 2
    with contextlib.closing(SqliteLog(path, stamps=stamps_of(lambda: 1_000_000))) as slow:
        assert slow.append([("k", b"4")])[0] == (4, 2_000_000)
        assert slow.end() == (5, 2_000_000)


def test_a_failing_clock_leaves_the_log_usable(path: Path) -> None:
    times = iter([1, None, 2])

    def clock() -> int:
        time = next(times)
        if time is None:
            raise RuntimeError("no time")
        return time

    with contextlib.closing(SqliteLog(path, stamps=stamps_of(clock))) as log:
        log.append([("k", b"1")])
        with pytest.raises(RuntimeError, match="no time"):
            log.append([("k", b"2")])
        assert log.append([("k", b"3")])[0] == (2, 2)


def test_reading_does_not_block_appending(path: Path) -> None:
    """Not even a reader that holds on to an old snapshot, nor a trim that is at work."""
    with (
        contextlib.closing(SqliteLog(path, busy_timeout_s=0)) as log,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        log.append([("k", b"x")] * 100)
        cursor = reader.execute("SELECT * FROM event")
        cursor.fetchone()
        log.append([("k", b"y")])
        assert len(cursor.fetchall()) == 99
        assert len(all_records(log)) == 101


def test_a_lock_held_too_long_is_unavailable(path: Path) -> None:
    with contextlib.closing(SqliteLog(path, busy_timeout_s=0.05)) as log:
        log.append([("k", b"1")])
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(UnavailableError, match="locked"):
                log.append([("k", b"2")])
            with pytest.raises(UnavailableError, match="locked"):
                SqliteLog(path, busy_timeout_s=0.05)
            assert len(log.read(0)) == 1
            other.execute("ROLLBACK")
        assert log.append([("k", b"3")])[0].offset == 2


def test_an_append_waits_for_another_process(path: Path) -> None:
    with (
        contextlib.closing(SqliteLog(path)) as log,
        contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.1, lambda: other.execute("ROLLBACK"))
        timer.start()
        assert log.append([("k", b"1")])[0].offset == 1
        timer.join()


def test_a_full_disk_is_unavailable_and_takes_nothing(path: Path) -> None:
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", b"1")])
        # SQLite's own page limit gives the very error of a full disk.
        (pages,) = log._writer.execute("PRAGMA page_count").fetchone()
        log._writer.execute(f"PRAGMA max_page_count = {pages + 10}")
        with pytest.raises(UnavailableError, match="disk is full"):
            log.append([("k", b"small"), ("k", bytes(1_000_000))])
        assert [record.payload for record in log.read(0)] == [b"1"]
        assert log.append([("k", b"small")])[0].offset == 2
        log._writer.execute("PRAGMA max_page_count = 1000000")
        assert log.append([("k", bytes(1_000_000))])[0].offset == 3


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_removed_takes_no_appends(path: Path, replaced: bool) -> None:
    """They would be gone with the process, acknowledged or not."""
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", b"1")])
        for file in path.parent.glob("log.db*"):
            file.unlink()
        if replaced:
            SqliteLog(path).close()
        with pytest.raises(UnavailableError, match="removed or replaced"):
            log.append([("k", b"2")])


def test_a_file_that_is_no_database_is_a_setup_error(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(SetupError, match="not a SQLite database"):
        SqliteLog(path)
    assert path.read_bytes() == b"not a database at all" * 1000


def test_an_empty_file_becomes_a_log(path: Path) -> None:
    path.touch()
    with contextlib.closing(SqliteLog(path)) as log:
        assert log.append([("k", b"1")])[0].offset == 1


def test_another_database_is_a_setup_error_and_stays_as_it_is(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE customer (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(SetupError, match="not a routelake event log"):
        SqliteLog(path)
    assert path.read_bytes() == before


def test_a_newer_format_is_a_setup_error_that_says_what_to_do(path: Path) -> None:
    SqliteLog(path).close()
    with contextlib.closing(sqlite3.connect(path)) as plain, plain:
        plain.execute("UPDATE meta SET value = '2' WHERE key = 'format_version'")
    with pytest.raises(SetupError, match=r"format 2; this routelake writes format 1.*newer"):
        SqliteLog(path)


def test_a_damaged_file_is_a_setup_error(path: Path) -> None:
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", bytes(4000))] * 50)
    data = bytearray(path.read_bytes())
    data[100:4096] = b"\xff" * 3996  # the first page keeps only its header
    path.write_bytes(data)
    with pytest.raises(SetupError, match=r"damaged|cannot open"):
        SqliteLog(path)


def test_a_missing_directory_is_a_setup_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"directory .*/none does not exist"):
        open_log(f"sqlite://{tmp_path}/none/log.db")


def test_a_directory_is_a_setup_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="that is a directory"):
        open_log(f"sqlite://{tmp_path}")


def test_a_path_is_taken_literally(tmp_path: Path) -> None:
    path = tmp_path / "a b%20c?mode=ro#d\N{SNOWMAN}.db"
    with contextlib.closing(open_log(f"sqlite://{path}")) as log:
        log.append([("k", b"1")])
    assert path.exists()


OPEN_WITHOUT_RIGHTS = """
import os, sys
from eventlog import open_log
from eventlog.sqlite import log as sqlite
from schemas.errors import SetupError
if os.getuid() == 0:  # root may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    open_log(sys.argv[1])
except SetupError as error:
    print(error)
"""


@pytest.mark.parametrize("existing", [False, True])
def test_a_read_only_directory_is_a_setup_error(existing: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "log.db"
        if existing:
            SqliteLog(path).close()
            path.chmod(0o666)
        Path(name).chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", OPEN_WITHOUT_RIGHTS, f"sqlite://{path}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert f"the directory {name} is read-only" in done.stdout
        Path(name).chmod(0o755)


def test_a_commit_is_synced_before_it_is_acknowledged(path: Path) -> None:
    with contextlib.closing(SqliteLog(path)) as log:
        assert log._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert log._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_trim_takes_small_steps(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By records and by bytes, so that appends get in between."""
    steps: list[int] = []
    delete = SqliteLog._delete_up_to

    def counted(log: SqliteLog, offset: int, writer: sqlite3.Connection) -> int:
        steps.append(delete(log, offset, writer))
        return steps[-1]

    monkeypatch.setattr(SqliteLog, "_delete_up_to", counted)
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", bytes(1_000_000))] * 10 + [("k", b"x")] * 2500)
        assert log.trim(2000, 2**60) == 1999
    assert sum(steps) == 1999
    assert steps[:2] == [4, 4]
    assert max(steps) <= 1000


def test_a_trim_of_many_records_is_bounded_and_later_trims_finish(path: Path) -> None:
    """As after a shorter retention. The fold calls a trim within a batch, and no epoch comes meanwhile."""
    many = 60_000
    with contextlib.closing(SqliteLog(path)) as log:
        log.append([("k", b"x")])
        with contextlib.closing(sqlite3.connect(path)) as other:
            numbers = "WITH RECURSIVE numbers (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
            other.execute(f"{numbers} INSERT INTO event SELECT n, 1000, 'k', x'78' FROM numbers", (many,))
            other.commit()
        deleted = [log.trim(many, 2**60)]
        assert 20_000 < deleted[0] <= 30_000, "more than a batch of the fold has, and not all"
        assert log.read(0, 1)[0].offset == deleted[0] + 1
        while deleted[-1]:
            deleted.append(log.trim(many, 2**60))
        assert sum(deleted) == many - 1
        assert [record.offset for record in log.read(0)] == [many]


def test_a_reader_that_keeps_a_snapshot_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its -wal cannot start again from the beginning: logged at a trim, and when it has doubled. doctor finds it, too."""
    path = tmp_path / "events.db"
    monkeypatch.setattr(sqlite, "LARGE_WAL_BYTES", 200_000)
    monkeypatch.setattr("ops.doctor.log.LARGE_WAL_BYTES", 200_000)
    with closing(SqliteLog(path)) as log, closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        log.append([("k", b"x" * 100)])
        assert wal_bytes(path) < 200_000

        def trim() -> list[str]:
            with capture_logs() as said:
                log.trim(0, 0)
            return [line["reason"] for line in said if "WAL file" in line["event"]]

        foreign.execute("BEGIN")
        foreign.execute("SELECT count(*) FROM event").fetchone()
        assert trim() == []
        grow(log, 400_000)
        (why,) = trim()
        assert f"fuser -v {path}" in why
        assert trim() == []
        (finding,) = (found for found in examine_log(path, 0).findings if found.kind is Kind.LOG_WAL)
        assert f"fuser -v {path}" in finding.what
        grow(log, wal_bytes(path) * 2)
        assert len(trim()) == 1


def grow(log: SqliteLog, wal: int) -> None:
    while wal_bytes(log._path) < wal:
        log.append([("k", b"x" * 50_000)])
