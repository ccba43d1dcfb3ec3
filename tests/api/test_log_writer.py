"""One thread writes the log: groups what comes together, keeps the log's time honest, loses nothing it accepted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from api import log_writer
from api.log_writer import LogWriter
from pipelines.log.base import Appended
from pipelines.log.memory import MemoryLog
from schemas.errors import BadRequestError, RoutelakeError, UnavailableError
from schemas.events import AnyEvent, Clock, PutKvConfig, Resume, decode, encode, routing_key
from tests.fold import events as make
from tests.support.java import wait_until


class Log(MemoryLog):
    """Counts appends, can be held up, and can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: RoutelakeError | None = None

    def append(self, entries: Sequence[tuple[str, bytes]]) -> list[Appended]:
        self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.groups.append(len(entries))
        return super().append(entries)

    def events(self) -> list[AnyEvent]:
        return [decode(record.payload) for record in self.read(0)]


class Answers:
    """What became of each submitted event, by its number."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self.got: dict[int, Appended | RoutelakeError] = {}

    def submit(self, number: int, event: AnyEvent | None = None) -> None:
        event = event or make.put("n", f"k{number}")
        self._writer.submit(routing_key(event), encode(event), lambda result: self.got.__setitem__(number, result))

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.got) >= count, 10, f"{count} answers", 0.002)


@pytest.fixture
def log() -> Log:
    return Log()


def start(log: Log, clock_interval_s: float = 3600.0, gap_s: float = 3600.0, **settings: int) -> LogWriter:
    writer = LogWriter(
        log, "gw", clock_interval_s=clock_interval_s, gap_s=gap_s, deliver=lambda tell: tell(), **settings
    )
    writer.start()
    return writer


def test_it_begins_with_a_resume(log: Log) -> None:
    log.append([("kv", encode(make.put("n", "k")))])
    writer = start(log)
    writer.stop()
    resume = log.events()[1]
    assert isinstance(resume, Resume)
    assert resume.previous_event_time_ms == log.read(0)[0].event_time_ms


def test_what_comes_together_goes_down_together(log: Log) -> None:
    writer = start(log)
    log.gate.clear()
    answers = Answers(writer)
    for number in range(100):
        answers.submit(number)
    log.gate.set()
    answers.wait(100)
    writer.stop()
    offsets = [answers.got[number].offset for number in range(100)]  # type: ignore[union-attr]
    assert offsets == list(range(2, 102))
    assert len(log.groups) <= 1 + 2  # the RESUME, perhaps the first one alone, the others


def test_heartbeats_gather_unless_many_or_with_something_else(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "_REST_S", (3600.0, 3600.0))
    writer = start(log)
    answers = Answers(writer)
    heartbeat = make.heartbeat()
    answers.submit(0, heartbeat)
    answers.wait(1)
    for number in range(1, 64):
        answers.submit(number, heartbeat)
    assert log.groups == [1, 1], "the RESUME, and the first one, which nothing had come before"
    answers.submit(64, heartbeat)
    answers.wait(65)
    answers.submit(65, heartbeat)
    assert log.groups == [1, 1, 64]
    answers.submit(66)
    answers.wait(67)
    assert log.groups == [1, 1, 64, 2], "a change waits for nothing"
    answers.submit(67, heartbeat)
    writer.stop()
    assert log.groups == [1, 1, 64, 2, 1], "neither does a stop"


def test_heartbeats_gather_for_a_moment(log: Log) -> None:
    writer = start(log)
    answers = Answers(writer)
    for number in range(5):
        answers.submit(number, make.heartbeat())
    answers.wait(5)
    writer.stop()
    assert len(log.groups) <= 3


def test_the_clock_ticks_whoever_talks(log: Log) -> None:
    """A silent broker expires in time although others send heartbeats without a pause."""
    writer = start(log, clock_interval_s=0.02)
    answers = Answers(writer)
    number = 0

    def ticked() -> bool:
        nonlocal number
        number += 1
        answers.submit(number)
        return sum(isinstance(event, Clock) for event in log.events()) >= 3

    wait_until(ticked, 10, "three ticks", 0.001)
    wait_until(lambda: sum(isinstance(event, Clock) for event in log.events()) >= 6, 10, "ticks in silence", 0.002)
    writer.stop()
    assert sum(isinstance(event, PutKvConfig) for event in log.events()) == number


def test_who_waits_gets_a_clock_and_many_get_few(log: Log) -> None:
    writer = start(log)

    def clocks() -> int:
        return sum(isinstance(event, Clock) for event in log.events())

    writer.nudge()
    wait_until(lambda: clocks() == 1, 10, "a tick", 0.002)
    began = time.monotonic()
    while clocks() < 3:
        writer.nudge()
        time.sleep(0.001)
    assert time.monotonic() - began > 0.3
    writer.stop()


def test_a_long_pause_is_a_resume(log: Log) -> None:
    writer = start(log, gap_s=0.05)
    answers = Answers(writer)
    threading.Event().wait(0.1)
    answers.submit(1)
    answers.wait(1)
    writer.stop()
    assert [type(event) for event in log.events()] == [Resume, Resume, PutKvConfig]


def test_a_log_that_fails_refuses_and_comes_back(log: Log) -> None:
    writer = start(log)
    answers = Answers(writer)
    log.error = UnavailableError("disk full")
    answers.submit(1)
    answers.wait(1)
    assert isinstance(answers.got[1], UnavailableError)
    assert writer.failing
    log.error = None
    answers.submit(2)
    answers.wait(2)
    assert isinstance(answers.got[2], Appended)
    assert not writer.failing
    writer.stop()


def test_one_bad_event_does_not_take_its_neighbours_along(log: Log) -> None:
    writer = start(log)
    answers = Answers(writer)
    log.gate.clear()
    answers.submit(0)
    answers.submit(1)
    writer.submit("x" * 100_000, b"too long a key", lambda result: answers.got.__setitem__(2, result))
    answers.submit(3)
    log.gate.set()
    answers.wait(4)
    writer.stop()
    assert [isinstance(answers.got[number], Appended) for number in range(4)] == [True, True, False, True]
    assert isinstance(answers.got[2], BadRequestError)


def test_the_queue_is_bounded(log: Log) -> None:
    writer = start(log, max_queued_bytes=1000)
    log.gate.clear()
    with pytest.raises(UnavailableError, match="does not keep up"):
        for _ in range(100):
            writer.submit("kv", b"x" * 100, lambda result: None)
    log.gate.set()
    writer.stop()


def test_a_stop_writes_what_was_accepted(log: Log) -> None:
    writer = start(log)
    log.gate.clear()
    answers = Answers(writer)
    for number in range(10):
        answers.submit(number)
    threading.Timer(0.05, log.gate.set).start()
    writer.stop()
    assert len(answers.got) == 10
    with pytest.raises(UnavailableError, match="stopping"):
        answers.submit(11)
