# SPDX-License-Identifier: Apache-2.0
"""The process that writes the event log: a real one, over a real log. It may die or hang, and ends with its gateway."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dev.peers.java import wait_until
from dev.peers.procfs import is_alive, status_fields
from dev.support import events as make
from dev.support.loops import on_a_loop
from dev.support.memory_log import MemoryLog
from dev.support.stamps import stamps_of
from eventlog import worker as log_worker
from eventlog.base import Appended, Entry, LogEnd, now_ms
from eventlog.sqlite.log import SqliteLog
from eventlog.worker import LogWorker, ResumingLog
from schemas.errors import BadRequestError, InDoubtError, SetupError, UnavailableError
from schemas.events import Clock, PutKvConfig, Resume, decode, encode, routing_key


def entry(number: int = 0) -> Entry:
    event = make.put("n", f"k{number}")
    return routing_key(event), encode(event)


def process_of(worker: LogWorker) -> subprocess.Popen[bytes]:
    assert worker._process is not None
    return worker._process


@asynccontextmanager
async def new(folder: Path, gap_s: float = 3600.0) -> AsyncIterator[LogWorker]:
    """One over a log in the folder, which is closed in the end."""
    worker = LogWorker(f"sqlite://{folder / 'events.db'}", "gw", gap_s)
    try:
        yield worker
    finally:
        await worker.close()


@asynccontextmanager
async def opened(folder: Path, gap_s: float = 3600.0) -> AsyncIterator[LogWorker]:
    """One that is open, and has written its first RESUME."""
    async with new(folder, gap_s) as worker:
        await worker.open()
        await worker.append([])
        yield worker


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends in its own time, however busy the machine is, is not killed."""
    monkeypatch.setattr(log_worker, "_CLOSE_S", 30.0)


def kinds(folder: Path) -> list[type]:
    with closing(SqliteLog(folder / "events.db")) as log:
        return [type(decode(record.payload)) for record in log.read(0)]


@pytest.mark.usefixtures("unhurried")
@on_a_loop
async def test_appended_events_are_written(tmp_path: Path) -> None:
    async with new(tmp_path) as worker:
        await worker.open()
        assert await worker.end() == LogEnd(1, None)
        (resume,) = await worker.append([])
        written = await worker.append([entry(number) for number in range(300)])
        assert [appended.offset for appended in written] == list(range(2, 302))
        assert all(
            isinstance(appended, Appended) and appended.event_time_ms >= resume.event_time_ms for appended in written
        )
        process = process_of(worker)
    assert process.returncode == 0
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        records = log.read(0)
    assert [record[:2] for record in records] == [tuple(appended) for appended in [resume, *written]]
    assert [(record.key, record.payload) for record in records[1:]] == [entry(number) for number in range(300)]
    async with new(tmp_path) as again:
        await again.open()
        assert await again.end() == LogEnd(302, written[-1].event_time_ms)
        await again.close()  # and once more


@on_a_loop
async def test_large_events(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        entries = [("kv", bytes([number]) * 8_000_000) for number in range(4)]
        assert len(await worker.append(entries)) == 4
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        assert [(record.key, record.payload) for record in log.read(2, max_bytes=64_000_000)] == entries


@on_a_loop
async def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"a letter to somebody " * 1000)
    async with new(tmp_path) as worker:
        with pytest.raises(SetupError, match="is not a SQLite database") as caught:
            await worker.open()
        assert caught.value.fields["path"] == str(tmp_path / "events.db")


@on_a_loop
async def test_the_end_of_a_process_that_opened_no_log_logs_nothing() -> None:
    """Kafka's client takes more than a second to end after a refused connection."""
    worker = LogWorker("kafka://127.0.0.1:1/topic", "gw", 3600.0)
    try:
        with pytest.raises(UnavailableError, match=r"127.0.0.1:1 refused the connection. Start Kafka, or correct"):
            await worker.open()
    finally:
        with capture_logs() as said:
            await worker.close()
    assert said == []
    assert process_of(worker).returncode is not None


@on_a_loop
async def test_a_process_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    for executable, why in (
        ("/bin/false", "exited while it opened the event log"),
        ("/no/such/python", "cannot be started"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "executable", executable)
            async with new(tmp_path) as worker:
                with pytest.raises(UnavailableError, match=why):
                    await worker.open()


@on_a_loop
async def test_a_log_that_is_damaged(tmp_path: Path) -> None:
    """It opens, but its end cannot be read: the operator hears what to do."""
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        log.append([entry(number) for number in range(1000)])
    content = bytearray((tmp_path / "events.db").read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    (tmp_path / "events.db").write_bytes(content)
    async with new(tmp_path) as worker:
        with pytest.raises(SetupError, match="the file is damaged. Restore it from a backup"):
            await worker.open()


@on_a_loop
async def test_what_the_log_refuses_keeps_its_kind(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        with pytest.raises(BadRequestError, match="larger than the event log takes") as caught:
            await worker.append([entry(), ("x" * 100_000, b"")])
        assert caught.value.fields["size_bytes"] == 100_000
        assert len(await worker.append([entry()])) == 1
        (tmp_path / "events.db").rename(tmp_path / "elsewhere.db")
        with pytest.raises(UnavailableError, match="was removed or replaced while in use"):
            await worker.append([entry()])
        (tmp_path / "elsewhere.db").rename(tmp_path / "events.db")
        assert len(await worker.append([entry()])) == 1


@on_a_loop
async def test_a_process_that_dies_between_writes_is_noticed(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        assert not worker.died.is_set()
        process_of(worker).kill()
        await worker.died.wait()
        with pytest.raises(UnavailableError):
            await worker.append([entry()])
    assert kinds(tmp_path) == [Resume]


@on_a_loop
async def test_a_process_that_dies_during_a_write_leaves_it_in_doubt(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        process_of(worker).send_signal(signal.SIGSTOP)
        append = asyncio.create_task(worker.append([entry(1)]))
        await asyncio.sleep(0)
        process_of(worker).kill()
        with pytest.raises(InDoubtError, match="exited during a write"):
            await append
        await worker.died.wait()
        with pytest.raises(UnavailableError):
            await worker.append([entry(2)])


@on_a_loop
async def test_an_append_that_nobody_waits_for_leaves_no_answer(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        process_of(worker).send_signal(signal.SIGSTOP)
        append = asyncio.create_task(worker.append([entry(1), entry(2)]))
        await asyncio.sleep(0)
        append.cancel()
        await asyncio.wait([append])
        process_of(worker).send_signal(signal.SIGCONT)
        assert [appended.offset for appended in await worker.append([entry(3)])] == [4]


@on_a_loop
async def test_an_unexpected_error_of_a_write_leaves_it_in_doubt(tmp_path: Path) -> None:
    """It may come after the records are durable."""
    async with opened(tmp_path) as worker:
        with pytest.raises(InDoubtError, match="event log: TypeError"):
            await worker.append(7)  # type: ignore[arg-type]
        assert len(await worker.append([entry()])) == 1


@on_a_loop
async def test_sigterm_does_not_end_the_writing_process(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        process_of(worker).send_signal(signal.SIGTERM)
        assert len(await worker.append([entry()])) == 1


@on_a_loop
async def test_a_process_that_hangs_is_killed_at_the_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        process = process_of(worker)
        process.send_signal(signal.SIGSTOP)
        append = asyncio.create_task(worker.append([entry()]))
        await asyncio.sleep(0)
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(InDoubtError):
        await append
    assert not worker.died.is_set()


@pytest.mark.usefixtures("unhurried")
@on_a_loop
async def test_a_started_append_is_written_before_the_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        process = process_of(worker)
        with closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            append = asyncio.create_task(worker.append([entry()]))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.1, other.execute, "ROLLBACK")
            await worker.close()
        assert [appended.offset for appended in await append] == [2]
    assert process.returncode == 0
    with pytest.raises(UnavailableError, match="stopping"):
        await worker.append([entry()])


@on_a_loop
async def test_a_lock_that_somebody_holds_delays_nobody_but_appends(tmp_path: Path) -> None:
    async with opened(tmp_path) as worker:
        with closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            append = asyncio.create_task(worker.append([entry()]))
            for _ in range(100):
                await asyncio.sleep(0.001)
            assert not append.done()
            other.execute("ROLLBACK")
            assert len(await append) == 1


def test_a_silence_is_followed_by_a_resume() -> None:
    time_ms = 1_800_000_000_000

    def clock() -> int:
        return time_ms

    log = MemoryLog(clock)
    appends = ResumingLog(log, "gw", gap_s=3600.0)
    appends.append([])
    appends.append([entry()])
    time_ms += 3_600_000
    assert len(appends.append([entry()])) == 1
    time_ms += 3_600_001
    resume, appended = appends.append([entry()])
    assert (resume.offset, appended.offset) == (4, 5)
    records = log.read(0)
    assert [type(decode(record.payload)) for record in records] == [Resume, *[PutKvConfig] * 2, Resume, PutKvConfig]


def test_an_append_that_fails_ends_no_silence() -> None:
    log = MemoryLog()
    appends = ResumingLog(log, "gw", gap_s=100.0)
    with pytest.raises(BadRequestError):
        appends.append([("x" * 100_000, b"")])
    assert len(appends.append([entry()])) == 2


@on_a_loop
async def test_a_process_that_was_stopped_knows_it(tmp_path: Path) -> None:
    async with opened(tmp_path, gap_s=0.5) as worker:
        process = process_of(worker)
        process.send_signal(signal.SIGSTOP)
        append = asyncio.create_task(worker.append([(routing_key(make.clock()), encode(make.clock()))]))
        await asyncio.sleep(0.6)
        process.send_signal(signal.SIGCONT)
        assert len(await append) == 2
    assert kinds(tmp_path) == [Resume, Resume, Clock]


def test_a_hang_behind_the_stamp_is_silence() -> None:
    class SlowLog(MemoryLog):
        def append(self, entries: Sequence[Entry], not_after_ms: int | None = None) -> list[Appended]:
            written = super().append(entries, not_after_ms)
            time.sleep(0.2)
            return written

    appends = ResumingLog(SlowLog(), "gw", gap_s=0.1)
    assert len(appends.append([entry()])) == 2
    assert len(appends.append([entry()])) == 2


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_clock_that_is_set_behind_the_look_at_it_is_silence(tmp_path: Path, kind: str) -> None:
    """Found by torture: the event would be an hour later than the one before it, and every broker expired."""
    ahead_ms = [0]

    def clock() -> int:
        return now_ms() + ahead_ms[0]

    log = MemoryLog(clock) if kind == "memory" else SqliteLog(tmp_path / "events.db", stamps=stamps_of(clock))
    with closing(log):
        appends = ResumingLog(log, "gw", gap_s=10.0)
        assert len(appends.append([entry()])) == 2
        ahead_ms[0] = 3_600_000
        written = appends.append([entry() for _ in range(200)])
        assert [appended.offset for appended in written] == list(range(3, 204))
        records = log.read(0)
        assert [type(decode(record.payload)) for record in records[:4]] == [Resume, PutKvConfig, Resume, PutKvConfig]
        ahead_ms[0] = 0
        assert len(appends.append([entry()])) == 1


_OWNER = """
import asyncio, sys
from pathlib import Path
from tests.eventlog.test_worker import entry, opened, process_of
async def main():
    async with opened(Path(sys.argv[1])) as worker:
        print(process_of(worker).pid, flush=True)
        await asyncio.to_thread(input)
        await worker.append([entry()])
asyncio.run(main())
"""


def test_it_writes_nothing_for_a_gateway_that_was_killed(tmp_path: Path) -> None:
    """Not even the end that it had before: another gateway may have acknowledged an event since."""
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd()
    )
    with owner, closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as other:
        assert owner.stdout is not None
        assert owner.stdin is not None
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        other.execute("BEGIN IMMEDIATE")
        before = _waits(pid)
        owner.stdin.write(b"\n")
        owner.stdin.flush()
        wait_until(lambda: _waits(pid) > before + 10, 60, "the append to look for the lock again and again", 0.001)
        owner.kill()
        wait_until(lambda: not is_alive(pid), 60, "the process to end, before it gets the lock")
        other.execute("ROLLBACK")
    assert kinds(tmp_path) == [Resume]


def _waits(pid: int) -> int:
    """How often it has waited so far."""
    return int(status_fields(pid)["voluntary_ctxt_switches"])
