"""Group commit: many requests, one append.

One thread owns the event log. While an append is on its way to disk the next events queue up, and go down together.
After an append heartbeats, and registrations that repeat the last one, gather for a moment more: brokers send them one
by one, an append costs as much as dozens of them, and it takes the interpreter from the thread that answers. What may
change something does not wait for that, nor do many. It also keeps the log's time honest:

* every few seconds a CLOCK event, so that brokers expire when their time has come, whoever else is talking;
* nothing written for much longer (this process was stopped, suspended or cut off): a RESUME event before anything else,
  so that the time in which nobody listened counts against no broker.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from pipelines.log.base import Appended, EventLog
from schemas.errors import BadRequestError, RoutelakeError, UnavailableError
from schemas.events import PATIENT, Actor, AnyEvent, Clock, Resume, encode, routing_key

log = structlog.get_logger("routelake.gateway")

Done = Callable[[Appended | RoutelakeError], None]
"""Called when an event is durable, or was not accepted."""

Entry = tuple[str, bytes, Done | None]

MAX_GROUP_EVENTS: Final = 2_000
MAX_GROUP_BYTES: Final = 32 * 1024 * 1024

_REST_S: Final = (0.005, 0.1)
"""In which heartbeats gather after an append: four times as long as it took, within these bounds. An append takes long
where the thread that answers is busy: it has to get the interpreter from it several times."""
_MANY: Final = 64
"""Heartbeats that wait no longer."""

_NUDGE_S: Final = 0.2
"""Between CLOCK events that somebody asked for, however many ask."""


class LogWriter:
    """Appends events to the log from one thread.

    Args:
        event_log: the log; owned by the caller, who closes it after `stop`.
        gateway_id: names this gateway in the events it writes itself.
        clock_interval_s: time between CLOCK events.
        gap_s: silence after which a RESUME event is due; longer than the former.
        deliver: how to call what calls the ``done`` of a group; called on the writer's thread.
        max_queued_bytes: beyond this, `submit` refuses instead of growing.
    """

    def __init__(
        self,
        event_log: EventLog,
        gateway_id: str,
        *,
        clock_interval_s: float,
        gap_s: float,
        deliver: Callable[[Callable[[], None]], object],
        max_queued_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._log = event_log
        self._actor = Actor(gateway=gateway_id, via="routelake")
        self._clock_interval_s = clock_interval_s
        self._gap_s = gap_s
        self._deliver = deliver
        self._max_queued_bytes = max_queued_bytes
        self._queue: deque[Entry] = deque()
        self._queued_bytes = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._urgent = False
        self._resting = False
        self._rest_until_s = 0.0
        self._last_append_s: float | None = None
        self._next_clock_s = self._last_clock_s = 0.0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)

    @property
    def failing(self) -> bool:
        """Whether the last append failed; the log cannot be written at the moment."""
        return self._failing

    def start(self) -> int:
        """Write this start's RESUME event and begin; returns its offset.

        Raises:
            UnavailableError: the log cannot be written.
        """
        offset = self._log.append([self._resume()])[0].offset
        self._last_append_s = time.time()
        self._next_clock_s = time.monotonic() + self._clock_interval_s
        self._thread.start()
        return offset

    def submit(self, key: str, payload: bytes, done: Done) -> None:
        """Queue one encoded event; ``done`` is called once.

        Raises:
            UnavailableError: too much is queued already, or the gateway is stopping. Nothing was accepted.
        """
        with self._wake:
            if self._stopping:
                raise UnavailableError("this gateway is stopping; use another address of namesrvAddr")
            if self._queued_bytes + len(payload) > self._max_queued_bytes:
                raise UnavailableError("the event log does not keep up; try again")
            self._queue.append((key, payload, done))
            self._queued_bytes += len(payload)
            if not payload.startswith(PATIENT):
                self._urgent = True
            if not self._resting or self._is_due():
                self._wake.notify()

    def nudge(self) -> None:
        """Write a CLOCK soon: somebody waits for what was written before, and the fold may be waiting for more."""
        with self._wake:
            self._next_clock_s = min(self._next_clock_s, max(time.monotonic(), self._last_clock_s + _NUDGE_S))
            self._wake.notify()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Write what is queued, then end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._resting = True
                self._wake.wait_for(self._is_due, self._rest_until_s - time.monotonic())
                self._resting = False
                if not self._queue and not self._stopping:
                    self._wake.wait(max(0.0, self._next_clock_s - time.monotonic()))
                if self._stopping and not self._queue:
                    return
                group = self._take()
            if time.monotonic() >= self._next_clock_s:
                self._last_clock_s = time.monotonic()
                self._next_clock_s = self._last_clock_s + self._clock_interval_s
                group.append((*_encoded(Clock(actor=self._actor)), None))
            if group:
                self._append(group, gap=time.time() - (self._last_append_s or 0) > self._gap_s)

    def _is_due(self) -> bool:
        return self._urgent or len(self._queue) >= _MANY or self._stopping

    def _take(self) -> list[Entry]:
        group: list[Entry] = []
        size = 0
        while self._queue and len(group) < MAX_GROUP_EVENTS and size < MAX_GROUP_BYTES:
            entry = self._queue.popleft()
            group.append(entry)
            size += len(entry[1])
        self._queued_bytes -= size
        self._urgent = self._urgent and bool(self._queue)
        return group

    def _append(self, group: list[Entry], *, gap: bool) -> None:
        began_s = time.monotonic()
        try:
            before = [self._resume()] if gap else []
            written = self._log.append([*before, *((key, payload) for key, payload, _ in group)])
        except BadRequestError as error:
            if len(group) > 1:
                for entry in group:
                    self._append([entry], gap=False)
                return
            self._refuse(group, error)
        except Exception as error:
            if not self._failing:
                log.error("event log cannot be written", error=str(error))
            self._failing = True
            self._refuse(group, error if isinstance(error, RoutelakeError) else UnavailableError(f"event log: {error}"))
            # The queue fills meanwhile and is refused as a group: no busy loop on a dead log.
            time.sleep(0.05)
        else:
            if self._failing:
                log.info("event log can be written again")
            self._failing = False
            self._last_append_s = time.time()
            ended_s = time.monotonic()
            self._rest_until_s = ended_s + min(max(4 * (ended_s - began_s), _REST_S[0]), _REST_S[1])
            self._tell(group, written[len(before) :])

    def _refuse(self, group: list[Entry], error: RoutelakeError) -> None:
        self._tell(group, [error] * len(group))

    def _tell(self, group: list[Entry], results: Sequence[Appended | RoutelakeError]) -> None:
        def tell() -> None:
            for (_, _, done), result in zip(group, results, strict=True):
                if done is not None:
                    done(result)

        self._deliver(tell)

    def _resume(self) -> tuple[str, bytes]:
        return _encoded(Resume(actor=self._actor, previous_event_time_ms=self._log.end().last_event_time_ms))


def _encoded(event: AnyEvent) -> tuple[str, bytes]:
    return routing_key(event), encode(event)
