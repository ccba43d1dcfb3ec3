# SPDX-License-Identifier: Apache-2.0
"""Events go down in groups: what comes together, the log's time kept honest, nothing lost that was accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dev.support import events as make
from dev.support.loops import eventually, on_a_loop
from dev.support.memory_log import MemoryLog
from eventlog import group_commit
from eventlog.base import NO_LIMITS, Appended, Entry, Limits, LogEnd, LogRecord, now_ms
from eventlog.group_commit import GroupCommit
from eventlog.worker import ResumingLog
from schemas.errors import BadRequestError, RoutelakeError, UnavailableError
from schemas.events import AnyEvent, Clock, PutKvConfig, Resume, decode, encode, routing_key


class Log:
    """A log client that counts, can be held up, and can fail."""

    late_after_s: float | None = None

    def __init__(self) -> None:
        self.memory = MemoryLog()
        self.limits = NO_LIMITS
        self._appends = ResumingLog(self.memory, "gw", 3600.0)
        self.groups: list[int] = []
        self.fed: list[LogRecord] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def open(self) -> str:
        return "log"

    async def end(self) -> LogEnd:
        return self.memory.end()

    async def append(self, entries: Sequence[Entry]) -> list[Appended]:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        written = self._appends.append(entries)
        self.groups.append(len(written))
        return written

    async def close(self) -> None:
        self.memory.close()

    def events(self) -> list[AnyEvent]:
        return [decode(record.payload) for record in self.memory.read(0)]

    def clocks(self) -> int:
        return sum(isinstance(event, Clock) for event in self.events())


async def start(log: Log, clock_interval_s: float = 3600.0, max_queued_bytes: int = 1 << 28) -> GroupCommit:
    writer = GroupCommit(
        log, "gw", clock_interval_s=clock_interval_s, on_written=log.fed.extend, max_queued_bytes=max_queued_bytes
    )
    await writer.start()
    return writer


def submit(writer: GroupCommit, number: int, event: AnyEvent | None = None) -> asyncio.Future[Appended]:
    event = event or make.put("n", f"k{number}")
    return writer.submit(routing_key(event), encode(event))


@pytest.fixture
def log() -> Log:
    return Log()


@on_a_loop
async def test_it_begins_with_a_resume(log: Log) -> None:
    log.memory.append([("kv", encode(make.put("n", "k")))])
    writer = GroupCommit(log, "gw", clock_interval_s=3600.0, on_written=log.fed.extend)
    assert await writer.start() == 2
    await writer.stop()
    assert isinstance(log.events()[1], Resume)


@on_a_loop
async def test_what_comes_together_goes_down_together(log: Log) -> None:
    writer = await start(log)
    answers = [submit(writer, number) for number in range(100)]
    assert [appended.offset for appended in await asyncio.gather(*answers)] == list(range(2, 102))
    assert log.groups == [1, 100]
    log.gate.clear()
    first = submit(writer, 100)
    await asyncio.sleep(0)
    answers = [submit(writer, number) for number in range(101, 200)]
    log.gate.set()
    assert [appended.offset for appended in await asyncio.gather(first, *answers)] == list(range(102, 202))
    assert log.groups == [1, 100, 1, 99]
    await writer.stop()


@on_a_loop
async def test_the_first_after_a_resume_that_was_due_gets_its_own_offset(log: Log) -> None:
    writer = await start(log)
    log._appends._last = None
    assert (await submit(writer, 1)).offset == 3
    assert [type(event) for event in log.events()] == [Resume, Resume, PutKvConfig]
    await writer.stop()


@on_a_loop
async def test_heartbeats_gather_unless_many_or_with_something_else(log: Log) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "_REST_S", (3600.0, 3600.0))
        many = group_commit._MANY
        writer = await start(log)
        heartbeat = make.heartbeat()
        await submit(writer, 0, heartbeat)
        few = [submit(writer, number, heartbeat) for number in range(1, many)]
        await asyncio.sleep(0.02)
        assert log.groups == [1, 1], "the RESUME, and the first one, which nothing had come before"
        await asyncio.gather(*few, submit(writer, many, heartbeat))
        assert log.groups == [1, 1, many]
        last = submit(writer, many + 1, heartbeat)
        await asyncio.sleep(0.02)
        assert log.groups == [1, 1, many]
        await asyncio.gather(last, submit(writer, many + 2))
        assert log.groups == [1, 1, many, 2], "a change waits for nothing"
        last = submit(writer, many + 3, heartbeat)
        await writer.stop()
        assert log.groups == [1, 1, many, 2, 1], "neither does a stop"
        assert last.result().offset == many + 5


@on_a_loop
async def test_heartbeats_gather_for_a_moment(log: Log) -> None:
    writer = await start(log)
    await submit(writer, 0, make.heartbeat())
    await asyncio.gather(*(submit(writer, number, make.heartbeat()) for number in range(1, 5)))
    assert log.groups == [1, 1, 4]
    await writer.stop()


@on_a_loop
async def test_the_clock_ticks_whoever_talks(log: Log) -> None:
    """A silent broker expires in time although others send heartbeats without a pause."""
    writer = await start(log, clock_interval_s=0.02)
    number = 0
    while log.clocks() < 3:
        number += 1
        await submit(writer, number)
    await eventually(lambda: log.clocks() >= 6)
    await writer.stop()
    assert sum(isinstance(event, PutKvConfig) for event in log.events()) == number


@on_a_loop
async def test_heartbeats_that_gather_go_down_with_the_clock(log: Log) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "_REST_S", (3600.0, 3600.0))
        writer = await start(log, clock_interval_s=0.05)
        await submit(writer, 0, make.heartbeat())
        await submit(writer, 1, make.heartbeat())
    await writer.stop()
    assert log.clocks() >= 1


@on_a_loop
async def test_a_log_that_fails_refuses_and_comes_back(log: Log) -> None:
    writer = await start(log)
    log.error = UnavailableError("disk full")
    with pytest.raises(UnavailableError, match="disk full"):
        await submit(writer, 1)
    assert writer.failing
    log.error = None
    assert isinstance(await submit(writer, 2), Appended)
    assert not writer.failing
    await writer.stop()


@on_a_loop
async def test_a_clock_that_a_failing_log_refused_goes_with_the_next(log: Log) -> None:
    writer = await start(log, clock_interval_s=0.2)
    writer._clock_interval_s = 3600.0  # of the one after the first
    log.error = UnavailableError("disk full")
    await eventually(lambda: writer.failing)
    log.error = None
    await submit(writer, 1)
    await eventually(lambda: log.clocks() == 1)
    await writer.stop()


@on_a_loop
async def test_a_log_that_does_not_answer_is_failing(log: Log) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "_LATE_S", 0.01)
        writer = await start(log)
        log.gate.clear()
        answer = submit(writer, 1)
        await eventually(lambda: writer.failing)
        log.gate.set()
        await answer
        assert not writer.failing
    await writer.stop()


@on_a_loop
async def test_whatever_is_raised_is_an_answer(log: Log) -> None:
    writer = await start(log)
    log.error = OSError("no memory for a process")
    with pytest.raises(UnavailableError, match="event log: no memory for a process"):
        await submit(writer, 1)
    log.error = None
    assert isinstance(await submit(writer, 2), Appended)
    await writer.stop()


@on_a_loop
async def test_one_bad_event_does_not_take_its_neighbours_along(log: Log) -> None:
    writer = await start(log)
    log.limits = Limits(20_000, ": hint")
    answers = [submit(writer, number) for number in range(500)]
    for key, payload in (("x" * 100_000, b""), ("kv", bytes(20_001)), ("\ud800", b"")):
        with pytest.raises(BadRequestError):
            writer.submit(key, payload)
    answers += [submit(writer, number) for number in range(500, 1_000)]
    await asyncio.gather(*answers)
    assert not writer.failing
    assert sum(log.groups) == 1_001
    assert len(log.groups) < 50
    await writer.stop()


@on_a_loop
async def test_a_group_is_no_larger_than_the_log_takes_at_once(log: Log) -> None:
    """Else Kafka takes its parts at different times, and a RESUME stands in front of the first alone."""
    log.limits = Limits(20_000)
    writer = await start(log)
    log.gate.clear()
    sizes = [9_000, 9_000, 9_000, 20_000 - 2, 100, 100]
    answers = [writer.submit("kv", bytes(size)) for size in sizes]
    log.gate.set()
    await asyncio.gather(*answers)
    await writer.stop()
    assert log.groups == [1, 2, 1, 1, 2]


@on_a_loop
async def test_who_does_not_wait_any_more_is_written_nevertheless(log: Log) -> None:
    writer = await start(log)
    gone, other = submit(writer, 0), submit(writer, 1)
    gone.cancel()
    assert (await other).offset == 3
    log.error = UnavailableError("disk full")
    gone, other = submit(writer, 2), submit(writer, 3)
    gone.cancel()
    with pytest.raises(RoutelakeError):
        await other
    await writer.stop()


@on_a_loop
async def test_the_queue_is_bounded(log: Log) -> None:
    writer = await start(log, max_queued_bytes=1000)
    log.gate.clear()
    with pytest.raises(UnavailableError, match="the event log is overloaded; try again"):
        for _ in range(100):
            writer.submit("kv", b"x" * 100)
    log.gate.set()
    await writer.stop()


@on_a_loop
async def test_a_stop_writes_what_was_accepted(log: Log) -> None:
    writer = await start(log)
    log.gate.clear()
    answers = [submit(writer, number) for number in range(10)]
    asyncio.get_running_loop().call_later(0.05, log.gate.set)
    await writer.stop(30)
    assert all(answer.done() for answer in answers)
    with pytest.raises(UnavailableError, match="stopping"):
        submit(writer, 11)


@on_a_loop
async def test_a_stop_does_not_wait_for_ever(log: Log) -> None:
    writer = await start(log)
    log.gate.clear()
    answer = submit(writer, 0)
    await writer.stop(0.05)
    assert not answer.done()
    log.gate.set()
    assert (await answer).offset == 2


@on_a_loop
async def test_what_a_log_takes_late_is_no_silence(log: Log) -> None:
    """Kafka stands still with what it was sent, goes on, and stamps it then."""
    ahead_ms = [0]
    log.late_after_s = 10.0
    log.memory._clock = lambda: now_ms() + ahead_ms[0]
    writer = await start(log)
    assert (await submit(writer, 1)).offset == 3
    log.gate.clear()
    late = submit(writer, 2)
    await asyncio.sleep(0)
    sent_ms = now_ms()
    ahead_ms[0] = 60_000
    log.gate.set()
    assert (await late).offset == 5
    await writer.stop()
    in_time, too_late = (event for event in log.events() if isinstance(event, Resume) and event.after_ms is not None)
    times = [record.event_time_ms for record in log.memory.read(0)]
    assert in_time.after_ms is not None and times[1] <= in_time.after_ms
    assert too_late.after_ms is not None and sent_ms < too_late.after_ms < times[3]
    assert [record.offset for record in log.fed] == [2, 3, 4, 5]
