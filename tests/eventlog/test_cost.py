# SPDX-License-Identifier: Apache-2.0
"""Batches are bounded by what their records inflate to and may do, not by what they take on the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard

from dev.support import events as make
from eventlog.sqlite.log import SqliteLog
from pipelines.source import LogSource, SourceSettings, options_of
from schemas.events import DEFERRABLE, IMMEDIATE, AnyEvent, encode, routing_key

MIB = 1024 * 1024


def batches(path: Path, max_bytes: int = 32 * MIB) -> list[int]:
    """How many records are in each batch, as Spark would ask for them."""
    source = LogSource(options_of(SourceSettings(f"sqlite://{path}", max_bytes=max_bytes)))
    reader = source.streamReader(source.schema())
    limit, start, found = reader.getDefaultReadLimit(), reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        found.append(end["offset"] - start["offset"])
        start = end
    reader.stop()
    return found


def write(path: Path, events: Sequence[AnyEvent]) -> None:
    frames = {number: (routing_key(event), encode(event)) for number, event in {id(one): one for one in events}.items()}
    log = SqliteLog(path)
    log.append([frames[id(event)] for event in events])
    log.close()


def test_a_hundred_values_of_12_mib_of_one_letter_are_many_batches(tmp_path: Path) -> None:
    """1.5 MB on the log."""
    path = tmp_path / "log.db"
    write(path, [make.put("n", "k", letter * 12 * MIB) for letter in "ab"] * 10)
    assert batches(path) == [2] * 10


@pytest.mark.parametrize("event", [make.wipe(), make.add(), make.delete_topic("T"), make.delete_topic("T" * 1024)])
def test_commands_that_touch_whole_brokers_are_few_in_a_batch(tmp_path: Path, event: AnyEvent) -> None:
    path = tmp_path / "log.db"
    write(path, [event] * 1000)
    assert max(batches(path)) <= 64


@pytest.mark.parametrize("event", [make.clock(), make.heartbeat(), make.closed(), make.register_topic("T")])
def test_cheap_events_are_many_in_a_batch(tmp_path: Path, event: AnyEvent) -> None:
    path = tmp_path / "log.db"
    write(path, [*[event] * 10_000, make.clock()])
    assert batches(path) == [10_001]


def test_a_hundred_registrations_of_10_000_topics_fit(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    table = make.topics(*(f"topic-{number:05}" for number in range(10_000)))
    write(path, [make.register(table=table)] * 100)
    assert batches(path) == [100]


@pytest.mark.parametrize("first", [IMMEDIATE, DEFERRABLE, b"\x07", b""])
def test_bytes_that_are_no_frame_count_with_their_length(tmp_path: Path, first: bytes) -> None:
    path = tmp_path / "log.db"
    log = SqliteLog(path)
    unstated = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 1000)
    for payload in (b"", first, first + b"no frame", first + unstated, first + bytes(MIB + 1)):
        log.append([("b:b", payload)] * 3)
    log.append([("*", IMMEDIATE)])
    log.close()
    found = batches(path, 2 * MIB)
    assert sum(found) == 16
    assert len(found) == 3, "of the last three, each of 1 MiB and a little, two do not fit"
