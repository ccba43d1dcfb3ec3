"""The payloads on the log are a format: what was written once is read for ever, and written the same.

`events.jsonl` holds one event of every kind in full, and one with the least it must have. A new optional field adds a line;
a line that had to change would be a log that nobody can read any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest
import zstandard

from schemas import events
from schemas.errors import EventDecodeError

LINES = (Path(__file__).with_name("events.jsonl")).read_bytes().splitlines()


def payload(line: bytes) -> bytes:
    return b"\x01" + zstandard.ZstdCompressor().compress(line)


@pytest.mark.parametrize("line", LINES, ids=lambda line: msgspec.json.decode(line)["command"])
def test_what_was_written_is_read_and_written_the_same(line: bytes) -> None:
    event = events.decode(payload(line))
    assert events.decode(events.encode(event)) == event
    again = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(events.encode(event)[1:]))
    assert again | msgspec.json.decode(line) == again  # what is absent is written with its default


def test_every_kind_is_there() -> None:
    kinds = {type(events.decode(payload(line))) for line in LINES}
    assert kinds == set(get_args(events.AnyEvent))


def test_only_signs_of_life_can_wait() -> None:
    all_ = [events.decode(payload(line)) for line in LINES]
    patient = [event for event in all_ if events.encode(event)[:1] == events.PATIENT]
    assert {events.encode(event)[:1] for event in all_} == {events.PATIENT, events.URGENT}
    assert {type(event) for event in patient} == {events.BrokerHeartbeat, events.RegisterBroker}
    registrations = [event for event in all_ if isinstance(event, events.RegisterBroker)]
    assert {(event.topic_config_table is None, event in patient) for event in registrations} == {
        (True, True),
        (False, False),
    }


def test_a_field_of_a_later_release_is_passed_over() -> None:
    line = b'{"command":"CLOCK","actor":{"gateway":"g","via":"routelake"},"later":1}'
    assert isinstance(events.decode(payload(line)), events.Clock)


@pytest.mark.parametrize(
    "data", [b"", b"\x02", b"\x03", b"\x01", b"\x01torn", payload(b"{}"), payload(b'{"command":"NONE"}')]
)
def test_what_is_none_is_named(data: bytes) -> None:
    with pytest.raises(EventDecodeError):
        events.decode(data)
