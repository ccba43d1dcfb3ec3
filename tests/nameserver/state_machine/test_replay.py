# SPDX-License-Identifier: Apache-2.0
"""Records that come again are read once, and what is kept for that is bounded by its real size."""

from __future__ import annotations

import pytest

from dev.support import events as make
from eventlog.base import LogRecord
from nameserver.state_machine import replay
from nameserver.state_machine.replay import read_event
from schemas.errors import EventDecodeError
from schemas.events import encode, routing_key


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_kept", {})


def test_a_heartbeat_that_comes_again_is_the_same_event() -> None:
    event = make.heartbeat()
    first, second = (LogRecord(offset, offset, routing_key(event), encode(event)) for offset in (1, 2))
    assert read_event(first) == event
    assert read_event(second) is read_event(first)


def test_the_key_is_looked_at_each_time() -> None:
    event = make.heartbeat()
    for key, is_right in [(routing_key(event), True), ("b:other", False), (routing_key(event), True), (None, False)]:
        record = LogRecord(1, 1, key, encode(event))  # type: ignore[arg-type]
        if is_right:
            assert read_event(record) == event
        else:
            with pytest.raises(EventDecodeError, match="does not belong to this event"):
                read_event(record)


def test_what_inflates_is_not_kept() -> None:
    event = make.put("n", "k", "v" * 1_000_000)
    record = LogRecord(1, 1, routing_key(event), encode(event))
    assert len(record.payload) < 512
    assert read_event(record) == event
    # (A lake that other tests of this process share may read a CLOCK meanwhile, and keep that.)
    assert (record.key, record.payload) not in replay._kept


def test_it_keeps_so_many() -> None:
    for number in range(replay._KEPT_EVENTS + 10):
        event = make.heartbeat(f"10.0.0.1:{number}")
        assert read_event(LogRecord(number, 1, routing_key(event), encode(event))) == event
    assert 0 < len(replay._kept) <= replay._KEPT_EVENTS
