# SPDX-License-Identifier: Apache-2.0
"""Points in time: the text of ``as_of`` becomes an epoch or a time, and with the index of epochs a point in time.

*The state as of time T* is the state after every change whose event time is not after T: the tables of the commit with
the greatest epoch whose ``eventTime`` is not after T, and the changes of the next epoch up to T. It is the log's own
clock; when the writer happened to commit, and how much at once, does not matter. A time after the newest epoch means
the newest epoch, unless it has not come yet. The clock of the client may be a minute ahead.

Between two points in time lie the changes that lead from what ``as_of`` shows at the one to what it shows at the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from lake.delta import query
from lake.history.epochs import Epochs, Recent
from schemas.errors import BadRequestError, BeforeHistoryError, FutureEpochError, FutureTimeError, VacuumedError
from schemas.route_commit import NO_COMMIT, RouteCommit
from schemas.tables import ROUTE_CHANGE_TABLE

NOW: Final = "now"
_EPOCH: Final = re.compile(r"[0-9]{1,18}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?")
_UNIX: Final = {
    10: ("seconds", 1),
    13: ("milliseconds", 10**3),
    16: ("microseconds", 10**6),
    19: ("nanoseconds", 10**9),
}
"""By number of digits, as it has been since 2001 and will be until 2286."""
_UNIX_TIME: Final = re.compile(r"(\d{10}|\d{13}|\d{16}|\d{19})(\.\d+)?", re.ASCII)
_LOST_PLUS: Final = re.compile(r"(.*\d) (\d\d:\d\d)")
_MOMENTS_BYTES: Final = 1024 * 1024
_POINT_BYTES: Final = 2_500
"""Memory of a point in time: a commit without outcomes, and a time."""
_CLOCK_SKEW: Final = timedelta(minutes=1)
"""Difference by which the clock of a client may be ahead."""


def parse_as_of(value: str, name: str = "as_of") -> int | datetime:
    """An epoch, or an aware time in UTC.

    Raises:
        BadRequestError: It is neither, or a time without offset.
    """
    if _EPOCH.fullmatch(value.strip()):
        return int(value)
    return _parse_time(value, name)


def unix_time_hint(value: str, name: str) -> str | None:
    """Advice on what to write in place of a Unix time; None for what does not look like one."""
    found = _UNIX_TIME.fullmatch(value.strip())
    if found is None:
        return None
    unit, per_second = _UNIX[len(found[1])]
    time = rfc3339(datetime.fromtimestamp(int(found[1]) // per_second, UTC))
    return f"{name} looks like a Unix time in {unit}: write {name}={time} for {value}"


def _parse_time(value: str, name: str) -> datetime:
    """An RFC 3339 time in UTC.

    A space in place of the offset's plus sign is taken as one: that is what an unescaped + in a URL becomes.

    Raises:
        BadRequestError: It is none, or names no offset.
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
        commit: As `PastRoute.commit`.
        until: None: the tables of the commit. Else they, and the changes of the next epoch up to this time.
    """

    commit: RouteCommit
    until: datetime | None = None

    @property
    def place(self) -> tuple[int, datetime]:
        """Its place in the order of points in time."""
        return self.commit.epoch, self.until or datetime.min.replace(tzinfo=UTC)

    @property
    def last_epoch(self) -> int:
        """The last epoch of which it shows something."""
        return self.commit.epoch + (self.until is not None)

    def shows(self, epoch: int, event_time: datetime) -> bool:
        """Say whether a change is in the state at this point in time."""
        within = self.until is not None and epoch == self.commit.epoch + 1 and event_time <= self.until
        return epoch <= self.commit.epoch or within

    @property
    def changes(self) -> str:
        """SQL on routeChangeTable: the changes that `shows` says yes to."""
        epoch = self.commit.epoch
        return f'"epoch" <= {epoch}' if self.until is None else up_to(epoch + 1, self.until)


def up_to(epoch: int, time: datetime) -> str:
    """SQL on routeChangeTable: changes up to a time of an epoch."""
    return f'("epoch" < {epoch} OR ("epoch" = {epoch} AND "eventTime" <= {query.time(time)}))'


def between(before: AsOf | None, after: AsOf) -> str:
    """SQL on routeChangeTable: changes after one point in time, or from the beginning on, up to another."""
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


class AsOfResolver:
    """The points in time of one lake. Safe for threads.

    Args:
        epochs: Its commits, refreshed before each question.
        last_change: Reads the time and the offset of the last change of a commit's epoch up to a time; None for none.
    """

    def __init__(
        self, epochs: Epochs, last_change: Callable[[RouteCommit, datetime], tuple[datetime, int] | None]
    ) -> None:
        """Nothing was asked yet."""
        self._epochs = epochs
        self._last_change = last_change
        self._known: Recent[tuple[int, datetime], AsOf] = Recent(_MOMENTS_BYTES)

    def forget(self) -> None:
        """Another lake has taken its place."""
        self._known.clear()

    def of(self, wanted: int | datetime | None, shown: str, name: str) -> AsOf:
        """The point in time of an epoch or a time; None is the newest epoch.

        Args:
            wanted: It.
            shown: As it was said, for errors.
            name: Of the parameter, for errors.

        Raises:
            BadRequestError: An epoch that looks like a Unix time.
            FutureEpochError, FutureTimeError: It has not come yet.
            BeforeHistoryError: The first epoch is later.
            VacuumedError: It is before the first epoch that is recorded.
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
            point = self._within(wanted, NO_COMMIT)
            if point.until is None:
                raise self._before_history(shown)
            return point
        if epoch > newest:
            raise FutureEpochError(
                f"epoch {epoch} has not been committed yet; the newest is {newest}", epoch=epoch, newest_epoch=newest
            )
        commit = self._epochs.commit(epoch) if epoch >= self._epochs.first else None
        if commit is None:
            raise self._vacuumed(shown)
        return self._within(wanted, commit)

    def _within(self, wanted: int | datetime, before: RouteCommit) -> AsOf:
        """A time, with what the epoch after ``before`` says of it."""
        if isinstance(wanted, int) or before.epoch == self._epochs.newest:
            return AsOf(before)
        later = self._epochs.commit(before.epoch + 1)
        if later is None or ROUTE_CHANGE_TABLE.name not in later.versions:
            return AsOf(before)
        point = self._known.get((later.epoch, wanted))
        if point is None:
            found = self._last_change(later, wanted)
            if found is None:
                point = AsOf(before)
            else:
                # An expiry has the offset of its broker's last heartbeat.
                time, offset = max(before.event_time, found[0]), max(before.log_offset, found[1])
                point = AsOf(msgspec.structs.replace(before, log_offset=offset, event_time=time), wanted)
            self._known.put((later.epoch, wanted), point, _POINT_BYTES)
        return point

    def check_has_come(self, time: datetime, shown: str) -> None:
        """Refuse a time in the future, by the clock of this machine or of the log, whichever is ahead."""
        now = datetime.now(UTC)
        if time <= now + _CLOCK_SKEW:
            return
        newest = self._epochs.commit(self._epochs.newest)
        if newest is None or time > newest.event_time + _CLOCK_SKEW:
            raise FutureTimeError(f"{shown} is in the future; it is {rfc3339(now)} here", time=shown, now=rfc3339(now))

    def _before_history(self, as_of: str) -> BeforeHistoryError:
        first = self._epochs.commit(1)
        time = None if first is None else rfc3339(first.event_time)
        text = f"{as_of} is before the first epoch: epoch 1" + (f" of {time}" if time else "")
        return BeforeHistoryError(text, as_of=as_of, first_epoch=1, first_time=time)

    def _vacuumed(self, as_of: str) -> VacuumedError:
        oldest = self._epochs.commit(self._epochs.first)
        if oldest is None:
            return VacuumedError(f"{as_of} is not recorded, and nor is any other epoch", as_of=as_of)
        return VacuumedError(
            f"{as_of} is before the oldest state that is kept: epoch {oldest.epoch} of {rfc3339(oldest.event_time)}",
            as_of=as_of,
            oldest_epoch=oldest.epoch,
            oldest_time=rfc3339(oldest.event_time),
        )
