# SPDX-License-Identifier: Apache-2.0
"""A SQLite log, moved into a Kafka topic with its offsets and times; docs/adr/0018 says why so.

Nobody has the log open meanwhile. Cut off anywhere, it goes on when it is run again: until the file is marked the old
log is the log, and the topic nobody's.
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
    """A log that is being written, and is nobody's before `finish`."""

    @property
    def name(self) -> str:
        """Its URL, for people and for the file that is left behind."""
        ...

    def end(self) -> int:
        """The offset after the last record there."""
        ...

    def between(self, start: int, end: int) -> Iterator[Sequence[LogRecord]]:
        """The records from ``start`` up to, not including, ``end``."""
        ...

    def write(self, records: Sequence[LogRecord]) -> None:
        """Append records, durably, with their own times."""
        ...

    def finish(self) -> None:
        """Make a log of it. Again does nothing."""
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class Moved(NamedTuple):
    """Result of a move: ``copied`` of the records were not there yet."""

    extent: Extent
    copied: int
    to: str


def move(path: Path, open_target: Callable[[int], Target], say: Callable[[str], None]) -> Moved:
    """Move the log.

    Args:
        path: Of the SQLite file.
        open_target: Makes the target, or opens one that is there, which begins at the offset it is given.
        say: Gets sentences on how far it is.

    Raises:
        SetupError: Somebody has the log open, it is not whole, it went elsewhere, or the target holds something else.
        UnavailableError, InDoubtError: Kafka does not answer; run it again.
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
                with sqlite_errors(path, "mark"):  # nobody else has it open, and we have not any more
                    mark_moved(path, target.name)
            target.finish()
            return Moved(extent, copied, target.name)
    finally:
        held.close()


def copy(source: LogReader, extent: Extent, target: Target, say: Callable[[str], None]) -> int:
    """Write what is missing in the target, and prove that it has every record. Returns how many were missing.

    Raises:
        SetupError: The target holds something else.
    """
    begin = target.end()
    if not extent.first <= begin <= extent.end:
        raise SetupError(
            f"{target.name} ends at offset {begin - 1}, the event log has {extent.first} to {extent.end - 1}, "
            "so it is not a copy of this event log. Name another topic."
        )
    _compare(source, target, extent.first, begin)  # before anything is added to what may be somebody else's
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
    """Offset, time, key and payload of every record."""
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
