# SPDX-License-Identifier: Apache-2.0
"""Following a Kafka log, and reading a range of it.

Kafka does not report the sizes of records. So the planner reads every record before the worker does, and keeps only
the cost of each record.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from eventlog.base import LogRecord
from eventlog.kafka.access.settings import AccessError
from eventlog.kafka.log import KafkaLog
from eventlog.kafka.reader import ANSWER_S, POLL_RECORDS, KafkaReader
from eventlog.tail import SMALL_BYTES, Cost, LogTail, cost_bytes
from eventlog.urls import first_offset, parse_url
from schemas.errors import UnavailableError
from schemas.events import HEAD_BYTES


class KafkaTail(LogTail):
    """The tail of a Kafka log.

    Raises:
        SetupError: The topic is not suitable for an event log.
        UnavailableError: No broker answers, or no broker gives access. The fold had access at its start, so a refusal
            can be temporary.
    """

    def __init__(self, bootstrap: Sequence[str], topic: str, config: str = "") -> None:
        self.first_offset = first_offset(topic)
        try:
            with closing(KafkaLog(bootstrap, topic, config)) as log:
                self.log_id = log.log_id
        except AccessError as error:
            raise UnavailableError(str(error)) from error
        self._reader = KafkaReader(bootstrap, topic, config)
        self.name = self._reader.name
        self._ahead: deque[Cost] = deque()
        """Records that no batch has taken yet."""
        self._taken_to = -1
        self._end: int | None = None

    def wait_for_change(self, deadline: float, poll_s: float) -> bool:
        """See `LogTail`. The request waits in Kafka."""
        return bool(self._ahead) or self._read_ahead(max(0, round((deadline - time.monotonic()) * 1000)))

    def close(self) -> None:
        """See `LogTail`."""
        self._reader.close()

    def _bounds(self) -> tuple[int, int]:
        begin, self._end = self._reader.bounds()
        return begin, self._end

    def _costs(self, start: int, limit: int) -> Generator[Cost]:
        """See `LogTail`. The costs end at the last known end of the log. Without one, ask for the current end."""
        end = self._bounds()[1] if self._end is None else self._end
        if self._taken_to != start:
            self._ahead.clear()
            self._reader.go_to(start)
            self._taken_to = start
        deadline = time.monotonic() + ANSWER_S
        for _ in range(limit):
            while not self._ahead:
                if self._reader.at >= end:
                    return
                if not self._read_ahead(1000) and time.monotonic() > deadline:
                    raise UnavailableError(f"cannot read the event log {self.name}: no answer")
            yield self._ahead[0]
            self._taken_to = self._ahead.popleft()[0] + 1

    def _read_ahead(self, timeout_ms: int) -> bool:
        records = self._reader.poll(timeout_ms, POLL_RECORDS)
        for record in records:
            size = len(record.payload)
            head = record.payload if size <= SMALL_BYTES else record.payload[:HEAD_BYTES]
            self._ahead.append((record.offset, cost_bytes(record.key, head, size), head[:1], record.event_time_ms))
        return bool(records)


_readers: dict[str, KafkaReader] = {}
"""Readers by URL. A worker process runs many tasks, so the next task reads on where this one ended."""


def kafka_records(url: str, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
    """Yield the records from ``start`` up to, not including, ``end``, in pieces of bounded size.

    Raises:
        SetupError: Some of the records were deleted.
        UnavailableError: Kafka does not answer.
    """
    reader = _readers.pop(url, None) or KafkaReader(*parse_url(url))
    try:
        yield from reader.between(start, end)
    except BaseException:
        reader.close()
        raise
    _readers[url] = reader


def close_reader(url: str) -> None:
    """Close the reader that `kafka_records` keeps for its next call."""
    if (reader := _readers.pop(url, None)) is not None:
        reader.close()
