"""A stretch of log to the state after it: recovery, audit, and the oracle of the tests.

The state of an epoch is the fold of every record up to its log offset, with every group then settled at its
watermark.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pipelines.fold.state import At, RouteState
from pipelines.fold.step import settle_all, step
from schemas.errors import EventDecodeError
from schemas.events import decode, routing_key


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


def replay(state: RouteState, records: Iterable[Record], *, watermark_ms: int | None = None) -> RouteState:
    """Fold records in order; those that cannot be read are passed over, as the stream does.

    Args:
        state: state before the first record.
        records: log records in offset order.
        watermark_ms: when given, expire what is silent at this time at the end.
    """
    for record in records:
        try:
            event = decode(record.payload or b"")
        except EventDecodeError:
            continue
        if routing_key(event) == record.key:
            state, _ = step(state, event, At(record.offset, record.event_time_ms))
    if watermark_ms is not None:
        state, _ = settle_all(state, watermark_ms)
    return state
