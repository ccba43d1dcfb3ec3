# SPDX-License-Identifier: Apache-2.0
"""The index of routeCommitTable: which epochs there are, and when they were. 16 bytes an epoch, grown as it grows."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from api.view.loader import check_format, commits, read_commits
from api.view.rows import Cut
from lake.active import files_of
from lake.deltalog import DeltaLog, Mark, table_uri
from lake.query import select
from schemas.errors import UnavailableError, one_line
from schemas.tables import ROUTE_COMMIT_TABLE

_T = TypeVar("_T")

_CUTS_KEPT: Final = 512
_MAX_STEPS: Final = 500
_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Recent(Generic[_T]):
    """The results last used, by key. Safe for threads: each operation is one of the dict's own."""

    def __init__(self, size: int) -> None:
        """Start empty."""
        self._entries: OrderedDict[Hashable, _T] = OrderedDict()
        self._lock = threading.Lock()
        self._size = size

    def get(self, key: Hashable) -> _T | None:
        """The result, which is then the most recent one."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: Hashable, value: _T) -> _T:
        """Keep a result, forget the oldest."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()


class Epochs:
    """Knows every epoch of a lake. Safe for threads."""

    def __init__(self, lake_dir: str) -> None:
        """Nothing is opened yet."""
        self._lake_dir = lake_dir
        self._log = DeltaLog(lake_dir, ROUTE_COMMIT_TABLE)
        self._lock = threading.RLock()
        self._cuts: Recent[Cut] = Recent(_CUTS_KEPT)
        self._table: DeltaTable | None = None  # for cuts that are not at hand; may lag behind
        self._version = -1
        self._mark: Mark | None = None
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
            SetupError: It is of a newer format.
        """
        with self._lock, self._reading():
            self._refresh()

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever storage raises means: not now."""
        try:
            yield
        except (OSError, ValueError, DeltaError, pa.ArrowException) as error:
            raise UnavailableError(f"the history in {self._lake_dir} cannot be read: {one_line(error)}") from error

    def _refresh(self) -> None:
        if self._mark is None or self._mark != self._log.mark(self._version) or not self._follow():
            self._reopen()

    def _follow(self) -> bool:
        """Read the commits after the last one, each from its own file. False if that does not lead to the newest."""
        for _ in range(_MAX_STEPS):
            if not self._log.exists(self._version + 1):
                return True
            rows = self._log.appended(self._version + 1)
            for commit in commits(rows) if rows is not None else ():
                if commit.cut.epoch != self.newest + 1:
                    return False
                self._epochs.append(commit.cut.epoch)
                self._times_us.append((commit.cut.event_time - _EPOCH_START) // timedelta(microseconds=1))
                self._cuts.put(commit.cut.epoch, commit.cut)
            self._version += 1
            self._mark = self._log.mark(self._version)
        return False

    def _reopen(self) -> None:
        """Open the table as a whole: at first, far behind, after a clean-up of the log, or in another lake."""
        check_format(self._lake_dir)
        table = DeltaTable(table_uri(self._lake_dir, ROUTE_COMMIT_TABLE))
        epochs, times_us = _read(table, self.newest)
        if not epochs or epochs[0] != self.newest or times_us[0] != self._times_us[-1]:
            # The epoch known as the newest is not there any more: another lake.
            epochs, times_us = _read(table, 0)
            self._epochs, self._times_us = array("q"), array("q")
            self._cuts.clear()
            self.lake += 1
        else:
            epochs, times_us = epochs[1:], times_us[1:]
        self._epochs.extend(epochs)
        self._times_us.extend(times_us)
        self._table, self._version = table, table.version()
        self._mark = self._log.mark(self._version)

    def last_at(self, time: datetime) -> int:
        """The greatest epoch whose event time is not after a time; 0 if there is none."""
        with self._lock:
            index = bisect_right(self._times_us, (time - _EPOCH_START) // timedelta(microseconds=1))
            return self._epochs[index - 1] if index else 0

    def before(self, epoch: int, limit: int) -> list[int]:
        """Up to ``limit`` epochs before one, newest first."""
        with self._lock:
            end = bisect_right(self._epochs, epoch - 1)
            return list(reversed(self._epochs[max(0, end - limit) : end]))

    def cuts(self, epochs: list[int]) -> dict[int, Cut]:
        """The cuts of some epochs (best neighbours); a missing one is left out."""
        found = {epoch: cut for epoch in epochs if (cut := self._cuts.get(epoch)) is not None}
        missing = [epoch for epoch in epochs if epoch not in found]
        if missing:
            with self._lock, self._reading():
                if self._table is None or self._table.version() < self._version:
                    self._table = DeltaTable(table_uri(self._lake_dir, ROUTE_COMMIT_TABLE))
                table = self._table
            wanted = set(missing)
            with self._reading():
                read = read_commits(files_of(table), self._lake_dir, first=min(missing), last=max(missing))
            for commit in read:
                if commit.cut.epoch in wanted:
                    found[commit.cut.epoch] = self._cuts.put(commit.cut.epoch, commit.cut)
        return found

    def cut(self, epoch: int) -> Cut | None:
        """The cut of an epoch."""
        return self.cuts([epoch]).get(epoch)


def _read(table: DeltaTable, first: int) -> tuple[array[int], array[int]]:
    """Epochs from one on, and their event times in microseconds, in order."""
    rows = select(table, f'SELECT "epoch", "eventTime" FROM t WHERE "epoch" >= {first} ORDER BY "epoch"')  # noqa: S608
    return _longs(rows["epoch"]), _longs(rows["eventTime"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()))


def _longs(column: pa.ChunkedArray) -> array[int]:
    """An int64 column without nulls, copied without making a Python object of each value."""
    found = array("q")
    for chunk in column.chunks:
        start = chunk.offset * found.itemsize
        found.frombytes(memoryview(chunk.buffers()[1])[start : start + len(chunk) * found.itemsize])
    return found
