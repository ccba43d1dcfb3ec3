# SPDX-License-Identifier: Apache-2.0
"""A log moves whole or not at all: docs/adr/0018."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dev.support.command import process
from dev.support.stamps import stamps_of
from eventlog import LogRecord, open_log
from eventlog.copy import Moved, move
from eventlog.open import close_readers, open_reader, open_tail, records_between
from eventlog.sqlite.log import SqliteLog
from eventlog.tail import BatchEnd
from ops.backup import take
from schemas.errors import SetupError, UnavailableError

pytestmark = pytest.mark.xdist_group("kafka")

ENTRIES = [(f"b:{number}", bytes([number]) * number) for number in range(1, 60)]


class Topic:
    """What a Kafka keeps, for `MemoryTarget`."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.is_log = False
        self.writes_left = 1_000


class MemoryTarget:
    """A `Target`. Its Kafka may become unavailable after some writes."""

    name = "kafka://k:9092/t.from-11"

    def __init__(self, topic: Topic, first: int) -> None:
        self._topic = topic
        self._first = first

    def end(self) -> int:
        return self._first + len(self._topic.records)

    def between(self, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
        yield self._topic.records[start - self._first : end - self._first]

    def write(self, records: Sequence[LogRecord]) -> None:
        if not self._topic.writes_left:
            raise UnavailableError("Kafka is away")
        self._topic.writes_left -= 1
        self._topic.records += records

    def finish(self) -> None:
        self._topic.is_log = True

    def close(self) -> None:
        pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with the offsets 11 to 59: it was trimmed."""
    path = tmp_path / "events.db"
    times = iter(range(1_000, 2_000, 7))
    with closing(SqliteLog(path, stamps=stamps_of(lambda: next(times)))) as log:
        for entry in ENTRIES:
            log.append([entry])
        assert log.trim(11, 10_000) == 10
    return path


def records_of(path: Path) -> list[LogRecord]:
    with closing(SqliteLog(path)) as log:
        return log.read(0)


def moved(path: Path, topic: Topic) -> Moved:
    return move(path, lambda first: MemoryTarget(topic, first), lambda _: None)


def test_offsets_times_keys_and_payloads(path: Path) -> None:
    before, topic = records_of(path), Topic()
    done = moved(path, topic)
    assert topic.records == before
    assert [record.offset for record in topic.records] == list(range(11, 60))
    assert topic.is_log
    assert (done.extent.first, done.extent.end, done.copied, done.to) == (11, 60, 49, MemoryTarget.name)


def test_the_old_log_is_refused_from_then_on(path: Path) -> None:
    topic = Topic()
    moved(path, topic)
    with pytest.raises(SetupError, match=rf"was moved to {MemoryTarget.name}. Start with --event-log"):
        open_log(f"sqlite://{path}")
    with pytest.raises(SetupError, match="was moved to"):
        open_reader(f"sqlite://{path}")  # history verify's
    with pytest.raises(SetupError, match="was moved to"):
        take._copy_log(path, path.with_name("backup.db"))
    assert moved(path, topic).copied == 0  # once more changes nothing
    assert len(topic.records) == 49


def test_kafka_goes_away_meanwhile(path: Path) -> None:
    before, topic = records_of(path), Topic()
    topic.writes_left = 0
    with pytest.raises(UnavailableError):
        moved(path, topic)
    assert records_of(path) == before  # still the log
    topic.records, topic.writes_left = list(before[:20]), 1_000
    assert moved(path, topic).copied == 29
    assert topic.records == before
    assert topic.is_log


def test_a_copy_interrupted_before_its_end_can_be_repeated(path: Path) -> None:
    topic = Topic()

    class Cut(MemoryTarget):
        def finish(self) -> None:
            raise UnavailableError("Kafka is away")

    with pytest.raises(UnavailableError):
        move(path, lambda first: Cut(topic, first), lambda _: None)
    assert not topic.is_log
    assert moved(path, topic).copied == 0
    assert topic.is_log


@pytest.mark.parametrize(
    "spoil",
    [
        lambda record: record._replace(payload=b"other"),
        lambda record: record._replace(event_time_ms=record.event_time_ms + 1),
        lambda record: record._replace(key="b:x"),
    ],
)
def test_a_topic_that_holds_something_else(path: Path, spoil: Callable[[LogRecord], LogRecord]) -> None:
    before, topic = records_of(path), Topic()
    topic.records = [*before[:5], spoil(before[5])]
    with pytest.raises(SetupError, match="another record at offset 16"):
        moved(path, topic)
    assert len(topic.records) == 6  # nothing was added to what may be another system's topic
    topic.records = [*before, before[-1]]
    with pytest.raises(SetupError, match="not a copy of this event log"):
        moved(path, topic)
    assert records_of(path) == before


def test_a_log_that_is_in_use(path: Path) -> None:
    with closing(SqliteLog(path)), pytest.raises(SetupError, match="is open. Stop gateways and fold"):
        moved(path, Topic())


def test_a_missing_event_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no event log"):
        moved(tmp_path / "events.db", Topic())
    assert not list(tmp_path.iterdir())


def test_a_data_directory_whose_tables_are_at_a_url_has_no_lake(path: Path) -> None:
    done = process("event-log", "copy", "--data-dir", path.parent, "--to", "kafka://127.0.0.1:1/events")
    assert (done.returncode, "127.0.0.1:1 refused the connection" in done.stderr) == (1, True), done.stderr


@pytest.mark.jvm
def test_into_a_real_kafka(path: Path, new_topic: Callable[[], str]) -> None:
    """The same records, then new ones with later offsets and Kafka's times. Half a copy is not used as a log."""
    from eventlog.kafka.copy import KafkaTarget

    before, place = records_of(path), new_topic()
    with closing(KafkaTarget(place, 11)) as half:
        half.write(before[:20])
        with pytest.raises(SetupError, match="settings that an event log cannot use"):
            open_log(half.name)
    done = move(path, lambda first: KafkaTarget(place, first), lambda _: None)
    assert (done.to, done.copied) == (f"{place}.from-11", 29)
    with closing(open_log(done.to)) as log:
        assert log.read(0) == before
        assert log.end() == (60, before[-1].event_time_ms)
        (appended,) = log.append([("kv", b"new")])
        assert appended.offset == 60
        assert appended.event_time_ms > before[-1].event_time_ms
        assert log.trim(31, 2**60) == 20
        assert log.read(0)[0] == before[20]
    with closing(open_tail(done.to)) as tail:
        assert tail.bounded_end(BatchEnd(31, 0), 1_000, 1 << 20).offset == 61
    with contextlib.ExitStack() as stack:
        stack.callback(close_readers, done.to)
        assert [record for records in records_between(done.to, 31, 60) for record in records] == before[20:]
