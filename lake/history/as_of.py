# SPDX-License-Identifier: Apache-2.0
"""Points in time: parsing of ``as_of`` to an epoch or a time, and resolution by an index of epochs.

*The state as of time T* is the state after every change with an event time up to T. It consists of the tables at the
greatest epoch with an ``eventTime`` up to T, and the changes of the next epoch up to T. Event time is the clock of the
event log, so the time and the size of a commit do not matter. A past time after the newest epoch means the newest
epoch. A future time is an error, with one minute of tolerance for the client's clock.

The changes between two points in time lead from the state at the one to the state at the other.

The index has the event time of each epoch in routeCommitTable, 8 bytes per epoch, and grows with the table.
"""

from __future__ import annotations

import re
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError

from lake.commits import CommitTail, OpenedTail, commit_rows, commits_between
from lake.delta import query
from lake.delta.log import DamagedTableError, File, active, table_uri
from lake.history.kept import Recent
from runtime.version import PROGRAM
from schemas.errors import (
    BadRequestError,
    BeforeHistoryError,
    FutureEpochError,
    FutureTimeError,
    UnavailableError,
    VacuumedError,
    one_line,
)
from schemas.route_commit import NO_COMMIT, RouteCommit, from_us, to_us
from schemas.tables import ROUTE_CHANGE_TABLE, ROUTE_COMMIT_TABLE

_COMMITS_BYTES: Final = 1024 * 1024
_COMMIT_BYTES: Final = 2000
"""Memory in bytes of a commit without outcomes, mostly a dict with the version of each table."""
_MAX_READ: Final = 500
"""Maximum number of new commits to read one by one. If there are more, the whole table is read."""


C = TypeVar("C", bound=Recent[Any, Any])
LastChange = Callable[[RouteCommit, datetime], tuple[datetime, int] | None]
"""Function that reads time and offset of the last change in the epoch of a commit up to a time, or None."""


class Epochs:
    """Index of all epochs of a lake, and its points in time. Thread-safe."""

    def __init__(self, lake_dir: str) -> None:
        """Create the index without opening a file."""
        self._lake_dir = lake_dir
        self._uri = table_uri(lake_dir, ROUTE_COMMIT_TABLE)
        self._tail = CommitTail(lake_dir)
        self._lock = threading.RLock()
        self._caches: list[Recent[Any, Any]] = []
        self._commits: Recent[int, RouteCommit] = self.with_lake(Recent(_COMMITS_BYTES))
        self._points: Recent[tuple[int, datetime], AsOf] = self.with_lake(Recent(_MOMENTS_BYTES))
        self._files: Sequence[File] = ()  # of routeCommitTable, for commits that are not cached
        self._files_version: int | None = None  # version of these files. Vacuum may delete those of older versions.
        self.first = 0
        """The oldest recorded epoch, or 0 without any. Epochs have consecutive numbers."""
        self._times_us = array("q")
        self.lake = 0
        """Number of lakes seen at this path. It changes if another lake replaces this one."""

    def with_lake(self, cache: C) -> C:
        """Clear a cache if another lake replaces this one. Returns the cache."""
        self._caches.append(cache)
        return cache

    @property
    def newest(self) -> int:
        """The newest epoch as of the last `refresh`, or 0 without any."""
        return self.first + len(self._times_us) - 1 if self._times_us else 0

    def refresh(self) -> None:
        """Read new commits.

        Raises:
            UnavailableError: There is no readable lake.
            SetupError: The lake has another format.
        """
        with self._lock, self._reading():
            self._refresh()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Convert storage errors to UnavailableError."""
        try:
            yield
        except (DamagedTableError, DeltaError, OSError, ValueError, pa.ArrowException) as error:
            raise UnavailableError(f"the history in {self._lake_dir} cannot be read: {one_line(error)}") from error

    def _refresh(self) -> None:
        found = self._tail.read(_MAX_READ) if self._tail.is_same_table() else None
        if found is None or len(found) >= _MAX_READ:
            self._reopen()
            return
        for commit in found:
            self.first = self.first or commit.epoch
            self._times_us.append(to_us(commit.event_time))
            self._commits.put(commit.epoch, commit.without_outcomes(), _COMMIT_BYTES)

    def _reopen(self) -> None:
        """Read the whole table: at the start, far behind, after log clean-up, or after the lake was replaced."""
        opened = self._tail.open()
        if opened is None:
            raise UnavailableError(
                f"there are no tables in {self._lake_dir} yet. The fold writes them: start it with `{PROGRAM} fold`"
            )
        try:
            self._take_whole(opened)
        except BaseException:
            self._tail.close()
            raise

    def _take_whole(self, opened: OpenedTail) -> None:
        first, times_us = self._read(opened.files, self.newest)
        if not first or first != self.newest or times_us[0] != self._times_us[-1]:
            # The newest known epoch is missing, so this is another lake.
            self.first, self._times_us = self._read(opened.files, 0)
            for cache in self._caches:
                cache.clear()
            self.lake += 1
        else:
            self._times_us.extend(times_us[1:])
        self._files, self._files_version = opened.files, self._tail.version

    def _read(self, files: Sequence[File], first: int) -> tuple[int, array[int]]:
        """Number of the first epoch read (0 for none), and the event times from it on, in microseconds since 1970."""
        rows = commit_rows(self._lake_dir, files, ("epoch", "eventTime"), first=first)
        if not rows.num_rows:
            return 0, array("q")
        oldest, newest = rows["epoch"][0].as_py(), rows["epoch"][-1].as_py()
        if newest - oldest + 1 != rows.num_rows:
            raise ValueError(f"{ROUTE_COMMIT_TABLE.name} does not have each epoch from {oldest} to {newest} once")
        return oldest, _longs(rows["eventTime"].cast(pa.int64()))

    def last_at(self, time: datetime) -> int:
        """The greatest epoch with an event time up to a time, or 0 without any."""
        with self._lock:
            index = bisect_right(self._times_us, to_us(time))
            return self.first + index - 1 if index else 0

    def time_of(self, epoch: int) -> datetime | None:
        """The event time of an epoch, or None if it is not recorded."""
        with self._lock:
            return from_us(self._times_us[epoch - self.first]) if 0 < self.first <= epoch <= self.newest else None

    def before(self, epoch: int, limit: int) -> list[int]:
        """Up to ``limit`` epochs before one, newest first."""
        with self._lock:
            last = min(epoch - 1, self.newest)
            return list(range(last, max(self.first, last - limit + 1) - 1, -1)) if self.first else []

    def commits(self, epochs: list[int]) -> dict[int, RouteCommit]:
        """Commits of some epochs, without outcomes. Missing ones are left out. Adjacent epochs are fastest."""
        found = {epoch: commit for epoch in epochs if (commit := self._commits.get(epoch)) is not None}
        missing = {epoch for epoch in epochs if epoch not in found}
        if missing:
            with self._reading():
                with self._lock:
                    if self._files_version != self._tail.version:
                        self._files_version, self._files = active(self._uri)
                    files = self._files
                for commit in commits_between(self._lake_dir, files, first=min(missing), last=max(missing)):
                    if commit.epoch in missing:
                        found[commit.epoch] = kept = commit.without_outcomes()
                        self._commits.put(commit.epoch, kept, _COMMIT_BYTES)
        return found

    def commit(self, epoch: int) -> RouteCommit | None:
        """The commit of an epoch, without outcomes."""
        return self.commits([epoch]).get(epoch)

    # --- points in time ---

    def point(self, wanted: int | datetime | None, shown: str, name: str, last_change: LastChange) -> AsOf:
        """The point in time of an epoch or a time, as of the last `refresh`. None is the newest epoch.

        Args:
            wanted: The epoch or time.
            shown: The original text, for errors.
            name: Name of the parameter, for errors.
            last_change: Function that reads the changes of an epoch.

        Raises:
            BadRequestError: An epoch that looks like a Unix time.
            FutureEpochError, FutureTimeError: The epoch is not committed yet, or the time is in the future.
            BeforeHistoryError: The first epoch is later.
            VacuumedError: The point in time is before the first recorded epoch.
            UnavailableError: The lake cannot be read now.
        """
        newest = self.newest
        if wanted is None:
            wanted = newest
        elif isinstance(wanted, datetime):
            self._check_has_come(wanted, shown)
        elif wanted > newest and (hint := unix_time_hint(shown, name)) is not None:
            raise BadRequestError(f"{hint}; a plain number is an epoch", field=name, value=shown)
        if newest == 0:
            raise FutureEpochError("nothing has been committed yet", newest_epoch=0)
        epoch = wanted if isinstance(wanted, int) else self.last_at(wanted)
        if epoch < self.first == 1:
            point = self._within(wanted, NO_COMMIT, last_change)
            if point.until is None:
                raise self._before_history(shown)
            return point
        if epoch > newest:
            raise FutureEpochError(
                f"epoch {epoch} has not been committed yet; the newest is {newest}", epoch=epoch, newest_epoch=newest
            )
        commit = self.commit(epoch) if epoch >= self.first else None
        if commit is None:
            raise self._vacuumed(shown)
        return self._within(wanted, commit, last_change)

    def _within(self, wanted: int | datetime, before: RouteCommit, last_change: LastChange) -> AsOf:
        """The point in time for a time after the commit ``before``, including changes of the next epoch."""
        if isinstance(wanted, int) or before.epoch == self.newest:
            return AsOf(before)
        later = self.commit(before.epoch + 1)
        if later is None or ROUTE_CHANGE_TABLE.name not in later.versions:
            return AsOf(before)
        point = self._points.get((later.epoch, wanted))
        if point is None:
            found = last_change(later, wanted)
            if found is None:
                point = AsOf(before)
            else:
                # An expiry has the offset of its broker's last heartbeat.
                time, offset = max(before.event_time, found[0]), max(before.log_offset, found[1])
                point = AsOf(msgspec.structs.replace(before, log_offset=offset, event_time=time), wanted)
            self._points.put((later.epoch, wanted), point, _POINT_BYTES)
        return point

    def _check_has_come(self, time: datetime, shown: str) -> None:
        """Refuse a time in the future, by the later of this machine's clock and event time."""
        now = datetime.now(UTC)
        if time <= now + _CLOCK_SKEW:
            return
        newest = self.commit(self.newest)
        if newest is None or time > newest.event_time + _CLOCK_SKEW:
            text = f"{shown} is in the future: this machine's time is {rfc3339(now)}"
            raise FutureTimeError(text, time=shown, now=rfc3339(now))

    def _before_history(self, as_of: str) -> BeforeHistoryError:
        first = self.commit(1)
        time = None if first is None else rfc3339(first.event_time)
        text = f"{as_of} is before the first epoch: epoch 1" + (f" of {time}" if time else "")
        return BeforeHistoryError(text, as_of=as_of, first_epoch=1, first_time=time)

    def _vacuumed(self, as_of: str) -> VacuumedError:
        oldest = self.commit(self.first)
        if oldest is None:
            return VacuumedError(f"{as_of} is not recorded: there is no epoch yet", as_of=as_of)
        return VacuumedError(
            f"{as_of} is before the oldest state that is kept: epoch {oldest.epoch} of {rfc3339(oldest.event_time)}",
            as_of=as_of,
            oldest_epoch=oldest.epoch,
            oldest_time=rfc3339(oldest.event_time),
        )


def _longs(column: pa.ChunkedArray) -> array[int]:
    """Copy an int64 column without nulls, without a Python object per value."""
    found = array("q")
    for chunk in column.chunks:
        start = chunk.offset * found.itemsize
        found.frombytes(memoryview(chunk.buffers()[1])[start : start + len(chunk) * found.itemsize])
    return found


NOW: Final = "now"
_EPOCH: Final = re.compile(r"[0-9]{1,18}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?")
_UNIX: Final = {
    10: ("seconds", 1),
    13: ("milliseconds", 10**3),
    16: ("microseconds", 10**6),
    19: ("nanoseconds", 10**9),
}
"""Unit of a Unix time by its number of digits, valid from 2001 to 2286."""
_UNIX_TIME: Final = re.compile(r"(\d{10}|\d{13}|\d{16}|\d{19})(\.\d+)?", re.ASCII)
_LOST_PLUS: Final = re.compile(r"(.*\d) (\d\d:\d\d)")
_MOMENTS_BYTES: Final = 1024 * 1024
_POINT_BYTES: Final = 2_500
"""Memory in bytes of a point in time: a commit without outcomes, and a time."""
_CLOCK_SKEW: Final = timedelta(minutes=1)
"""Tolerance for a client's clock that is ahead."""


def parse_as_of(value: str, name: str = "as_of") -> int | datetime:
    """Parse an epoch number, or a time, which becomes an aware time in UTC.

    Raises:
        BadRequestError: The text is neither, or a time without offset from UTC.
    """
    if _EPOCH.fullmatch(value.strip()):
        return int(value)
    return _parse_time(value, name)


def unix_time_hint(value: str, name: str) -> str | None:
    """Advice what to write instead of a Unix time, or None if the value does not look like one."""
    found = _UNIX_TIME.fullmatch(value.strip())
    if found is None:
        return None
    unit, per_second = _UNIX[len(found[1])]
    time = rfc3339(datetime.fromtimestamp(int(found[1]) // per_second, UTC))
    return f"{name} looks like a Unix time in {unit}: write {name}={time} for {value}"


def _parse_time(value: str, name: str) -> datetime:
    """Parse an RFC 3339 time and convert it to UTC.

    A space before the offset is read as a plus sign, as an unescaped + in a URL becomes a space.

    Raises:
        BadRequestError: The text is no RFC 3339 time, or has no offset.
    """
    found = value.strip()
    lost = _LOST_PLUS.fullmatch(found)
    if lost is not None and _TIME.fullmatch(lost[1]):
        found = f"{lost[1]}+{lost[2]}"
    try:
        match = _TIME.fullmatch(found)
        time = datetime.fromisoformat(found.upper()) if match else None
    except ValueError:
        match = time = None
    if match is None or time is None:
        expected = f"an epoch number (17), a time (2026-01-31T03:00:00Z) or {NOW}"
        what = unix_time_hint(value, name) or f"{name} must be {expected}, not {value!r}"
        raise BadRequestError(what, field=name, value=value)
    if time.tzinfo is None:
        raise BadRequestError(
            f"{name} has no offset from UTC: {value!r} is ambiguous. Write {found}Z or {found}%2B08:00.",
            field=name,
            value=value,
        )
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        raise BadRequestError(f"{name} is out of range: {value!r}", field=name, value=value) from error


def rfc3339(time: datetime) -> str:
    """An aware time in UTC with milliseconds, the precision of event times: ``2026-01-01T00:00:00.000Z``."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class AsOf(msgspec.Struct, frozen=True):
    """A point in time.

    Attributes:
        commit: The commit, as `PastRoute.commit`.
        until: Time up to which changes of the next epoch are included, or None for the tables of the commit alone.
    """

    commit: RouteCommit
    until: datetime | None = None

    @property
    def place(self) -> tuple[int, datetime]:
        """Sort key of points in time."""
        return self.commit.epoch, self.until or datetime.min.replace(tzinfo=UTC)

    @property
    def last_epoch(self) -> int:
        """The last epoch of which some changes are included."""
        return self.commit.epoch + (self.until is not None)

    def shows(self, epoch: int, event_time: datetime) -> bool:
        """Return True if a change is in the state at this point in time."""
        within = self.until is not None and epoch == self.commit.epoch + 1 and event_time <= self.until
        return epoch <= self.commit.epoch or within

    @property
    def changes(self) -> str:
        """SQL condition on routeChangeTable for the changes at which `shows` returns True."""
        epoch = self.commit.epoch
        return f'"epoch" <= {epoch}' if self.until is None else up_to(epoch + 1, self.until)


def up_to(epoch: int, time: datetime) -> str:
    """SQL condition on routeChangeTable for changes up to a time of an epoch."""
    return f'("epoch" < {epoch} OR ("epoch" = {epoch} AND "eventTime" <= {query.time(time)}))'


def between(before: AsOf | None, after: AsOf) -> str:
    """SQL condition on routeChangeTable for changes after one point in time (None: from the first) up to another."""
    return after.changes if before is None else f"NOT ({before.changes}) AND {after.changes}"


@contextmanager
def or_else(way_out: str) -> Iterator[None]:
    """Add advice to a BeforeHistoryError raised in the block.

    Raises:
        BeforeHistoryError: The point in time is before the first epoch. The message ends with ``way_out``.
    """
    try:
        yield
    except BeforeHistoryError as error:
        raise BeforeHistoryError(f"{error}; {way_out}", **error.fields) from error
