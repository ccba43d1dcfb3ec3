# SPDX-License-Identifier: Apache-2.0
"""A stretch of log to the state after it: recovery, audit, and the oracle of the tests.

The state of an epoch is the fold of every record up to its log offset, less what had expired at its watermark.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol
from urllib.parse import quote

from pipelines.fold.state import At, RouteState
from pipelines.fold.step import apply, apply_expiries, expire_due, step
from schemas.errors import EventDecodeError
from schemas.events import AnyEvent, broker_key, decode, routing_key
from schemas.limits import MAX_BROKER_NAME_PATH_BYTES

_BROKER_PREFIX: Final = broker_key("")


class Record(Protocol):
    """What replay needs of a log record."""

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
    """The event of a record.

    Raises:
        EventDecodeError: there is none that could be folded and stored: the payload does not decode, it stands under
            another event's key, or it is about a broker group whose name no table can hold.
    """
    event = decode(record.payload or b"")
    key = routing_key(event)
    if key != record.key:
        raise EventDecodeError(reason=f"key {record.key!r} does not belong to this event")
    if key.startswith(_BROKER_PREFIX):
        length = len(quote(key.removeprefix(_BROKER_PREFIX), safe="", errors="replace"))
        if not 0 < length <= MAX_BROKER_NAME_PATH_BYTES:
            raise EventDecodeError(reason=f"a brokerName of {length} bytes, percent-encoded, cannot be stored")
    return event


def replay(state: RouteState, records: Iterable[Record], *, watermark_ms: int | None = None) -> RouteState:
    """Fold records in order; what the stream puts into quarantine is passed over here.

    Args:
        state: state before the first record. It is changed, and returned.
        records: log records in offset order.
        watermark_ms: when given, expire what is silent at this time at the end.
    """
    for record in records:
        # Whatever a record or a rule is wrong about: the stream goes on without it, and so must who starts it anew.
        with suppress(Exception):
            apply(state, step(state, read_event(record), At(record.offset, record.event_time_ms)))
    if watermark_ms is not None:
        apply_expiries(state, expire_due(state, watermark_ms))
    return state
