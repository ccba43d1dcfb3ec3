# SPDX-License-Identifier: Apache-2.0
"""What `EventLog` promises, over every backend."""

from __future__ import annotations

import random
import threading
import time

import pytest

from eventlog import MAX_KEY_BYTES, MAX_PAYLOAD_BYTES, Appended, EventLog, LogEnd, LogRecord, open_log
from schemas.errors import BadRequestError, SetupError, UnavailableError
from tests.eventlog.backends import Backend

pytestmark = pytest.mark.xdist_group("kafka")


def append_each(log: EventLog, count: int, prefix: str = "p") -> list[Appended]:
    """One append per record."""
    return [log.append([("k", f"{prefix}{index}".encode())])[0] for index in range(count)]


def assert_ordered(records: list[LogRecord] | list[Appended]) -> None:
    offsets = [record.offset for record in records]
    times = [record.event_time_ms for record in records]
    assert offsets == sorted(set(offsets))
    assert times == sorted(times)


def test_a_new_log_is_empty(log: EventLog) -> None:
    end = log.end()
    assert end.last_event_time_ms is None
    assert log.read(0) == []
    assert log.read(end.next_offset) == []
    assert log.append([]) == []
    assert log.end() == end


def test_reads_back_what_was_appended(log: EventLog) -> None:
    entries = [
        ("b:broker-a", b"\x01payload"),
        ("*", b""),
        ("kv", b"\x00\xff" * 1000),
        ("b:\N{SNOWMAN} \U0001f680 \x00 '\"", b"x"),
        ("", b"\n"),
    ]
    appended = log.append(entries)
    assert_ordered(appended)
    assert log.read(0) == [
        LogRecord(at.offset, at.event_time_ms, key, payload)
        for at, (key, payload) in zip(appended, entries, strict=True)
    ]


def test_appends_follow_one_another(log: EventLog) -> None:
    first = log.append([("a", b"1"), ("a", b"2")])
    second = log.append([("a", b"3")])
    assert_ordered(first + second)
    assert log.end() == LogEnd(second[-1].offset + 1, second[-1].event_time_ms)


def test_the_second_append_begins_at_the_end_of_the_first(log: EventLog) -> None:
    log.append([("a", b"1")])
    end = log.end()
    (appended,) = log.append([("a", b"2")])
    assert appended.offset >= end.next_offset
    assert [record.payload for record in log.read(end.next_offset)] == [b"2"]


def test_event_time_is_the_time_of_receipt(log: EventLog) -> None:
    before = time.time_ns() // 1_000_000
    (appended,) = log.append([("a", b"1")])
    after = time.time_ns() // 1_000_000
    assert before <= appended.event_time_ms <= after


def test_reads_from_any_offset(log: EventLog) -> None:
    appended = append_each(log, 5)
    for index, at in enumerate(appended):
        assert [record.payload for record in log.read(at.offset)] == [f"p{later}".encode() for later in range(index, 5)]
    assert log.read(log.end().next_offset) == []
    assert log.read(log.end().next_offset + 1000) == []


def test_max_records_bounds_a_read(log: EventLog) -> None:
    appended = log.append([("k", bytes([index])) for index in range(10)])
    assert [record.payload for record in log.read(0, max_records=1)] == [b"\x00"]
    assert [record.payload for record in log.read(appended[3].offset, max_records=3)] == [b"\x03", b"\x04", b"\x05"]


def test_max_bytes_bounds_a_read_but_lets_one_record_through(log: EventLog) -> None:
    log.append([("k", b"x" * 100), ("k", b"x" * 100), ("k", b"x" * 1000), ("k", b"x")])
    assert len(log.read(0, max_bytes=1)) == 1
    assert len(log.read(0, max_bytes=199)) == 1
    assert len(log.read(0, max_bytes=200)) == 2
    assert len(log.read(0, max_bytes=1200)) == 3
    third = log.read(0)[2]
    assert [len(record.payload) for record in log.read(third.offset, max_bytes=500)] == [1000]


def test_a_reader_in_pages_sees_every_record_once(log: EventLog) -> None:
    log.append([("k", str(index).encode() * (index % 7)) for index in range(500)])
    rng = random.Random(7)
    offset, seen = 0, []
    while page := log.read(offset, max_records=rng.randint(1, 60), max_bytes=rng.randint(1, 900)):
        seen += page
        offset = page[-1].offset + 1
    assert seen == log.read(0)
    assert len(seen) == 500


def test_another_opening_sees_the_same_log(backend: Backend) -> None:
    one, other = backend.open(), backend.open()
    written = one.append([("a", b"1"), ("b", b"2")])
    assert other.read(0) == one.read(0)
    written += other.append([("c", b"3")])
    assert_ordered(written)
    assert [record.payload for record in one.read(0)] == [b"1", b"2", b"3"]
    assert one.end() == other.end()


def test_a_log_has_one_id(backend: Backend) -> None:
    one = backend.open()
    assert one.log_id
    assert backend.open().log_id == one.log_id


def test_a_200_kb_registration_and_a_list_of_them(log: EventLog) -> None:
    rng = random.Random(1)
    payloads = [rng.randbytes(200_000) for _ in range(30)]
    assert_ordered(log.append([("b:a", payload) for payload in payloads]))
    seen: list[bytes] = []
    offset = 0
    while page := log.read(offset, max_bytes=1_000_000):
        seen += [record.payload for record in page]
        assert len(page) <= 5
        offset = page[-1].offset + 1
    assert seen == payloads


@pytest.mark.usefixtures("fast_crc")
def test_the_largest_payload_and_key_fit(log: EventLog) -> None:
    payload = b"\xab" * MAX_PAYLOAD_BYTES
    key = "k" * MAX_KEY_BYTES
    (appended,) = log.append([(key, payload)])
    (record,) = log.read(appended.offset)
    assert (record.key, record.payload) == (key, payload)


def test_a_list_with_one_payload_too_large_is_refused_whole(log: EventLog) -> None:
    with pytest.raises(BadRequestError, match=str(MAX_PAYLOAD_BYTES + 1)):
        log.append([("k", b"small"), ("k", bytes(MAX_PAYLOAD_BYTES + 1))])
    assert log.read(0) == []


@pytest.mark.parametrize("key", ["k" * (MAX_KEY_BYTES + 1), "\N{SNOWMAN}" * (MAX_KEY_BYTES // 3 + 1), "\ud800"])
def test_a_key_that_does_not_fit_is_refused(log: EventLog, key: str) -> None:
    with pytest.raises(BadRequestError):
        log.append([("k", b"1"), (key, b"2")])
    assert log.read(0) == []


def test_trim_needs_both_the_offset_and_the_age(log: EventLog) -> None:
    appended = append_each(log, 6)
    for_all = appended[-1].event_time_ms + 1
    assert log.trim(appended[3].offset, 0) == 0
    assert log.trim(0, for_all) == 0
    assert len(log.read(0)) == 6
    assert log.trim(appended[3].offset, for_all) == 3
    assert [record.payload for record in log.read(0)] == [b"p3", b"p4", b"p5"]
    assert log.trim(appended[3].offset, for_all) == 0


def test_trim_keeps_the_last_record_and_the_end(log: EventLog) -> None:
    appended = append_each(log, 4)
    end = log.end()
    assert log.trim(end.next_offset + 100, appended[-1].event_time_ms + 100_000) == 3
    assert log.end() == end
    assert [record.payload for record in log.read(0)] == [b"p3"]


def test_an_empty_log_can_be_trimmed(log: EventLog) -> None:
    assert log.trim(100, 2**60) == 0


def test_offsets_never_restart(backend: Backend) -> None:
    log = backend.open()
    appended = append_each(log, 4)
    log.trim(appended[-1].offset + 1, 2**60)
    if backend.kind != "memory":
        log.close()
    again = backend.open()
    assert again.append([("k", b"new")])[0].offset > appended[-1].offset


def test_trims_more_than_one_step(log: EventLog) -> None:
    appended = log.append([("k", b"x" * 10)] * 3500)
    assert log.trim(appended[-1].offset, 2**60) == 3499
    assert log.read(0)[0].offset == appended[-1].offset


def test_many_threads_append_and_read_at_once(log: EventLog) -> None:
    acknowledged: dict[int, list[Appended]] = {}
    stop = threading.Event()
    problems: list[BaseException] = []

    def appender(number: int) -> None:
        mine = []
        for index in range(40):
            mine += log.append([(f"t{number}", f"{number}:{index}:{part}".encode()) for part in range(3)])
        acknowledged[number] = mine

    def reader() -> None:
        try:
            while not stop.is_set():
                records = log.read(0)
                assert_ordered(records)
                assert log.end().next_offset > (records[-1].offset if records else -1)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=appender, args=(number,)) for number in range(6)]
    reading = threading.Thread(target=reader)
    for thread in [*threads, reading]:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    reading.join()
    assert not problems
    by_offset = {record.offset: record for record in log.read(0)}
    assert len(by_offset) == 6 * 40 * 3
    for number, mine in acknowledged.items():
        assert_ordered(mine)
        payloads = [by_offset[at.offset].payload.decode() for at in mine]
        assert payloads == [f"{number}:{index}:{part}" for index in range(40) for part in range(3)]
        assert all(by_offset[at.offset].event_time_ms == at.event_time_ms for at in mine)


def test_a_closed_log_is_unavailable(backend: Backend) -> None:
    log = backend.open()
    log.close()
    log.close()
    for call in (lambda: log.append([("k", b"1")]), lambda: log.read(0), log.end, lambda: log.trim(1, 1)):
        with pytest.raises(UnavailableError, match="closed"):
            call()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "log.db",
        "/var/lib/log.db",
        "mysql://x/y",
        "memory",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://relative/log.db",
        "sqlite:/one/slash.db",
        "kafka:",
        "kafka://",
        "kafka://host:9092",
        "kafka://host:9092/",
        "kafka://host/topic",
        "kafka://host:port/topic",
        "kafka://host:99999/topic",
        "kafka://host:9092/a/b",
        "kafka://host:9092/a b",
        "kafka:///topic",
        "kafka://host:9092,/topic",
    ],
)
def test_a_url_that_names_no_log_is_a_setup_error(url: str) -> None:
    with pytest.raises(SetupError):
        open_log(url)
