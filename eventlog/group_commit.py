# SPDX-License-Identifier: Apache-2.0
"""Group commit: many requests, one append.

While an append is on its way to disk, the next events queue up. They are appended together. After an append, heartbeats
and registrations that repeat the last one gather for a moment more: brokers send them one by one, and an append costs
as much as dozens of them. An event that may change something does not wait for that moment, and neither do
`_MANY` events.

Every few seconds a CLOCK event is appended with them, so that brokers expire in time even if no broker sends anything.
The gateway asks for it, and not the process that makes the appends: while no gateway listens, no time may pass.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import structlog

from eventlog.base import Appended, Entry, Limits, LogEnd, LogRecord
from eventlog.stamps import ClockError
from runtime.supervised_tasks import critical_task
from schemas.errors import RoutelakeError, UnavailableError
from schemas.events import DEFERRABLE, Actor, Clock, Resume, encode, routing_key

log = structlog.get_logger("routelake.gateway")

MAX_GROUP_EVENTS: Final = 2_000
MAX_GROUP_BYTES: Final = 4 * 1024 * 1024
_RECORD_BYTES: Final = 32
"""Maximum overhead of a record in Kafka, bytes, in addition to key and payload."""

STOPPING: Final = "this gateway is stopping; use another address of namesrvAddr"

_REST_S: Final = (0.02, 0.1)
"""Bounds of the time in which heartbeats gather after an append, in seconds: four times as long as the append took."""
_MANY: Final = 32
"""Number of heartbeats that end this time: not all that come at once, so some are written while others are decoded."""

_PAUSE_S: Final = 0.05
"""Pause after an append that failed, in seconds. The queue fills meanwhile, and is refused as a group."""

_LATE_S: Final = 10.0
"""Duration of an append, in seconds, from which on it counts as one that will fail."""

_TICK_S: Final = 0.001
"""Resolution of uvloop's clock, in seconds."""


class LogClient(Protocol):
    """Makes the appends, one at a time. Lives on the caller's event loop."""

    @property
    def late_after_s(self) -> float | None:
        """Silence, in seconds, after which a RESUME counts, in a log that may take an append late, as Kafka may.

        None: the log never takes an append late.
        """
        ...

    @property
    def limits(self) -> Limits:
        """Maximum size of an event. The log must be open."""
        ...

    async def open(self) -> str:
        """Open the log; returns its `EventLog.lineage`.

        Raises:
            SetupError: It cannot be used as it is.
            UnavailableError: It cannot be reached.
        """
        ...

    async def end(self) -> LogEnd:
        """`EventLog.end`, as it is when this is called or later.

        Raises:
            UnavailableError: As `EventLog.end`; or the process that makes the appends has ended.
        """
        ...

    async def append(self, entries: Sequence[Entry]) -> list[Appended]:
        """`EventLog.append`, behind a RESUME event if nothing was written yet, or nothing for long.

        Returns:
            One `Appended` for each entry; in front of them the RESUME event's, if one was written.

        Raises:
            BadRequestError: As `EventLog.append`.
            UnavailableError: As `EventLog.append`; or the process that makes the appends has ended.
            InDoubtError: As `EventLog.append`; or that process ended during the append.
        """
        ...

    async def close(self) -> None:
        """Release everything, whatever is under way."""
        ...


class _Waiting(NamedTuple):
    key: str
    payload: bytes
    size: int
    done: asyncio.Future[Appended] | None


class GroupCommit:
    """Appends events to the log, a group at a time. Lives on one event loop.

    Args:
        log_client: makes the appends. The caller closes it after `stop`.
        gateway_id: names this gateway in the events it writes itself.
        clock_interval_s: time between CLOCK events.
        on_written: called with the records that have just become durable, before their senders are answered.
        max_queued_bytes: beyond this, `submit` refuses instead of growing.
    """

    def __init__(
        self,
        log_client: LogClient,
        gateway_id: str,
        *,
        clock_interval_s: float,
        on_written: Callable[[list[LogRecord]], None],
        max_queued_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._log_client = log_client
        self._actor = Actor(gateway=gateway_id, via="routelake")
        self._clock_interval_s = clock_interval_s
        self._last_stamp_ms = 0
        self._last_stamp_s = 0.0
        self._max_queued_bytes = max_queued_bytes
        self._on_written = on_written
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._immediate = False
        self._stopping = False
        self._failing = False
        self.clock_problem: str | None = None
        """Why the log refuses event times; None while the clock is believed."""
        self._began_s = 0.0
        self._rest_until_s = 0.0
        self._next_clock_s = 0.0
        self._appending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    @property
    def failing(self) -> bool:
        """Return True if the last append failed or has been under way for long: the log cannot be written now."""
        return self._failing or (self._appending is not None and self._loop.time() - self._began_s > _LATE_S)

    async def start(self) -> int:
        """Write this start's RESUME event and begin; returns its offset.

        Raises:
            UnavailableError: the log cannot be written.
        """
        self._loop = asyncio.get_running_loop()
        (resume,) = await self._log_client.append([])
        self._last_stamp_ms, self._last_stamp_s = resume.event_time_ms, self._loop.time()
        self._next_clock_s = self._loop.time() + self._clock_interval_s
        self._go_on()
        return resume.offset

    def submit(self, key: str, payload: bytes) -> asyncio.Future[Appended]:
        """Queue one encoded event; the future is done when it is durable.

        Raises:
            UnavailableError: too much is queued already, or the gateway is stopping. Nothing was accepted.
            BadRequestError: the log does not take such an event; those that wait beside it are not touched.
        """
        if self._stopping:
            raise UnavailableError(STOPPING)
        size = self._log_client.limits.check(key, payload)
        if self._queued_bytes + size > self._max_queued_bytes:
            raise UnavailableError("the event log is overloaded; try again")
        done: asyncio.Future[Appended] = self._loop.create_future()
        self._queue.append(_Waiting(key, payload, size, done))
        self._queued_bytes += size
        if not payload.startswith(DEFERRABLE):
            self._immediate = True
        self._go_on()
        return done

    async def stop(self, timeout_s: float = 2.0) -> None:
        """Write the queued events, then end. Their senders have had time for their answers (`api.main.DRAIN_S`)."""
        self._stopping = True
        self._go_on()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._appending is not None:
                    await asyncio.wait([self._appending])
        if self._timer is not None:
            self._timer.cancel()

    # --- when ---

    def _go_on(self) -> None:
        """Begin an append, or see to it that one begins in time."""
        if self._appending is not None or (self._stopping and not self._queue):
            return
        due_s = self._due_s()
        if due_s < self._loop.time() + _TICK_S:
            self._began_s = self._loop.time()  # the task begins a turn later, in which somebody may ask `failing`
            self._appending = critical_task(self._loop.create_task(self._append_next()), "event log: appends")
        elif self._timer is None or due_s < self._timer_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_s = self._loop.call_at(due_s, self._on_timer), due_s

    def _on_timer(self) -> None:
        self._timer = None
        self._go_on()

    def _due_s(self) -> float:
        if self._immediate or len(self._queue) >= _MANY or self._stopping:
            return 0.0
        return min(self._rest_until_s, self._next_clock_s) if self._queue else self._next_clock_s

    # --- what ---

    async def _append_next(self) -> None:
        """Append the gathered events, with those of the turn of the loop in which that was due."""
        group = self._take()
        self._began_s = began_s = self._loop.time()
        clock_due = self._next_clock_s < began_s + _TICK_S
        if clock_due:
            clock = Clock(actor=self._actor)
            group.append(_own(clock))
        late_after_s = self._log_client.late_after_s
        if late_after_s is not None:
            group.insert(0, self._resume_if_late(late_after_s))
        try:
            await self._append(group)
        finally:
            self._appending = None
        if clock_due and not self._failing:  # else it goes with the next: nobody expires before it is down
            self._next_clock_s = began_s + self._clock_interval_s
        ended_s = self._loop.time()
        self._rest_until_s = ended_s + min(max(4 * (ended_s - began_s), _REST_S[0]), _REST_S[1])
        self._go_on()

    def _resume_if_late(self, late_after_s: float) -> _Waiting:
        """The RESUME in front of a group, for a log that may take the group after its gateway has given it up."""
        passed_s = self._loop.time() - self._last_stamp_s
        after_ms = self._last_stamp_ms + int((passed_s + late_after_s) * 1000)
        resume = Resume(actor=self._actor, after_ms=after_ms)
        return _own(resume)

    def _take(self) -> list[_Waiting]:
        """Take the next group to append. Kafka takes it as one batch, with the RESUME in front."""
        group: list[_Waiting] = []
        limit_bytes = min(MAX_GROUP_BYTES, self._log_client.limits.event_bytes)
        taken_bytes = 0
        while self._queue and len(group) < MAX_GROUP_EVENTS:
            size = self._queue[0].size
            if group and taken_bytes + len(group) * _RECORD_BYTES + size > limit_bytes:
                break
            group.append(self._queue.popleft())
            taken_bytes += size
        self._queued_bytes -= taken_bytes
        self._immediate = self._immediate and bool(self._queue)
        return group

    async def _append(self, group: list[_Waiting]) -> None:
        try:
            written = await self._log_client.append([(entry.key, entry.payload) for entry in group])
        except Exception as error:
            if not self._failing:
                log.error("cannot write the event log", error=str(error))
            self._failing = True
            self.clock_problem = str(error) if isinstance(error, ClockError) else None
            _refuse(group, error if isinstance(error, RoutelakeError) else UnavailableError(f"event log: {error}"))
            await asyncio.sleep(_PAUSE_S)
        else:
            if self._failing:
                log.info("event log can be written again")
            self._failing, self.clock_problem = False, None
            written = written[-len(group) :]
            self._last_stamp_ms, self._last_stamp_s = written[-1].event_time_ms, self._loop.time()
            placed = list(zip(group, written, strict=True))
            self._on_written([LogRecord(*appended, entry.key, entry.payload) for entry, appended in placed])
            for entry, appended in placed:
                if entry.done is not None and not entry.done.done():
                    entry.done.set_result(appended)


def _own(event: Clock | Resume) -> _Waiting:
    key, payload = routing_key(event), encode(event)
    return _Waiting(key, payload, len(key) + len(payload), None)


def _refuse(group: list[_Waiting], error: RoutelakeError) -> None:
    for entry in group:
        if entry.done is not None and not entry.done.done():
            entry.done.set_exception(error)
