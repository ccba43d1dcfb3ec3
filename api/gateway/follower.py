# SPDX-License-Identifier: Apache-2.0
"""Follower: a thread that keeps a `RouteView` at the newest epoch.

Theory of operation. routeCommitTable is written last in every epoch, so only its rows move a view.

1. Tail: check if the next version of routeCommitTable exists (`CommitTail`; a few microseconds, every ``poll_s``). Read
   its rows. Maintenance commits have none.
2. Step: for all new epochs together, read the change data feed of the tables with a new version. Apply it to a copy of
   the view, swap the copy in, and call back with the outcomes of every epoch in between.
3. Reload: if a step is impossible, load the whole view at the newest epoch instead. That is so if the feed was
   vacuumed, the log was cleaned up, an epoch is missing, or the view is hundreds of epochs behind.
4. Look up: open the table as a whole and find its newest epoch. This is done at the start. It is also done at intervals
   if something was added to the log that is not the next version, or if the log is gone. This also detects a replaced
   lake.

After any failure the last good view stays, the failure is counted (`Follower.errors`), and the next attempt follows.
A lake that does not exist yet, or has no epoch yet, is not a failure: the view is empty until there is an epoch.

The serving thread shares the interpreter lock. Arrow and deltalake work without it. `Yielder` cuts the building of
Python rows into slices of a millisecond.

Source: hashicorp/consul agent/consul/fsm Restore (build aside, swap one reference).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from lake.commits import CommitTail, commits_between, last_exact_commit
from lake.delta.log import is_local, table_uri
from lake.view_loader import changes_between, load_view, state_logs
from nameserver.view.model import Changes
from nameserver.view.snapshot import RouteView, Yielder, no_pause
from runtime.supervised_tasks import critical_thread
from schemas.errors import one_line
from schemas.route_commit import CommandOutcome, RouteCommit
from schemas.tables import ROUTE_COMMIT_TABLE

POLL_S: Final = 0.15
"""Interval of polls while an epoch is expected, in seconds. Each poll is a small request."""
IDLE_POLL_S: Final = 10.0
OVERDUE_POLL_S: Final = 1.0
OVERDUE_AFTER_S: Final = 10.0
"""Time without an expected epoch after which it is overdue, in seconds. The fold writes a batch a second, so then it
may be down for long."""
HEARING_POLL_S: Final = 60.0
"""Interval of polls while epochs are announced, in seconds. They only find epochs with lost announcements."""

_LOOK_UP_S: Final = 5.0
"""Minimum interval between full looks at a log that changed without a next version, in seconds."""

_NO_LAKE_POLL_S: Final = 0.2
_NO_REMOTE_LAKE_POLL_S: Final = 1.0
_REMOTE_LOOK_UP_S: Final = 60.0

_MAX_EPOCHS_PER_STEP: Final = 500
"""Number of epochs above which it is cheaper to load the view than to read the feed."""

_FIRST_OUTCOMES: Final = 50
"""Number of epochs that deliver their outcomes with the first view. Their events may be younger than the load."""

_MAX_BACK_OFF_S: Final = 2.0

OnView = Callable[[RouteView, list[CommandOutcome]], None]


class Follower:
    """Follows one lake on a daemon thread of its own.

    Args:
        lake_dir: Directory or URI of the lake.
        on_view: Called on the follower's thread after each swap, with the new view and the outcomes of its epochs.
        poll_s: Interval between looks for the next version of a local log, in seconds.
        begin_exact: Load the newest epoch with exact deadlines first, and step to the others from there.
        clock: Seconds since 1970, for `commit_age_s`.

    Attributes:
        view: View of the newest epoch.
        changes: Changes that led to `view`. None: it was loaded as a whole.
        newest_offset: Offset up to which the tables were complete at the last look up.
        failing: True from a failure to the next success.
        errors: Number of all failures.
        last_error: Text of the last failure.
        steps: Number of views that were made from the one before.
        reloads: Number of views that were loaded as a whole.
        last_step_s: Duration of the last step to a newer view, in seconds.
    """

    def __init__(
        self,
        lake_dir: str,
        on_view: OnView,
        poll_s: float = 0.1,
        *,
        begin_exact: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Prepare, and open nothing before `start`."""
        self._lake_dir = str(lake_dir)
        self._on_view = on_view
        self._begin_exact = begin_exact
        self._is_local = is_local(self._lake_dir)
        self._poll_s = poll_s if self._is_local else max(poll_s, POLL_S)
        self._pace = None if self._is_local else StorePace()
        self._look_up_s = _LOOK_UP_S if self._is_local else _REMOTE_LOOK_UP_S
        self._no_lake_poll_s = _NO_LAKE_POLL_S if self._is_local else _NO_REMOTE_LAKE_POLL_S
        self._clock = clock
        self.view = RouteView.empty()
        self.changes: Changes | None = None
        self._tail = CommitTail(self._lake_dir)
        self._logs = state_logs(self._lake_dir)
        self._connected = False  # whether the next epoch continues the view, in the same lake and without a gap
        self._has_lake = False
        self._next_look_up = 0.0
        self.newest_offset = -1
        self._is_stopped = False
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self.failing = False
        self.errors = self.steps = self.reloads = 0
        self.last_error: str | None = None
        self.last_step_s = 0.0

    @property
    def commit_age_s(self) -> float | None:
        """Seconds since the shown epoch was written. None before the first."""
        commit = self.view.commit
        return max(0.0, self._clock() - commit.commit_time.timestamp()) if commit.epoch else None

    def start(self) -> None:
        """Start the thread."""
        self._thread = critical_thread(self._run, "view-follower")
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop following. The view stays."""
        self._is_stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    # `StorePace` decides when to poll a store. A local lake needs none of these methods. Callable from any thread.

    def expect(self, offset: int) -> None:
        """Expect an epoch that shows the log up to an offset."""
        if self._pace is not None:
            self._pace.expect(offset, self.view.log_offset, time.monotonic())

    def hears(self, is_so: bool, /) -> None:
        """Set whether epochs are announced to the follower from now on (`lake.announce`)."""
        if self._pace is not None:
            self._pace.hears(is_so)
            self._woken.set()

    def announced(self, version: int, /) -> None:
        """Look at once because the store has a version of routeCommitTable, unless that version has been read."""
        if self._pace is not None and version > (-1 if self._tail.version is None else self._tail.version):
            self._pace.announced()
            self._woken.set()

    def poll(self) -> bool:
        """Do one round, as the thread does every ``poll_s``.

        Returns:
            Whether the view moved.

        Raises:
            Exception: Any error. The view has not changed.
        """
        try:
            found = self._new_commits()
            if not found:
                return False
            began = time.perf_counter()
            self._advance(found)
        except BaseException:
            self._tail.close()  # the epochs that were found are lost, so the next poll opens the table as a whole
            raise
        self.last_step_s = time.perf_counter() - began
        return True

    def _run(self) -> None:
        wait_s, pace = 0.0, self._pace
        while True:
            self._woken.wait(wait_s)
            self._woken.clear()
            if self._is_stopped:
                return
            if pace is not None:
                if not pace.is_due(self.view.log_offset, time.monotonic()):
                    wait_s = self._poll_s
                    continue
                pace.look(time.monotonic())
            try:
                moved = self.poll()
            except BaseException as error:  # also deltalake's panics: no error may end this thread
                self._failed(error)
                wait_s = min(max(wait_s * 2, self._poll_s), _MAX_BACK_OFF_S)
                moved = True
            else:
                self.failing = False
                wait_s = 0.0 if moved else self._poll_s if self._has_lake else self._no_lake_poll_s
            if pace is not None and (moved or not self._has_lake):
                pace.again()

    def _failed(self, error: BaseException) -> None:
        self.last_error = f"{type(error).__name__}: {one_line(error)}"
        self.failing = True
        self.errors += 1  # last, so that a reader that sees the count sees the rest

    # --- where routeCommitTable stands ---

    def _new_commits(self) -> list[RouteCommit]:
        """Return the epochs after the last ones that were found."""
        found = self._tail.read(_MAX_EPOCHS_PER_STEP)
        if found is None:
            return self._look_up()
        if found and not self._connected:
            return self._look_up()
        if not found and time.monotonic() >= self._next_look_up:
            self._next_look_up = time.monotonic() + self._look_up_s
            if self._tail.has_moved():
                return self._look_up()
        return found

    def _look_up(self) -> list[RouteCommit]:
        """Open routeCommitTable as a whole. Return the epochs that are not shown yet."""
        opened = self._tail.open()
        self._has_lake = opened is not None
        if opened is None:
            if self.view.epoch:
                uri = table_uri(self._lake_dir, ROUTE_COMMIT_TABLE)
                raise FileNotFoundError(f"{uri} is gone; still showing epoch {self.view.epoch}")
            return []
        files, newest = opened
        found: list[RouteCommit] = []
        shown = self.view.commit
        self.newest_offset = -1 if newest is None else newest.log_offset
        self._connected = False
        if newest is not None and newest.epoch >= shown.epoch > 0:
            found = commits_between(self._lake_dir, files, first=shown.epoch)
            # The row of the shown epoch must be equal in all fields. Otherwise this is another lake, or another past.
            self._connected = found[0] == shown
            found = found[1:]
        if newest is not None and not self._connected:
            exact = last_exact_commit(self._lake_dir, files) if self._begin_exact and not shown.epoch else None
            if exact is not None:
                self._tail.close()  # the next poll finds the later epochs
                return [exact]
            found = commits_between(self._lake_dir, files, first=newest.epoch - _FIRST_OUTCOMES)
        return found

    # --- from view to view ---

    def _advance(self, found: list[RouteCommit]) -> None:
        """Bring the view to the last of these epochs, swap it in, and call back."""
        newest = found[-1]
        view, changes = None, None
        if self._connected and found[0].epoch == self.view.epoch + 1 and len(found) <= _MAX_EPOCHS_PER_STEP:
            try:
                pause = Yielder()
                changes = changes_between(self._logs, self.view.commit, newest, pause)
                view = self.view.apply(changes, pause)
                self.steps += 1
            except BaseException as error:  # the feed is gone or cannot be read, so reload
                self._failed(error)
        if view is None:
            changes = None
            view = load_view(self._lake_dir, newest, Yielder() if self.view.epoch else no_pause)
            self.reloads += 1
        self.view, self.changes, self._connected = view, changes, True
        try:
            self._on_view(view, [outcome for commit in found for outcome in commit.outcomes])
        except Exception as error:  # a defect of the caller must not make the follower read the epoch again
            self._failed(error)


class StorePace:
    """Times at which one follower polls an object store for the next epoch. Each poll is a request.

    Any thread may report epochs, and one thread polls.

    An epoch is *expected* while the live view shows more than the tables. If epochs are *announced* (`lake.announce`),
    the follower waits for the announcement. But an announcement may be lost, so it also polls at long intervals.
    """

    def __init__(self) -> None:
        self._looked_s = 0.0
        self._is_due = True
        self._hears = False
        self._expected_offset, self._expected_since_s = -1, 0.0

    def expect(self, offset: int, shown_offset: int, now_s: float) -> None:
        """Expect an epoch that shows the log up to an offset."""
        if shown_offset >= self._expected_offset:
            self._expected_since_s = now_s
        self._expected_offset = offset

    def hears(self, is_so: bool) -> None:
        """Set whether epochs are announced from now on. There may have been some before."""
        self._hears, self._is_due = is_so, True

    def announced(self) -> None:
        """Note that there is a new epoch."""
        self._is_due = True

    def is_due(self, shown_offset: int, now_s: float) -> bool:
        """Return whether to poll now."""
        if self._is_due:
            return True
        is_expected = shown_offset < self._expected_offset
        if self._hears:
            wait_s = IDLE_POLL_S if is_expected else HEARING_POLL_S
            since_s = max(self._looked_s, self._expected_since_s) if is_expected else self._looked_s
            return now_s - since_s >= wait_s
        if not is_expected:
            wait_s = IDLE_POLL_S
        else:
            wait_s = POLL_S if now_s - self._expected_since_s <= OVERDUE_AFTER_S else OVERDUE_POLL_S
        return now_s - self._looked_s >= wait_s

    def look(self, now_s: float) -> None:
        """Note that a poll begins."""
        self._is_due, self._looked_s = False, now_s

    def again(self) -> None:
        """Poll again at once, because the last poll found something or failed."""
        self._is_due = True
