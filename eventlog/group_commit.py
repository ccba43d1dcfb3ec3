# SPDX-License-Identifier: Apache-2.0
"""Group commit: one append for the events of many requests.

During an append, the next events wait in a queue. They are then appended together. After an append, heartbeats and
registrations that repeat the last one wait a little longer, because an append costs as much as dozens of events. An
event that may change something does not wait for this time, and neither do `_MANY` events.

Every few seconds a CLOCK event is appended with them, so that brokers expire in time even if no broker sends anything.
The gateway adds this event, and not the process that writes the log. While no gateway listens, no event time may pass.
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
from schemas.events import DEFERRABLE, Actor, Clock, EventEncoder, Resume, routing_key

log = structlog.get_logger("routelake.gateway")

MAX_GROUP_EVENTS: Final = 2_000
MAX_GROUP_BYTES: Final = 4 * 1024 * 1024
_RECORD_BYTES: Final = 32
"""Maximum overhead of a record in Kafka, bytes, in addition to key and payload."""

STOPPING: Final = "this gateway is stopping; use another address of namesrvAddr"

_REST_S: Final = (0.02, 0.1)
"""Minimum and maximum time for which heartbeats wait after an append, in seconds. The time is four times the append."""
_MANY: Final = 32
"""Number of heartbeats that ends this time. It is low, so that some are written while others are still decoded."""

_PAUSE_S: Final = 0.05
"""Pause after a failed append, in seconds. The events that arrive in the pause share the next append."""

_LATE_S: Final = 10.0
"""Duration of an append, in seconds, after which it counts as failing."""

_TICK_S: Final = 0.001
"""Resolution of uvloop's clock, in seconds."""


class LogClient(Protocol):
    """Client that appends to the log, one append at a time. Belongs to the caller's event loop."""

    @property
    def late_after_s(self) -> float | None:
        """Silence after which a RESUME event counts, in seconds, in a log that may take an append late.

        Kafka is such a log. None: the log never takes an append late.
        """
        ...

    @property
    def limits(self) -> Limits:
        """Maximum size of an event. The log must be open."""
        ...

    async def open(self) -> str:
        """Open the log. Returns its `EventLog.lineage`.

        Raises:
            SetupError: The log cannot be used as it is.
            UnavailableError: The log cannot be reached.
        """
        ...

    async def end(self) -> LogEnd:
        """Return `EventLog.end`, as of this call or later.

        Raises:
            UnavailableError: As `EventLog.end`, or the writer process has exited.
        """
        ...

    async def append(self, entries: Sequence[Entry]) -> list[Appended]:
        """Append like `EventLog.append`. A RESUME event comes first at the first append and after a long silence.

        Returns:
            One `Appended` for each entry. If a RESUME event was written, its `Appended` comes first.

        Raises:
            BadRequestError: As `EventLog.append`.
            UnavailableError: As `EventLog.append`, or the writer process has exited.
            InDoubtError: As `EventLog.append`, or the writer process exited during the append.
        """
        ...

    async def close(self) -> None:
        """Release all resources, even during an append."""
        ...


Then = Callable[["asyncio.Future[Appended]", Appended], None]
"""Completes the future of an event that has become durable."""


class _Waiting(NamedTuple):
    key: str
    payload: bytes
    size: int
    done: asyncio.Future[Appended] | None
    then: Then = asyncio.Future.set_result


class GroupCommit:
    """Appends events to the log, one group at a time. Belongs to one event loop.

    Args:
        log_client: Client that appends. The caller closes it after `stop`.
        gateway_id: Name of this gateway in its own events.
        clock_interval_s: Time between CLOCK events, in seconds.
        on_written: Callback with the records that have become durable, before their senders are answered.
        max_queued_bytes: Maximum size of the queue, in bytes. At the limit, `submit` refuses events.
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
        self._encoder = EventEncoder()
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
        """Reason why the log refuses the clock's time, or None."""
        self._began_s = 0.0
        self._rest_until_s = 0.0
        self._next_clock_s = 0.0
        self._appending: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    @property
    def failing(self) -> bool:
        """Return True if the log cannot be written now: the last append failed, or the current one takes too long."""
        return self._failing or (self._appending is not None and self._loop.time() - self._began_s > _LATE_S)

    async def start(self) -> int:
        """Write the RESUME event of this start, and begin. Returns the event's offset.

        Raises:
            UnavailableError: The log cannot be written.
        """
        self._loop = asyncio.get_running_loop()
        (resume,) = await self._log_client.append([])
        self._last_stamp_ms, self._last_stamp_s = resume.event_time_ms, self._loop.time()
        self._next_clock_s = self._loop.time() + self._clock_interval_s
        self._go_on()
        return resume.offset

    def submit(self, key: str, payload: bytes, then: Then = asyncio.Future.set_result) -> asyncio.Future[Appended]:
        """Queue one encoded event. The future completes when the event is durable.

        Args:
            key: Routing key of the event.
            payload: The encoded event.
            then: Called with the future and its result when the event is durable. It completes the future, now or
                later.

        Raises:
            UnavailableError: The queue is full, or the gateway is stopping. The event was not queued.
            BadRequestError: The event is too large for the log. Other queued events are not affected.
        """
        if self._stopping:
            raise UnavailableError(STOPPING)
        size = self._log_client.limits.check(key, payload)
        if self._queued_bytes + size > self._max_queued_bytes:
            raise UnavailableError("the event log is overloaded; try again")
        done: asyncio.Future[Appended] = self._loop.create_future()
        self._queue.append(_Waiting(key, payload, size, done, then))
        self._queued_bytes += size
        if not payload.startswith(DEFERRABLE):
            self._immediate = True
        self._go_on()
        return done

    async def stop(self, timeout_s: float = 2.0) -> None:
        """Write the queued events, then stop. The gateway has already given answers time (`api.main.DRAIN_S`)."""
        self._stopping = True
        self._go_on()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._appending is not None:
                    await asyncio.wait([self._appending])
        if self._timer is not None:
            self._timer.cancel()

    # --- time of the next append ---

    def _go_on(self) -> None:
        """Begin an append, or set the timer for the next one."""
        if self._appending is not None or (self._stopping and not self._queue):
            return
        due_s = self._due_s()
        if due_s < self._loop.time() + _TICK_S:
            self._began_s = self._loop.time()  # for `failing`, as the task begins one turn of the loop later
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

    # --- events of the next append ---

    async def _append_next(self) -> None:
        """Append the queued events, including those of the turn of the loop in which the append became due."""
        group = self._take()
        self._began_s = began_s = self._loop.time()
        clock_due = self._next_clock_s < began_s + _TICK_S
        if clock_due:
            group.append(self._own(Clock(actor=self._actor)))
        late_after_s = self._log_client.late_after_s
        if late_after_s is not None:
            group.insert(0, self._resume_if_late(late_after_s))
        try:
            await self._append(group)
        finally:
            self._appending = None
        if clock_due and not self._failing:  # otherwise the next append has it: without it no broker expires
            self._next_clock_s = began_s + self._clock_interval_s
        ended_s = self._loop.time()
        self._rest_until_s = ended_s + min(max(4 * (ended_s - began_s), _REST_S[0]), _REST_S[1])
        self._go_on()

    def _resume_if_late(self, late_after_s: float) -> _Waiting:
        """Return the RESUME event in front of a group. The log may take the group after its gateway has given up."""
        passed_s = self._loop.time() - self._last_stamp_s
        after_ms = self._last_stamp_ms + int((passed_s + late_after_s) * 1000)
        return self._own(Resume(actor=self._actor, after_ms=after_ms))

    def _take(self) -> list[_Waiting]:
        """Take the next group from the queue. The group and its RESUME event fit into one Kafka batch."""
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

    def _own(self, event: Clock | Resume) -> _Waiting:
        key, payload = routing_key(event), self._encoder.encode(event)
        return _Waiting(key, payload, len(key) + len(payload), None)

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
                    entry.then(entry.done, appended)


def _refuse(group: list[_Waiting], error: RoutelakeError) -> None:
    for entry in group:
        if entry.done is not None and not entry.done.done():
            entry.done.set_exception(error)
