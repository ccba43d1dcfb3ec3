# SPDX-License-Identifier: Apache-2.0
"""Kafka without Spark: where batches end, what can wait, what is refused. The counterpart of test_source_reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from pipelines.log import EventLog, open_log
from pipelines.log.source import KafkaLogSource, KafkaLogStreamReader
from schemas.errors import SetupError
from schemas.events import AnyEvent, encode, routing_key
from tests.support import events as make

pytestmark = pytest.mark.jvm

MIB = 1024 * 1024
MakeReader = Callable[..., KafkaLogStreamReader]


@pytest.fixture
def url(new_topic: Callable[[], str]) -> str:
    return new_topic()


@pytest.fixture
def log(url: str) -> Iterator[EventLog]:
    with closing(open_log(url)) as opened:
        yield opened


@pytest.fixture
def reader(url: str, log: EventLog) -> Iterator[MakeReader]:
    with ExitStack() as stack:

        def make_reader(start: int = 0, max_records: int = 20_000, max_bytes: int = 32 * MIB) -> KafkaLogStreamReader:
            options = {
                "path": url,
                "startOffset": str(start),
                "maxRecordsPerBatch": str(max_records),
                "maxBytesPerBatch": str(max_bytes),
            }
            source = KafkaLogSource(options)
            made = source.streamReader(source.schema())
            stack.callback(made.stop)
            return made

        yield make_reader


def batches(reader: KafkaLogStreamReader) -> list[list[int]]:
    """Offsets of each batch until there is nothing more, as Spark would ask for them."""
    limit = reader.getDefaultReadLimit()
    start, found = reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        (partition,) = reader.partitions(start, end)
        found.append([row["offset"] for batch in reader.read(partition) for row in batch.to_pylist()])
        start = end
    return found


def write(log: EventLog, *events: AnyEvent) -> None:
    log.append([(routing_key(event), encode(event)) for event in events])


def test_a_batch_is_bounded_by_what_it_inflates_to(log: EventLog, reader: MakeReader) -> None:
    write(log, *(make.put("n", "k", letter * 12 * MIB) for letter in "ab" * 5))
    assert batches(reader()) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    write(log, *[make.wipe()] * 300)
    assert max(map(len, batches(reader(10)))) <= 64


def test_a_batch_is_bounded_in_records(log: EventLog, reader: MakeReader) -> None:
    write(log, *[make.clock()] * 10)
    assert list(map(len, batches(reader(max_records=4)))) == [4, 4, 2]


def test_what_can_wait_goes_with_the_next_that_cannot(log: EventLog, reader: MakeReader) -> None:
    one = reader()
    start, limit = one.initialOffset(), one.getDefaultReadLimit()
    for _ in range(3):
        write(log, make.heartbeat(), make.heartbeat())
        assert one.latestOffset(start, limit) == start
    write(log, make.heartbeat(), make.clock(), make.heartbeat())
    taken = one.latestOffset(start, limit)
    assert taken["offset"] == 9
    write(log, make.heartbeat())
    assert one.latestOffset(taken, limit) == taken
    assert one.latestOffset(start, limit)["offset"] == 10, "asked again for an older batch, as after a restart"
    write(log, make.clock())
    assert one.latestOffset(taken, limit)["offset"] == 11


def test_a_batch_is_read_again(log: EventLog, reader: MakeReader) -> None:
    """By another worker, or the same: what was fetched ahead is of no use then."""
    write(log, *[make.clock()] * 50)
    one = reader()
    first, second = one.partitions({"offset": 0}, {"offset": 20}), one.partitions({"offset": 20}, {"offset": 50})
    for (partition,) in (first, second, first, second, second):
        offsets = [row["offset"] for batch in one.read(partition) for row in batch.to_pylist()]
        assert offsets == list(range(partition.start, partition.end))


def test_what_was_deleted_is_missed(log: EventLog, reader: MakeReader) -> None:
    write(log, *[make.clock()] * 10)
    one = reader()
    start, limit = one.initialOffset(), one.getDefaultReadLimit()
    (partition,) = one.partitions(start, one.latestOffset(start, limit))
    log.trim(5, 2**60)
    with pytest.raises(SetupError, match="lacks the records from offset 0 on"):
        one.latestOffset(start, limit)
    with pytest.raises(SetupError, match="lacks the records from offset 0 on"):
        list(one.read(partition))
    with pytest.raises(SetupError, match="ends before offset 10, but this stream goes on at 11"):
        reader(11).initialOffset()
    with pytest.raises(SetupError, match="made anew"):
        reader(5).latestOffset({"offset": 5, "log": "another"}, limit)
