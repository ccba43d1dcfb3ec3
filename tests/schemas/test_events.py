# SPDX-License-Identifier: Apache-2.0
"""The payloads on the log are a format: old payloads stay readable for ever, and the same event has the same payload.

`events.jsonl` holds one event of every kind in full, and one with the required fields only. A new optional field adds a
line. If a line had to change, old logs would no longer be readable.
"""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import zstandard

from schemas import events
from schemas.errors import EventDecodeError
from schemas.limits import MAX_READABLE_EVENT_BYTES

LINES = (Path(__file__).with_name("events.jsonl")).read_bytes().splitlines()


def payload(line: bytes) -> bytes:
    return b"\x01" + zstandard.ZstdCompressor().compress(line)


@pytest.mark.parametrize("line", LINES, ids=lambda line: msgspec.json.decode(line)["command"])
def test_recorded_events_are_decoded_and_encoded_the_same(line: bytes) -> None:
    event = events.decode(payload(line))
    assert events.decode(events.encode(event)) == event
    again = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(events.encode(event)[1:]))
    assert again | msgspec.json.decode(line) == again  # what is absent is written with its default


def test_every_kind_is_there() -> None:
    kinds = {type(events.decode(payload(line))) for line in LINES}
    assert kinds == set(get_args(events.AnyEvent))


def test_only_events_for_which_no_client_waits_are_deferrable() -> None:
    all_ = [events.decode(payload(line)) for line in LINES]
    deferrable = [event for event in all_ if events.encode(event)[:1] == events.DEFERRABLE]
    assert {events.encode(event)[:1] for event in all_} == {events.DEFERRABLE, events.IMMEDIATE}
    assert {type(event) for event in deferrable} == {
        events.AccessRefused,
        events.BrokerHeartbeat,
        events.Clock,
        events.RegisterBroker,
        events.Resume,
    }
    resumes = [event for event in all_ if isinstance(event, events.Resume)]
    assert {(event.after_ms is not None, event in deferrable) for event in resumes} == {(True, True), (False, False)}
    registrations = [event for event in all_ if isinstance(event, events.RegisterBroker)]
    assert {(event.topic_config_table is None, event in deferrable) for event in registrations} == {
        (True, True),
        (False, False),
    }


def test_a_field_of_a_later_release_is_passed_over() -> None:
    line = b'{"command":"CLOCK","actor":{"gateway":"g","via":"routelake"},"later":1}'
    assert isinstance(events.decode(payload(line)), events.Clock)


@pytest.mark.parametrize("line", [LINES[0], max(LINES, key=len)])
def test_a_payload_that_a_disk_has_changed_is_never_another_event(line: bytes) -> None:
    event = events.decode(payload(line))
    written = events.encode(event)
    named = 0
    for bit in range(8 * len(written)):
        changed = bytearray(written)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            assert events.decode(bytes(changed)) == event  # where zstd makes no use of a bit
        except EventDecodeError:
            named += 1
    assert named > 7.5 * len(written)


@pytest.mark.parametrize(
    "data", [b"", b"\x02", b"\x03", b"\x01", b"\x01torn", payload(b"{}"), payload(b'{"command":"NONE"}')]
)
def test_bytes_that_are_no_event_are_refused(data: bytes) -> None:
    with pytest.raises(EventDecodeError):
        events.decode(data)


def test_an_event_after_one_that_is_torn_is_decoded() -> None:
    good = payload(b'{"command":"CLOCK","actor":{"gateway":"g","via":"routelake"}}')
    expected = events.decode(good)
    with pytest.raises(EventDecodeError):
        events.decode(good[:-6])
    assert events.decode(good) == expected


def stating(size: int, content: bytes) -> bytes:
    """A payload with a frame that states another size than its content has (RFC 8878, 3.1.1: a size of four bytes)."""
    content_frame = zstandard.ZstdCompressor(write_content_size=False).compress(content)
    blocks = content_frame[zstandard.frame_header_size(content_frame) :]
    return b"\x01" + content_frame[:4] + b"\xa0" + struct.pack("<I", size) + blocks


def test_a_frame_is_what_it_states() -> None:
    line = LINES[0]
    assert events.inflated_bytes(stating(len(line), line)[: events.HEAD_BYTES]) == len(line)
    assert events.encode(events.decode(stating(len(line), line))) == events.encode(events.decode(payload(line)))
    liar = stating(1_000, line + b" " * 50_000_000)
    for size in (0, 1, len(line) - 1, len(line) + 1, 100_000):
        with pytest.raises(EventDecodeError):
            events.decode(stating(size, line))
    tracemalloc.start()
    with pytest.raises(EventDecodeError):
        events.decode(liar)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize("unstated", [b"\x01" + zstandard.ZstdCompressor(write_content_size=False).compress(LINES[0])])
def test_a_frame_that_states_nothing_is_not_inflated(unstated: bytes) -> None:
    assert events.inflated_bytes(unstated) is None
    with pytest.raises(EventDecodeError, match="states the size"):
        events.decode(unstated)


def test_what_is_too_large_is_not_inflated() -> None:
    with pytest.raises(EventDecodeError, match=f"reads up to {MAX_READABLE_EVENT_BYTES}"):
        events.decode(stating(MAX_READABLE_EVENT_BYTES + 1, LINES[0]))
    with pytest.raises(EventDecodeError, match="reads up to"):
        events.decode(b"\x01" + zstandard.ZstdCompressor().compress(bytes(MAX_READABLE_EVENT_BYTES + 1)))
