# SPDX-License-Identifier: Apache-2.0
"""Live view: a thread that keeps a `RouteView` at the end of the event log.

`LiveState` begins at the epoch that the follower loaded first. From there on, records come in two ways. The gateway's
own events are handed over when they are durable (`feed`), and all others are read from the event log. Only the next
offset is ever applied, so it does not matter which way is quicker. Epochs arrive later (`epoch_moved`), and change only
the epoch number that answers name. At each epoch, the state of the live view at the epoch's offset is compared with the
tables (`check`). If they differ, answers follow the live view, because the tables are made from the event log. The
difference is an alarm: an operator rebuilds the tables.

In fallback mode, answers follow the committed view. The mode begins in these cases:

- The epochs have another version of the state machine, or go back, as after the restore of a backup.
- The event log lacks the next record, or cannot be read while the tables advance.
- A defect is met.

The mode ends with the next epoch of the same version that lacks no heartbeat.

A view that only moves deadlines is shown a few times a second. Every other view is shown at once. If showing takes
long, as with registrations of ten thousand topics, the next changes are shown together.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from api.live_view.check_results import CheckResults
from api.live_view.live_state import LiveState
from eventlog.base import LOST_LOG, LogReader, LogRecord, lacks
from nameserver.state_machine.version import STATE_MACHINE_VERSION
from nameserver.view.model import Changes
from nameserver.view.snapshot import RouteView, Yielder
from runtime.supervised_tasks import critical_thread
from schemas.errors import RoutelakeError, SetupError, UnavailableError, one_line
from schemas.route_commit import CommandOutcome, RouteCommit

log = structlog.get_logger("routelake.gateway")

_SHOWN_S: Final = 0.25
"""Maximum delay until a moved deadline is shown, in seconds."""

_LONG_S: Final = 0.005
_REST: Final = (4, 0.25)
"""Wait after a view that took `_LONG_S` or more: multiple of that time, and maximum in seconds."""

_MANY: Final = 2_000
"""Number of applied records after which the view shows them before more are read."""

_ALONE_POLL_S: Final = 0.04
"""Interval between reads of the log for others' records while no other gateway writes, in seconds."""
_ALONE_AFTER_S: Final = 30.0
"""Time without a record of others after which no other gateway writes, in seconds. A gateway writes a CLOCK every few
seconds."""

_PAUSE_S: Final = 0.5
"""Wait after a failed read of the log, in seconds."""

_SAY_S: Final = 5.0

_MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of records that are fed and not yet taken, in bytes."""

_MOST_GATEWAYS: Final = 10_000
"""Maximum number of gateway ids that are remembered."""

OnView = Callable[[RouteView, int, list[CommandOutcome]], None]
"""Function of a view, of the offset up to which it shows everything except deadlines, and of the outcomes of the
records since the last call."""


class _Epoch(NamedTuple):
    view: RouteView
    changes: Changes | None
    outcomes: list[CommandOutcome]


class LiveReplica:
    """Live view on a daemon thread of its own.

    Args:
        open_reader: Opens the log for reading.
        on_view: Called on this thread after each new view, and with the same view if there are only outcomes.
        poll_s: Interval between reads of the log for others' records while others write, in seconds.
        evidence: File for differences between live view and tables.
        gateway_id: Id under which this gateway writes.

    Attributes:
        fallback_reason: Reason why answers follow the committed view. None if they follow the live view.
        failing: Whether the log cannot be read now.
        checks: Results of comparing live view and tables.
        waiting_bytes: Size of records of this gateway that it has not taken yet.
    """

    def __init__(
        self,
        open_reader: Callable[[], LogReader],
        on_view: OnView,
        poll_s: float = 0.01,
        evidence: Path | None = None,
        gateway_id: str = "",
    ) -> None:
        """Prepare, and open nothing before `begin`."""
        self._open_reader = open_reader
        self._on_view = on_view
        self._poll_s = poll_s
        self._gateway_id = gateway_id
        self._others_s = time.monotonic()
        """Time at which the last record of another gateway was taken."""
        self._reader: LogReader | None = None
        self._state: LiveState | None = None
        self._tables = RouteView.empty()
        self._is_compared = True
        self._fed: queue.SimpleQueue[Sequence[LogRecord]] = queue.SimpleQueue()
        self._fed_lock = threading.Lock()
        self.waiting_bytes = 0
        self._epochs: queue.SimpleQueue[_Epoch] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._outcomes: list[CommandOutcome] = []
        self._next_show_s = 0.0
        self._rest_until_s = 0.0
        self._said_s = 0.0
        self._last_ms = 0
        """Greatest event time that was read."""
        self._heard_ms: dict[str, int] = {}
        self.fallback_reason: str | None = None
        self.failing = False
        self.errors = 0
        self.checks = CheckResults(evidence)

    def heard_ms(self) -> dict[str, int]:
        """Return the time of the last event of each gateway, by gateway id. Callable from any thread."""
        return self._heard_ms.copy()

    # --- life ---

    def begin(self, base: RouteView) -> RouteView:
        """Apply the records of the event log after an epoch.

        Args:
            base: View to begin at, if its liveness is complete. Otherwise the live view begins with the log.

        Returns:
            View at the end of the log. ``base`` itself if it has another version of the rules.

        Raises:
            UnavailableError: The log cannot be read.
            SetupError: The log does not exist, belongs to another lake, or lacks records.
        """
        self._tables = base
        problem = state_machine_problem(base.commit)
        if problem is not None:
            self._fall_back(problem)
            return base
        if base.commit.is_exact:
            return self._begin(base)
        # This is so shortly after the start of a new lake. Then the log is complete and short.
        return self._begin(RouteView.empty(), everything=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread = critical_thread(self._run, "live-view")
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop following. The view stays."""
        self._stop.set()
        self._fed.put(())
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._reader is not None:
            self._reader.close()

    # --- called from other threads ---

    def feed(self, records: Sequence[LogRecord]) -> None:
        """Take over records of this gateway that have just become durable, in their order. Callable from any thread.

        If too many wait, the records are dropped. Then they are read from the log.
        """
        size = _payload_bytes(records)
        with self._fed_lock:
            if self.waiting_bytes + size > _MOST_WAITING_BYTES:
                return
            self.waiting_bytes += size
            self._fed.put(records)

    def epoch_moved(self, view: RouteView, changes: Changes | None, outcomes: list[CommandOutcome]) -> None:
        """Take a newer view of the tables, and the changes that led to it. None: it was loaded as a whole."""
        self._epochs.put(_Epoch(view, changes, outcomes))

    # --- the thread ---

    def _run(self) -> None:
        wait_s = self._poll_s
        while not self._stop.is_set():
            fed: Sequence[LogRecord] = ()
            with suppress(queue.Empty):
                fed = self._next_fed(wait_s)
            is_alone = time.monotonic() - self._others_s > _ALONE_AFTER_S
            wait_s = max(self._poll_s, _ALONE_POLL_S) if is_alone else self._poll_s
            try:
                self._round(fed)
                self.failing = False
            except UnavailableError as error:
                if not self.failing:
                    log.error("cannot read the event log; the live view is not updated", error=one_line(error))
                self.failing = True
                self.errors += 1
                wait_s = _PAUSE_S
                if self._state is not None and self._tables.log_offset > self._state.offset:
                    self._fall_back(f"the event log cannot be read: {one_line(error)}")
            except SetupError as error:
                self._fall_back(one_line(error))
            except BaseException as error:  # no error may end this thread
                log.exception("unexpected error in the live view")
                self.errors += 1
                self._fall_back(f"a defect: {type(error).__name__}: {one_line(error)}")

    def _next_fed(self, timeout_s: float | None = None) -> Sequence[LogRecord]:
        fed = self._fed.get(timeout=timeout_s)
        with self._fed_lock:
            self.waiting_bytes -= _payload_bytes(fed)
        return fed

    def _round(self, fed: Sequence[LogRecord]) -> None:
        self._take_epochs()
        state, taken = self._state, 0
        while state is not None:
            taken += len(fed) if fed and self._take_next(state, fed) else self._read(state)
            if taken >= _MANY or self._fed.empty():
                break
            fed = self._next_fed()
        if state is None:
            return
        epoch = self._tables.epoch if self._tables.log_offset <= state.offset else 0
        is_late = not state.is_shown or state.view.epoch < epoch
        now_s = time.monotonic()
        if (state.is_urgent and now_s >= self._rest_until_s) or (is_late and now_s >= self._next_show_s):
            self._publish(state)
        elif self._outcomes and not state.is_urgent:
            self._show(state)
        if self._tables.log_offset <= state.offset:
            if not state.is_urgent:  # otherwise after the view shows the records
                self._compare(state)
        elif not taken and self._tables.commit.is_exact:
            log.warning(
                "tables are ahead of the live view; restarting it", offset=state.offset, tables=self._tables.log_offset
            )
            self.checks.unchecked += 1
            self._begin_anew(self._tables)

    def _take_epochs(self) -> None:
        with suppress(queue.Empty):
            while True:
                epoch = self._epochs.get_nowait()
                if epoch.view is not self._tables:  # that is the view at which the live view began
                    self._take_epoch(epoch)

    def _take_epoch(self, epoch: _Epoch) -> None:
        before, self._tables = self._tables, epoch.view
        problem = state_machine_problem(epoch.view.commit)
        if problem is not None and self.fallback_reason != problem:
            self._fall_back(problem)
        elif self._state is not None and epoch.view.log_offset < before.log_offset:
            self._fall_back(f"the tables went back from offset {before.log_offset} to {epoch.view.log_offset}")
        if self._state is not None:
            self._state.moved(epoch.changes)
            self._is_compared = False
        elif problem is not None or not epoch.view.commit.is_exact or not self._came_back(epoch):
            self._on_view(epoch.view, epoch.view.log_offset, epoch.outcomes)

    def _came_back(self, epoch: _Epoch) -> bool:
        self._outcomes = [*epoch.outcomes]
        try:
            self._begin(epoch.view)
        except RoutelakeError as error:
            self._state = None
            log.warning("cannot leave fallback mode yet", error=one_line(error))
            return False
        log.info("fallback mode ended: serving the live view", epoch=epoch.view.epoch, reason=self.fallback_reason)
        self.fallback_reason = None
        return True

    def _fall_back(self, why: str) -> None:
        """Start fallback mode."""
        log.error("fallback mode: serving the committed view, cannot apply the event log", reason=why)
        self.fallback_reason, self._state, self.failing = why, None, False
        self._outcomes.clear()
        with suppress(Exception):  # the caller may be handling another error
            self._on_view(self._tables, self._tables.log_offset, [])

    # --- records ---

    def _begin(self, base: RouteView, *, everything: bool = False) -> RouteView:
        if self._reader is not None:
            self._reader.close()
        self._reader = self._open_reader()
        self._state = state = LiveState(base, everything=everything)
        self._is_compared = not everything
        self._last_ms, self._said_s = 0, time.monotonic()
        while self._read(state):
            if time.monotonic() - self._said_s > _SAY_S:
                self._said_s = time.monotonic()
                log.info("reading the event log after the last epoch", offset=state.offset)
        return self._publish(state)

    def _begin_anew(self, base: RouteView) -> None:
        try:
            self._begin(base)
        except RoutelakeError as error:
            self._fall_back(f"the live view cannot begin again: {one_line(error)}")

    def _take_next(self, state: LiveState, records: Sequence[LogRecord]) -> bool:
        """Take records if they are the next ones. Return False if they are not.

        Raises:
            SetupError: The log has other records in their place.
        """
        if records[-1].offset <= state.offset:  # they were read from the log before
            if records[-1].event_time_ms > self._last_ms > 0:
                raise SetupError(f"the event log was cut before offset {records[-1].offset} and goes on. {LOST_LOG}")
            return True
        if records[0].offset != state.offset + 1:
            return False
        self._take(state, records)
        return True

    def _read(self, state: LiveState) -> int:
        """Take the next records of the log, and return their number.

        Raises:
            UnavailableError: The log cannot be read.
            SetupError: The log lacks the next record.
        """
        assert self._reader is not None
        first = state.offset + 1
        records = self._reader.read(first)
        if lacks(self._reader, first, records):
            raise SetupError(f"the event log lacks the records from offset {first} on. {LOST_LOG}")
        self._take(state, records)
        return len(records)

    def _take(self, state: LiveState, records: Sequence[LogRecord]) -> None:
        if len(self._heard_ms) > _MOST_GATEWAYS:  # most are ids of long ago
            self._heard_ms = {}
        for record in records:
            outcome = state.take(record)
            if state.gateway_id != self._gateway_id:
                self._others_s = time.monotonic()
            self._last_ms = max(self._last_ms, record.event_time_ms)
            self._heard_ms[state.gateway_id] = record.event_time_ms
            if outcome is not None:
                self._outcomes.append(outcome)

    # --- views ---

    def _publish(self, state: LiveState) -> RouteView:
        epoch = self._tables.commit if self._tables.log_offset <= state.offset else state.view.commit
        began_s = time.monotonic()
        view = state.publish(epoch, Yielder())
        ended_s = time.monotonic()
        self._next_show_s = ended_s + _SHOWN_S
        took_s = ended_s - began_s
        self._rest_until_s = ended_s + min(_REST[0] * took_s, _REST[1]) if took_s >= _LONG_S else 0.0
        self._show(state)
        return view

    def _show(self, state: LiveState) -> None:
        outcomes, self._outcomes = self._outcomes, []
        self._on_view(state.view, state.offset, outcomes)

    def _compare(self, state: LiveState) -> None:
        if self._is_compared:
            return
        self._is_compared = True
        tables = self._tables
        self.checks.count(state.compare(tables, Yielder()), tables, state.offset)


def _payload_bytes(records: Sequence[LogRecord]) -> int:
    return sum(len(record.payload) for record in records)


def state_machine_problem(commit: RouteCommit) -> str | None:
    """Return the problem if other rules than this gateway's made an epoch. None if there is no problem."""
    if commit.epoch == 0 or commit.rules_version == STATE_MACHINE_VERSION:
        return None
    return (
        f"the tables are folded by version {commit.rules_version} of the rules, this gateway has version "
        f"{STATE_MACHINE_VERSION}: upgrade the older one"
    )
