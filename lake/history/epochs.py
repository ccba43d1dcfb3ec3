# SPDX-License-Identifier: Apache-2.0
"""The index of routeCommitTable: which epochs there are, and when they were. 16 bytes an epoch, grown as it grows."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final, Generic

import pyarrow as pa
from deltalake.exceptions import DeltaError

from lake.commits import CommitTail, OpenedTail, commits_between, epoch_times
from lake.delta.log import DamagedTableError, File, active, table_uri
from runtime.bounded import BoundedCache, K, T
from schemas.errors import UnavailableError, one_line
from schemas.route_commit import RouteCommit, from_us, to_us
from schemas.tables import ROUTE_COMMIT_TABLE

_COMMITS_BYTES: Final = 1024 * 1024
_COMMIT_BYTES: Final = 2000
"""Of a commit without outcomes: a dict with the version of each table."""
_MAX_READ: Final = 500
"""Commits read one by one; with more of them the table is read as a whole."""


class Recent(Generic[K, T]):
    """A `BoundedCache` for threads."""

    def __init__(self, max_bytes: int) -> None:
        """Start empty."""
        self._cache: BoundedCache[K, T] = BoundedCache(max_bytes)
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """Bytes in the cache."""
        return self._cache.bytes

    def get(self, key: K) -> T | None:
        """The result, which is then the most recent one."""
        with self._lock:
            return self._cache.get(key)

    def put(self, key: K, value: T, size_bytes: int) -> None:
        """Keep a result of so many bytes, key included; forget the oldest."""
        with self._lock:
            self._cache.put(key, value, size_bytes)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._cache.clear()


class Epochs:
    """Knows every epoch of a lake. Safe for threads."""

    def __init__(self, lake_dir: str) -> None:
        """Nothing is opened yet."""
        self._lake_dir = lake_dir
        self._uri = table_uri(lake_dir, ROUTE_COMMIT_TABLE)
        self._tail = CommitTail(lake_dir)
        self._lock = threading.RLock()
        self._commits: Recent[int, RouteCommit] = Recent(_COMMITS_BYTES)
        self._files: Sequence[File] = ()  # of routeCommitTable, for commits that are not at hand
        self._files_version: int | None = None  # of the table that they are: what is older may have been vacuumed
        self._epochs = array("q")
        self._times_us = array("q")
        self.lake = 0
        """Counts the lakes seen at this place: different when one was replaced by another."""

    @property
    def first(self) -> int:
        """The oldest epoch that is recorded; 0 without any."""
        return self._epochs[0] if self._epochs else 0

    @property
    def newest(self) -> int:
        """The newest epoch as of the last `refresh`; 0 without any."""
        return self._epochs[-1] if self._epochs else 0

    def refresh(self) -> None:
        """See what was committed since.

        Raises:
            UnavailableError: There is no lake to read.
            SetupError: It is of another format.
        """
        with self._lock, self._reading():
            self._refresh()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever storage raises means: not now."""
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
            self._epochs.append(commit.epoch)
            self._times_us.append(to_us(commit.event_time))
            self._commits.put(commit.epoch, commit.without_outcomes(), _COMMIT_BYTES)

    def _reopen(self) -> None:
        """Read the table as a whole: at first, far behind, after a clean-up of the log, or in another lake."""
        opened = self._tail.open()
        if opened is None:
            raise FileNotFoundError(f"there is no {ROUTE_COMMIT_TABLE.name}")
        try:
            self._take_whole(opened)
        except BaseException:
            self._tail.close()
            raise

    def _take_whole(self, opened: OpenedTail) -> None:
        epochs, times_us = self._read(opened.files, self.newest)
        if not epochs or epochs[0] != self.newest or times_us[0] != self._times_us[-1]:
            # The epoch known as the newest is not there any more: another lake.
            epochs, times_us = self._read(opened.files, 0)
            self._epochs, self._times_us = array("q"), array("q")
            self._commits.clear()
            self.lake += 1
        else:
            epochs, times_us = epochs[1:], times_us[1:]
        self._epochs.extend(epochs)
        self._times_us.extend(times_us)
        self._files, self._files_version = opened.files, self._tail.version

    def _read(self, files: Sequence[File], first: int) -> tuple[array[int], array[int]]:
        """Epochs from one on, and their event times in microseconds, in order."""
        rows = epoch_times(self._lake_dir, files, first)
        return _longs(rows["epoch"]), _longs(rows["eventTime"].cast(pa.int64()))

    def last_at(self, time: datetime) -> int:
        """The greatest epoch whose event time is not after a time; 0 if there is none."""
        with self._lock:
            index = bisect_right(self._times_us, to_us(time))
            return self._epochs[index - 1] if index else 0

    def time_of(self, epoch: int) -> datetime | None:
        """The event time of an epoch; None if it is not recorded."""
        with self._lock:
            index = bisect_right(self._epochs, epoch) - 1
            if index < 0 or self._epochs[index] != epoch:
                return None
            return from_us(self._times_us[index])

    def before(self, epoch: int, limit: int) -> list[int]:
        """Up to ``limit`` epochs before one, newest first."""
        with self._lock:
            end = bisect_right(self._epochs, epoch - 1)
            return list(reversed(self._epochs[max(0, end - limit) : end]))

    def commits(self, epochs: list[int]) -> dict[int, RouteCommit]:
        """The commits of some epochs (best neighbours), without outcomes; a missing one is left out."""
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


def _longs(column: pa.ChunkedArray) -> array[int]:
    """An int64 column without nulls, copied without making a Python object of each value."""
    found = array("q")
    for chunk in column.chunks:
        start = chunk.offset * found.itemsize
        found.frombytes(memoryview(chunk.buffers()[1])[start : start + len(chunk) * found.itemsize])
    return found
