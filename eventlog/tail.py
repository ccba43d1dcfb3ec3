# SPDX-License-Identifier: Apache-2.0
"""Follow an event log that others append to, and find the end of a bounded batch.

`eventlog.sqlite.tail` and `eventlog.kafka.tail` implement this for their storage.

In the fold, a batch holds its records *inflated*, several times: as events, rows of the tables, and rows of history. A
payload is compressed: 12 MiB of one letter take 15 kB on the log. So batches are bounded by the inflated sizes that the
frames state (`schemas.events.inflated_bytes`). The fold checks these sizes when it inflates the frames.

Some commands cost far more than their size. Permissions can be cleared and set again any number of times, each time in
every row of a broker. A deletion reads the topics of all brokers. Such commands have a fixed cost, so that a batch of
them ends in bounded time. Removing rows costs no more than writing them did.
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
"""Cost of a command that may change or read every topic of a broker, in bytes."""

KV_BYTES: Final = 4 * 1024
"""Cost of a KV command in addition to its own size, in bytes. The command copies the keys of the table."""

SMALL_BYTES: Final = 4 * 1024
"""Maximum size of a payload that is decoded for its cost, in bytes. Commands have a few hundred bytes, at most 3 kB."""

_INFLATED_SMALL_BYTES: Final = 64 * 1024

_WHOLE_BROKER: Final = tuple(
    b'{"command":"' + str(command.__struct_config__.tag).encode() + b'"'
    for command in (WipeWritePerm, AddWritePerm, DeleteTopic)
)


def cost_bytes(key: str, head: bytes, payload_bytes: int) -> int:
    """Cost of a record, in bytes.

    Args:
        key: Routing key of the record.
        head: The payload if it has at most `SMALL_BYTES`, otherwise at least its first `HEAD_BYTES`.
        payload_bytes: Size of the payload.
    """
    inflated = inflated_bytes(head[:HEAD_BYTES])
    if inflated is None:
        return payload_bytes  # the record is quarantined without decoding
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
"""Data of a record for the planner: offset, `cost_bytes`, the begin of the payload, event time in milliseconds."""


class BatchEnd(NamedTuple):
    """End of a batch: the offset after it, and the greatest event time up to that offset, in milliseconds."""

    offset: int
    time_ms: int


@dataclass(slots=True)
class _Scan:
    """State of the scan for the end of a batch. The next call continues the scan."""

    asked: tuple[int, int, int, int, bytes]
    end: int
    time_ms: int
    immediate: bool
    bytes: int = 0
    records: int = 0


class LogTail(ABC):
    """The planner's view of a log: one long-lived process asks where the next micro-batch ends. For one thread.

    Attributes:
        name: Name of the log in messages.
        log_id: Identity of the log, see `EventLog.log_id`.
        first_offset: First offset of a new log.
    """

    first_offset: int
    name: str
    log_id: str
    _scan: _Scan | None = None

    def check_identity(self, log_id: str | None) -> None:
        """Make sure that the log has this id. None accepts any log.

        Raises:
            SetupError: The log was removed, or another one is in its place.
        """
        if log_id not in (None, self.log_id):
            raise SetupError(
                f"{self.name} is not the event log that this stream was reading: it was deleted and created again. "
                f"{LOST_LOG}"
            )

    def check_readable_from(self, start_offset: int) -> None:
        """Make sure that no record from ``start_offset`` on was trimmed, and that the log is not truncated.

        Raises:
            SetupError: Records are missing. The message names their offsets.
            UnavailableError: Storage does not answer.
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
            UnavailableError: Storage does not answer.
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
        """The end of a batch within both bounds. A record larger than ``max_bytes`` is a batch of its own.

        Args:
            start: The end of the previous batch.
            max_records: Maximum number of records.
            max_bytes: Maximum sum of the costs (`cost_bytes`).
            deferrable: Begin of the payload of records that can wait. If the log has only such records and the batch
                has room for more, the batch is empty.
            stop_at: Offset before which the batch ends, or None.
            only_full: Return an empty batch while the batch has room for more.

        Raises:
            SetupError: Records were deleted.
            UnavailableError: Storage does not answer.
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
        """Wait until the log has changed.

        Args:
            deadline: Latest time of return, on `time.monotonic`.
            poll_s: Pause between checks, in seconds, if the storage cannot wait itself.

        Returns:
            True if the log has changed, False at the deadline.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the file or the connections."""

    @abstractmethod
    def _bounds(self) -> tuple[int, int]:
        """The oldest offset, and the one after the last."""

    @abstractmethod
    def _costs(self, start: int, limit: int) -> Generator[Cost]:
        """Yield the costs from an offset on, of at most ``limit`` records. The next call may repeat the last one."""


def missing_records(name: str, first: int, end: int | None = None) -> SetupError:
    """The error for records that were deleted before they were read.

    Args:
        name: Name of the log.
        first: First missing offset.
        end: The offset after the last missing one, if known.
    """
    which = f"from offset {first} on" if end is None else f"from offset {first} to {end - 1}"
    return SetupError(
        f"the event log {name} lacks the records {which}, which this stream has not read yet. They were deleted. "
        f" {LOST_LOG}",
        first_missing=first,
    )
