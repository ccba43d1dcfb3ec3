# SPDX-License-Identifier: Apache-2.0
"""Follow an event log that others append to, and find the end of a bounded batch.

`eventlog.sqlite.tail` and `eventlog.kafka.tail` know their storage.

A batch holds what its records carry *inflated*, several times over: the event, rows of the tables and of history. A
payload is compressed: 12 MiB of one letter take 15 kB on the log. So batches are bounded by what the frames state
(`schemas.events.inflated_bytes`), which the fold checks when it inflates them.

Some commands do far more than they carry. Removing rows costs no more than writing them did, but permissions can be
cleared and set again without end, each time in every row of a broker; and a deletion looks at the topics of all
brokers. Such commands cost a round sum, so that a batch of them ends in bounded time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from eventlog.base import LOST_LOG
from schemas.errors import EventDecodeError, SetupError
from schemas.events import (
    DEFERRABLE,
    HEAD_BYTES,
    KEY_KV,
    AddWritePerm,
    DeleteTopic,
    WipeWritePerm,
    inflated_bytes,
    read_json,
)

WHOLE_BROKER_BYTES: Final = 512 * 1024
"""Of a command that may touch, or looks at, every topic of a broker."""

KV_BYTES: Final = 4 * 1024
"""Cost of a KV command in addition to its own size, bytes: the table's keys are copied."""

SMALL_BYTES: Final = 4 * 1024
"""Payloads up to this size are looked into. Commands take a few hundred bytes, 3 kB with the longest names."""

_INFLATED_SMALL_BYTES: Final = 64 * 1024

_WHOLE_BROKER: Final = tuple(
    b'{"command":"' + str(command.__struct_config__.tag).encode() + b'"'
    for command in (WipeWritePerm, AddWritePerm, DeleteTopic)
)


def cost_bytes(key: str, head: bytes, payload_bytes: int) -> int:
    """Cost of a record, bytes.

    Args:
        key: its routing key.
        head: its payload if that has at most `SMALL_BYTES`, else at least the first `HEAD_BYTES` of it.
        payload_bytes: the size of its payload.
    """
    inflated = inflated_bytes(head[:HEAD_BYTES])
    if inflated is None:
        return payload_bytes  # quarantined as it is
    size = max(inflated, payload_bytes)
    if key == KEY_KV:
        return size + KV_BYTES
    if not head.startswith(DEFERRABLE) and len(head) == payload_bytes and inflated <= _INFLATED_SMALL_BYTES:
        try:
            if read_json(head).startswith(_WHOLE_BROKER):
                return size + WHOLE_BROKER_BYTES
        except EventDecodeError:
            return size
    return size


Cost = tuple[int, int, bytes, int]
"""A record as the planner needs it: offset, `cost_bytes`, the begin of its payload, event time."""


class BatchEnd(NamedTuple):
    """End of a batch: the offset after it, and the greatest event time up to there, ms."""

    offset: int
    time_ms: int


@dataclass(slots=True)
class _Scan:
    """State of the scan of a batch that is not taken yet. The next call continues the scan."""

    asked: tuple[int, int, int, int, bytes]
    end: int
    time_ms: int
    immediate: bool
    bytes: int = 0
    records: int = 0


class LogTail(ABC):
    """The planner's side of a log: one long-lived process asks it where the next micro-batch ends. For one thread.

    Attributes:
        name: of the log, for messages.
        log_id: see `EventLog.log_id`.
        first_offset: of a new log.
    """

    first_offset: int
    name: str
    log_id: str
    _scan: _Scan | None = None

    def check_identity(self, log_id: str | None) -> None:
        """Make sure that this is the log with this id; None accepts any.

        Raises:
            SetupError: the log was removed, or another one is in its place.
        """
        if log_id not in (None, self.log_id):
            raise SetupError(
                f"{self.name} is not the event log that this stream was reading: it was deleted and created again. "
                f"{LOST_LOG}"
            )

    def check_readable_from(self, start_offset: int) -> None:
        """Make sure that no record from ``start_offset`` on is missing at the log's old end, nor the log cut short.

        Raises:
            SetupError: the message names the missing offsets.
            UnavailableError: storage does not answer.
        """
        oldest, end = self._bounds()
        if start_offset > end:
            raise SetupError(
                f"the event log {self.name} ends before offset {end}, but this stream continues at {start_offset}."
                f" The event log was truncated, or it is a different log. {LOST_LOG}",
                start_offset=start_offset,
                next_offset=end,
            )
        if start_offset < oldest:
            raise missing_records(self.name, start_offset, oldest)

    def next_offset(self) -> int:
        """The offset after the last record.

        Raises:
            UnavailableError: storage does not answer.
        """
        return self._bounds()[1]

    def bounded_end(
        self,
        start: BatchEnd,
        max_records: int,
        max_bytes: int,
        deferrable: bytes = b"",
        stop_at: int | None = None,
        *,
        only_full: bool = False,
    ) -> BatchEnd:
        """The end of a batch that keeps both bounds; a larger record comes alone.

        Args:
            start: The end of the batch before.
            max_records: bound on the records.
            max_bytes: bound on the sum of their costs (`cost_bytes`).
            deferrable: how the payload of a record begins that can wait: while there are only such, and room for more,
                the batch is empty.
            stop_at: An offset that the batch does not reach; None: there is none.
            only_full: While there is room for more, the batch is empty.

        Raises:
            SetupError: records were deleted.
            UnavailableError: storage does not answer.
        """
        asked = (*start, max_records, max_bytes, deferrable)
        if self._scan is None or self._scan.asked != asked:
            self._scan = _Scan(asked, *start, immediate=not deferrable)
        scan = self._scan
        with closing(self._costs(scan.end, max_records - scan.records)) as costs:
            for offset, cost_bytes, head, time_ms in costs:
                if stop_at is not None and offset >= stop_at:
                    break
                if scan.records and scan.bytes + cost_bytes > max_bytes:
                    self._scan = None
                    return BatchEnd(scan.end, scan.time_ms)
                scan.bytes += cost_bytes
                scan.records += 1
                scan.end = offset + 1
                scan.time_ms = max(scan.time_ms, time_ms)
                scan.immediate = scan.immediate or not head.startswith(deferrable)
        is_enough = (scan.immediate and not only_full) or scan.records >= max_records
        return BatchEnd(scan.end, scan.time_ms) if is_enough else start

    @abstractmethod
    def wait_for_change(self, deadline: float, poll_s: float) -> bool:
        """Wait until somebody has written to the log.

        Args:
            deadline: on `time.monotonic`.
            poll_s: pause between looks, where there is no other way to wait.

        Returns:
            False when nobody had by then.
        """

    @abstractmethod
    def close(self) -> None:
        """Release file or connections."""

    @abstractmethod
    def _bounds(self) -> tuple[int, int]:
        """The oldest offset, and the one after the last."""

    @abstractmethod
    def _costs(self, start: int, limit: int) -> Generator[Cost]:
        """Yield the costs from an offset on, up to ``limit`` records. The last one may be yielded again."""


def missing_records(name: str, first: int, end: int | None = None) -> SetupError:
    """The error for records that are gone although nobody has read them.

    Args:
        name: of the log.
        first: the first of them.
        end: the offset after the last of them, if it is known.
    """
    which = f"from offset {first} on" if end is None else f"from offset {first} to {end - 1}"
    return SetupError(
        f"the event log {name} lacks the records {which}, which this stream has not read yet. They were deleted. "
        f" {LOST_LOG}",
        first_missing=first,
    )
