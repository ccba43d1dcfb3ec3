# SPDX-License-Identifier: Apache-2.0
"""Replay of records of the event log over a state, for recovery, verification and tests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol
from urllib.parse import quote

from nameserver.state_machine.state import At, RouteState
from nameserver.state_machine.step import apply, step
from schemas.errors import EventDecodeError
from schemas.events import AnyEvent, broker_key, decode, inflated_bytes, routing_key
from schemas.limits import MAX_BROKER_NAME_PATH_BYTES

_BROKER_PREFIX: Final = broker_key("")

_SMALL_BYTES: Final = 512
_SMALL_INFLATED_BYTES: Final = 1_024
_KEPT_EVENTS: Final = 8_192
"""Maximum number of cached small events. A connection's heartbeats are the same bytes each time. At most 20 MB."""

_kept: dict[tuple[str | None, bytes], AnyEvent] = {}


class Record(Protocol):
    """Fields of a log record that replay needs."""

    @property
    def offset(self) -> int:
        """Log offset."""

    @property
    def event_time_ms(self) -> int:
        """Event time, ms since the epoch."""

    @property
    def key(self) -> str | None:
        """Routing key."""

    @property
    def payload(self) -> bytes | None:
        """Encoded event."""


def read_event(record: Record) -> AnyEvent:
    """Decode the event of a record.

    Raises:
        EventDecodeError: The record has no event that can be applied and stored. Its payload does not decode, its key
            belongs to another event, or no table can store the name of its broker group.
    """
    payload = record.payload or b""
    if len(payload) > _SMALL_BYTES:
        return _event(record.key, payload)
    event = _kept.get((record.key, payload))
    if event is None:
        event = _event(record.key, payload)
        if (inflated_bytes(payload) or 0) <= _SMALL_INFLATED_BYTES:
            if len(_kept) >= _KEPT_EVENTS:
                _kept.clear()
            _kept[record.key, payload] = event
    return event


def _event(record_key: str | None, payload: bytes) -> AnyEvent:
    event = decode(payload)
    key = routing_key(event)
    if key != record_key:
        raise EventDecodeError(reason=f"key {record_key!r} does not belong to this event")
    if key.startswith(_BROKER_PREFIX):
        length = len(quote(key.removeprefix(_BROKER_PREFIX), safe="", errors="replace"))
        if not 0 < length <= MAX_BROKER_NAME_PATH_BYTES:
            raise EventDecodeError(reason=f"a brokerName of {length} bytes, percent-encoded, cannot be stored")
    return event


def replay(state: RouteState, records: Iterable[Record]) -> RouteState:
    """Apply records in order. Records that the fold puts into quarantine are skipped.

    Args:
        state: State before the first record. It is changed, and returned.
        records: Log records in offset order.
    """
    for record in records:
        # The stream continues after any defect of a record or a rule, and so must a replay.
        with suppress(Exception):
            apply(state, step(state, read_event(record), At(record.offset, record.event_time_ms)))
        state.now_ms = max(state.now_ms, record.event_time_ms)
    return state
