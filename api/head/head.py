# SPDX-License-Identifier: Apache-2.0
"""Head: a thread that keeps a `RouteView` at the end of the event log.

Theory of operation. `HeadFold` begins at the epoch that the follower loaded first. From there on records come two ways:
this gateway's own appends are handed over as they become durable (`feed`), everybody else's are read from the log. Only
the next offset is ever taken, so it does not matter which way is quicker. Epochs arrive later, and move nothing but the
number that answers name; should the tables be ahead of the log's reader, the head begins anew from them.

What only moves deadlines is shown a few times a second, everything else at once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from api.head.fold import HeadFold
from api.view.follower import TimeSlices
from api.view.snapshot import RouteView
from lake.commits import CommandOutcome
from pipelines.log.base import LogReader, LogRecord
from schemas.errors import one_line

log = structlog.get_logger("routelake.gateway")

_SHOWN_S: Final = 0.25
"""How late, at most, a deadline that was moved is shown."""

_MANY: Final = 2_000
"""Records that are folded before the view shows them, however many are there."""

_PAUSE_S: Final = 0.5
"""After a log that could not be read."""

_SAY_S: Final = 5.0

OnView = Callable[[RouteView, list[CommandOutcome]], None]


class Head:
    """The view at the head, on a daemon thread of its own.

    Args:
        open_reader: Opens the log for reading.
        on_view: Called on the head's thread after each new view, with the outcomes of the records new in it.
        poll_s: How often the log is asked for what others wrote.
    """

    def __init__(
        self,
        open_reader: Callable[[], LogReader],
        on_view: OnView,
        poll_s: float = 0.01,
    ) -> None:
        """Nothing is opened before `begin`."""
        self._open_reader = open_reader
        self._on_view = on_view
        self._poll_s = poll_s
        self._base = RouteView.empty()
        self._fed: queue.SimpleQueue[Sequence[LogRecord]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._outcomes: list[CommandOutcome] = []
        self._next_show_s = 0.0
        self.failing = False
        self.errors = 0

    def begin(self, base: RouteView) -> RouteView:
        """Fold what the log holds beyond an epoch.

        Args:
            base: Where to begin, if its liveness is whole; else at the log's beginning.

        Returns:
            The view at the end of the log.

        Raises:
            UnavailableError: The log cannot be read.
            SetupError: It is not there, or not ours.
        """
        self._reader = self._open_reader()
        self._base = max(base, self._base, key=lambda view: view.log_offset)
        if not is_exact(base):
            base = RouteView.empty()  # in the first moments of a lake: then the log is whole, and short
        self._fold = HeadFold(base)
        said_s = time.monotonic()
        while self._read():
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                log.info("reading the log beyond the tables", offset=self._fold.offset)
        return self._publish()

    def start(self) -> None:
        """Begin to follow."""
        self._thread = threading.Thread(target=self._run, name="head", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop following; the view stays."""
        self._stop.set()
        self._fed.put(())
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._reader.close()

    def feed(self, records: Sequence[LogRecord]) -> None:
        """Records of this gateway that have just become durable, in their order. From any thread."""
        self._fed.put(records)

    def epoch_moved(self, view: RouteView) -> None:
        """The tables' view is newer. From any thread."""
        self._base = view

    @property
    def offset(self) -> int:
        """Of the last record that was folded."""
        return self._fold.offset

    def _run(self) -> None:
        wait_s = self._poll_s
        while not self._stop.is_set():
            fed: Sequence[LogRecord] = ()
            with suppress(queue.Empty):
                fed = self._fed.get(timeout=wait_s)
            try:
                self._round(fed)
                self.failing = False
                wait_s = self._poll_s
            except BaseException as error:  # nothing may end this thread
                if not self.failing:
                    log.error("the head of the log cannot be followed", error=one_line(error))
                self.failing = True
                self.errors += 1
                wait_s = _PAUSE_S

    def _round(self, fed: Sequence[LogRecord]) -> None:
        taken = 0
        while True:
            if not (fed and self._take_next(fed)):
                taken += self._read()
            else:
                taken += len(fed)
            if taken >= _MANY or self._fed.empty():
                break
            fed = self._fed.get()
        now_s = time.monotonic()
        if self._fold.is_urgent or (not self._fold.is_shown and now_s >= self._next_show_s):
            self._publish()
        elif self._base.log_offset > self._fold.offset and is_exact(self._base):
            log.warning("the tables are ahead of the log's reader", at=self._fold.offset, tables=self._base.log_offset)
            self._reader.close()
            self.begin(self._base)

    def _take_next(self, records: Sequence[LogRecord]) -> bool:
        """Take records if they are the next ones."""
        if records[-1].offset <= self._fold.offset:
            return True  # read from the log before
        if records[0].offset != self._fold.offset + 1:
            return False
        self._take(records)
        return True

    def _read(self) -> int:
        records = self._reader.read(self._fold.offset + 1)
        self._take(records)
        return len(records)

    def _take(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            outcome = self._fold.take(record)
            if outcome is not None:
                self._outcomes.append(outcome)

    def _publish(self) -> RouteView:
        epoch = self._base.commit if self._base.log_offset <= self._fold.offset else self._fold.view.commit
        view = self._fold.publish(epoch, TimeSlices())
        outcomes, self._outcomes = self._outcomes, []
        self._next_show_s = time.monotonic() + _SHOWN_S
        self._on_view(view, outcomes)
        return view


def is_exact(view: RouteView) -> bool:
    """Whether the deadlines that an epoch shows are those of its log offset: most are some seconds older."""
    return view.commit.liveness_offset == view.commit.log_offset
