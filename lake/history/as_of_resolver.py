# SPDX-License-Identifier: Apache-2.0
"""What `as_of` means: an epoch or a time becomes a commit, and the changes of the next epoch up to that time.

*The state as of time T* is the state after every change whose event time is not after T: the tables of the commit with
the greatest epoch whose ``eventTime`` is not after T, and the changes of the next epoch up to T (`between`). It is the
log's own clock; when the writer happened to commit, and how much at once, does not matter. A time after the
newest epoch means the newest epoch, unless it has not come yet: what will be then, nobody knows. Whoever asks may have
a clock that is a minute ahead.

A time before the first epoch is before all history, which is another thing than history that is not kept.

*Readable* is a commit whose tables can all be opened at its versions and whose data files are all there. Vacuum and log
clean-up take the oldest first, so the readable commits are those from some epoch on. Before it intervals and changes
answer (`long_past`), or, where the fold never kept intervals, an error names that epoch.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from lake.delta.query import check_interrupted
from lake.history.as_of import iso, unix_time_hint
from lake.history.epochs import Epochs, Recent
from lake.history.partial_epoch import commit_at
from lake.history.versions import PastTables, reading_changes
from schemas.errors import (
    BadRequestError,
    BeforeHistoryError,
    FutureEpochError,
    FutureTimeError,
    UnavailableError,
    VacuumedError,
    one_line,
)
from schemas.route_commit import NO_COMMIT, RouteCommit
from schemas.tables import ROUTE_CHANGE_TABLE, STATE_TABLES

_MOMENTS_BYTES: Final = 1024 * 1024
_MOMENT_BYTES: Final = 2_500
"""Of a moment: a commit without outcomes, and a time."""
_READERS: Final = 3
_CLOCK_SKEW: Final = timedelta(minutes=1)
"""How far ahead the clock of whoever asks may be."""
_CHECK_AGAIN_S: Final = 60.0
"""How long a commit that was found readable is taken to stay so: vacuum may run at any time."""


class AsOf(msgspec.Struct, frozen=True):
    """What ``as_of`` means.

    Attributes:
        commit: As `PastRoute.commit`.
        until: None: the tables of the commit. Else they, and the changes of the next epoch up to this time.
        kept: Whether the versions of the tables are still there; else intervals and changes say what they were.
    """

    commit: RouteCommit
    until: datetime | None = None
    kept: bool = True


@contextmanager
def or_else(way_out: str) -> Iterator[None]:
    """What to do instead, said where a moment is before the beginning. Raises BeforeHistoryError."""
    try:
        yield
    except BeforeHistoryError as error:
        raise BeforeHistoryError(f"{error}; {way_out}", **error.fields) from error


class AsOfResolver:
    """The moments of one lake. Safe for threads.

    Args:
        epochs: Its commits, refreshed by whoever asks.
        tables: Its tables.
    """

    def __init__(self, epochs: Epochs, tables: PastTables) -> None:
        """Nothing was asked yet."""
        self._epochs = epochs
        self._tables = tables
        self._known: Recent[tuple[int, datetime], AsOf] = Recent(_MOMENTS_BYTES)
        # An epoch and the monotonic time until which it is known: written whole, so threads need no lock.
        self._readable_from = (0, 0.0)
        self._unreadable_to = (0, 0.0)
        self._no_intervals_until = 0.0

    def forget(self) -> None:
        """Another lake has taken its place."""
        self._known.clear()
        self._readable_from = self._unreadable_to = (0, 0.0)
        self._no_intervals_until = 0.0

    def of(self, wanted: int | datetime | None, shown: str, name: str, *, readable: bool) -> AsOf:
        """The moment of an epoch or a time; None is the newest epoch.

        Args:
            wanted: It.
            shown: As it was said, for errors.
            name: Of the parameter, for errors.
            readable: Whether the tables must be readable then.

        Raises:
            BadRequestError: An epoch that looks like a Unix time.
            FutureEpochError, FutureTimeError: It has not come yet.
            BeforeHistoryError: The first epoch is later.
            VacuumedError: It is not kept any more, and there are no intervals.
            UnavailableError: The lake cannot be read now.
        """
        newest = self._epochs.newest
        if wanted is None:
            wanted = newest
        elif isinstance(wanted, datetime):
            self.check_has_come(wanted, shown)
        elif wanted > newest and (hint := unix_time_hint(shown, name)) is not None:
            raise BadRequestError(f"{hint}; a plain number is an epoch", field=name, value=shown)
        if newest == 0:
            raise FutureEpochError("nothing has been committed yet", newest_epoch=0)
        epoch = wanted if isinstance(wanted, int) else self._epochs.last_at(wanted)
        if epoch < self._epochs.first == 1:
            moment = self._within(wanted, NO_COMMIT)
            if moment.until is None:
                raise self._before_history(shown)
            return moment
        if epoch > newest:
            raise FutureEpochError(
                f"epoch {epoch} has not been committed yet; the newest is {newest}", epoch=epoch, newest_epoch=newest
            )
        commit = self._epochs.commit(epoch) if epoch >= self._epochs.first else None
        if commit is None:
            raise self._vacuumed(shown)
        kept = not readable or self._is_readable(commit)
        if not kept and not self._has_intervals():
            raise self._vacuumed(shown)
        return msgspec.structs.replace(self._within(wanted, commit), kept=kept)

    def _within(self, wanted: int | datetime, before: RouteCommit) -> AsOf:
        """A time, with what the epoch after ``before`` says of it."""
        if isinstance(wanted, int) or before.epoch == self._epochs.newest:
            return AsOf(before)
        later = self._epochs.commit(before.epoch + 1)
        if later is None or ROUTE_CHANGE_TABLE.name not in later.versions:
            return AsOf(before)
        moment = self._known.get((later.epoch, wanted))
        if moment is None:
            with reading_changes():
                commit = commit_at(self._tables.at(ROUTE_CHANGE_TABLE, later), before, later.epoch, wanted)
            moment = AsOf(before) if commit is before else AsOf(commit, wanted)
            self._known.put((later.epoch, wanted), moment, _MOMENT_BYTES)
        return moment

    def oldest_readable(self) -> RouteCommit | None:
        """The oldest commit that can be read; None without any. Looks at about log2(epochs) commits."""
        low, high = self._epochs.first, self._epochs.newest
        if high == 0:
            return None
        epoch = low + bisect_left(
            range(low, high + 1), True, key=lambda epoch: self._is_readable(self._epochs.commit(epoch))
        )
        return self._epochs.commit(epoch) if epoch <= high else None

    def check_has_come(self, time: datetime, shown: str) -> None:
        """Refuse a time in the future, by the clock of this machine or of the log, whichever is ahead."""
        now = datetime.now(UTC)
        if time <= now + _CLOCK_SKEW:
            return
        newest = self._epochs.commit(self._epochs.newest)
        if newest is None or time > newest.event_time + _CLOCK_SKEW:
            raise FutureTimeError(f"{shown} has not come yet; it is {iso(now)} here", time=shown, now=iso(now))

    @contextmanager
    def reading(self, commit: RouteCommit) -> Iterator[None]:
        """Whatever storage raises means: vacuumed meanwhile, or not now.

        Raises:
            VacuumedError: The commit's tables are not there any more.
            UnavailableError: They cannot be read now.
        """
        try:
            yield
        except Exception as error:
            self._readable_from = (0, 0.0)
            if commit.epoch and not self._is_readable(commit):
                raise self._vacuumed(str(commit.epoch)) from error
            raise UnavailableError(f"epoch {commit.epoch} cannot be read at the moment: {one_line(error)}") from error

    def _is_readable(self, commit: RouteCommit | None) -> bool:
        """Whether every state table can be read at a commit.

        What is newer than a readable commit is readable, and what is older than one that is not readable is not.
        """
        if commit is None:
            return False
        now = time.monotonic()
        epoch, until = self._readable_from
        if epoch and commit.epoch >= epoch and now < until:
            return True
        epoch, until = self._unreadable_to
        if commit.epoch <= epoch and now < until:
            return False
        check_interrupted()
        with ThreadPoolExecutor(_READERS, "history") as readers:
            if not all(readers.map(lambda spec: self._tables.has_files(spec, commit), STATE_TABLES)):
                newest = self._epochs.newest
                # Where the newest cannot be read, either, it is storage that does not answer.
                if commit.epoch < newest and self._is_readable(self._epochs.commit(newest)):
                    self._unreadable_to = (commit.epoch, time.monotonic() + _CHECK_AGAIN_S)
                return False
        self._readable_from = (commit.epoch, time.monotonic() + _CHECK_AGAIN_S)
        return True

    def _has_intervals(self) -> bool:
        """As `PastTables.has_intervals`; that there are none is remembered for a while."""
        if time.monotonic() < self._no_intervals_until:
            return False
        found = self._tables.has_intervals()
        if not found:
            self._no_intervals_until = time.monotonic() + _CHECK_AGAIN_S
        return found

    def _before_history(self, as_of: str) -> BeforeHistoryError:
        first = self._epochs.commit(1)
        time = None if first is None else iso(first.event_time)
        text = f"{as_of} is before the beginning of this history: epoch 1" + (f" of {time}" if time else "")
        return BeforeHistoryError(text, as_of=as_of, first_epoch=1, first_time=time)

    def _vacuumed(self, as_of: str) -> VacuumedError:
        oldest = self.oldest_readable()
        if oldest is None:
            return VacuumedError(f"{as_of} cannot be read, and nor can any other epoch", as_of=as_of)
        return VacuumedError(
            f"{as_of} is before the oldest state that is kept: epoch {oldest.epoch} of {iso(oldest.event_time)}",
            as_of=as_of,
            oldest_epoch=oldest.epoch,
            oldest_time=iso(oldest.event_time),
        )
