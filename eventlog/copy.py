# SPDX-License-Identifier: Apache-2.0
"""Move of a SQLite log into a Kafka topic, with its offsets and event times. docs/adr/0018 has the reasons.

No other process may have the log open during the move. If the move is interrupted, run it again: it continues. Until
the file is marked as moved, the SQLite log stays valid and the topic is not an event log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

from eventlog.base import LogReader, LogRecord
from eventlog.sqlite.file import connect_reader, mark_moved, moved_to, sqlite_errors
from eventlog.sqlite.log import SqliteReader
from eventlog.sqlite.start import Extent, LockedLog, check_extent, prove
from schemas.errors import SetupError

_SAY_EACH = 100_000


class Target(Protocol):
    """A copy that is being written. It is not an event log before `finish`."""

    @property
    def name(self) -> str:
        """URL of the target, for messages and for the mark in the moved file."""
        ...

    def end(self) -> int:
        """The offset after the target's last record."""
        ...

    def between(self, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
        """The records from ``start`` up to, not including, ``end``."""
        ...

    def write(self, records: Sequence[LogRecord]) -> None:
        """Append records durably, with their own event times."""
        ...

    def finish(self) -> None:
        """Turn the copy into an event log. A second call does nothing."""
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class Moved(NamedTuple):
    """Result of a move. ``copied`` is the number of records that the target lacked."""

    extent: Extent
    copied: int
    to: str


def move(path: Path, open_target: Callable[[int], Target], say: Callable[[str], None]) -> Moved:
    """Move the log.

    Args:
        path: Path of the SQLite file.
        open_target: Function that opens the target, and creates it if needed. Its argument is the first offset.
        say: Callback for sentences about the progress.

    Raises:
        SetupError: Another process has the log open, the log is incomplete or already moved, or the target holds other
            records.
        UnavailableError, InDoubtError: Kafka does not answer. Run the move again.
    """
    if not path.is_file():
        raise SetupError(f"there is no event log {path}. Name the data directory by --data-dir.")
    held = LockedLog(path, wait_s=0)
    try:
        if not held.alone:
            raise SetupError(
                f"the event log {path} is open. Stop gateways and fold first: `fuser -v {path}` names them."
            )
        with sqlite_errors(path, "read", at_start=True):
            prove(path)
            with closing(connect_reader(path)) as reader:
                extent, went_to = check_extent(path, reader, whole=False), moved_to(reader)
        with closing(open_target(extent.first)) as target:
            if went_to not in ("", target.name):
                raise SetupError(
                    f"the event log {path} was already moved to {went_to}. Start with --event-log {went_to}."
                )
            copied = 0
            if not went_to:
                with closing(SqliteReader(path)) as source:
                    copied = copy(source, extent, target, say)
                with sqlite_errors(path, "mark"):  # no process has the log open now, this one included
                    mark_moved(path, target.name)
            target.finish()
            return Moved(extent, copied, target.name)
    finally:
        held.close()


def copy(source: LogReader, extent: Extent, target: Target, say: Callable[[str], None]) -> int:
    """Write the missing records to the target, and check every record there. Returns how many were missing.

    Raises:
        SetupError: The target holds other records.
    """
    begin = target.end()
    if not extent.first <= begin <= extent.end:
        raise SetupError(
            f"{target.name} ends at offset {begin - 1}, the event log has {extent.first} to {extent.end - 1}, "
            "so it is not a copy of this event log. Name another topic."
        )
    _compare(source, target, extent.first, begin)  # before the first write, as the topic may belong to another program
    at = begin
    while at < extent.end:
        records = source.read(at)
        target.write(records)
        at = records[-1].offset + 1
        if at // _SAY_EACH != records[0].offset // _SAY_EACH or at == extent.end:
            say(f"{target.name}: written up to offset {at - 1} of {extent.end - 1}")
    if target.end() != extent.end:
        raise SetupError(f"{target.name} was written by another process meanwhile. Name another topic.")
    _compare(source, target, begin, extent.end)
    return extent.end - begin


def _compare(source: LogReader, target: Target, start: int, end: int) -> None:
    """Compare the offset, time, key and payload of every record in both logs."""
    expected = _records(source, start, end)
    for found in chain.from_iterable(target.between(start, end)):
        if found != next(expected, None):
            raise SetupError(
                f"{target.name} has another record at offset {found.offset} than the event log, "
                "so it is not a copy of this event log. Name another topic."
            )
    missing = next(expected, None)
    if missing is not None:
        raise SetupError(f"{target.name} lacks the record of offset {missing.offset}. Name another topic.")


def _records(source: LogReader, start: int, end: int) -> Iterator[LogRecord]:
    while start < end:
        for record in source.read(start):
            if record.offset >= end:
                return
            yield record
            start = record.offset + 1
