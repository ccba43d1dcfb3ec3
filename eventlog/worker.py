# SPDX-License-Identifier: Apache-2.0
"""Writer of the event log: a separate process for each gateway (ADR 8).

An append waits for a disk. A thread that waited must then get the interpreter lock back from the thread that answers
route requests without a pause. This slows down the append and, far more, the answers (reports/performance.md). So the
gateway's event loop sends events to a separate process. It gets their offsets when the events are durable::

    gateway                                       process
    ── (URL, ...) ──────────────────────────────► opens the log
    ◄── its lineage and limits, or an error ─────
    ── entries ─────────────────────────────────► `ResumingLog`
    ◄── their offsets and times, or an error ────
    ...                                           pickles, framed as by multiprocessing's Connection

Offsets and times cross as plain tuples, because records of a class cost three times as much to pickle.

The two processes start and end together. The log is opened once, and compared with the tables then. So a gateway
without its writer process exits, and its supervisor starts it again. If the gateway ends, the kernel kills the writer
process, so that nothing is written for a gateway that has ended.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

import structlog

from eventlog.base import NO_LIMITS, Appended, Entry, EventLog, LateError, Limits, LogEnd
from eventlog.group_commit import STOPPING
from eventlog.open import open_log
from eventlog.stamps import MAX_LEAP_MS, Stamps, steady_s
from eventlog.urls import is_kafka
from runtime.children import SERVED, end_with_parent, send, spawn
from runtime.logs import configure
from runtime.supervised_tasks import critical_task
from schemas.errors import InDoubtError, RoutelakeError, UnavailableError
from schemas.events import Actor, Resume, encode, routing_key

log = structlog.get_logger("routelake.gateway")

P = ParamSpec("P")
T = TypeVar("T")

_length = struct.Struct("!i")

_CLOSE_S: Final = 1.0
"""Maximum time that `close` waits for an append in progress, in seconds. `GroupCommit.stop` has waited before."""


class Last(NamedTuple):
    """The last append.

    Attributes:
        began_s: Start of the append, on the steady clock, in seconds. The time that the append takes counts as silence.
        event_time_ms: Event time of its last record, in milliseconds.
    """

    began_s: float
    event_time_ms: int


class ResumingLog:
    """Appends to a log, and records by a RESUME event the time in which no gateway received heartbeats.

    The RESUME event comes before the first append, and before an append after a long silence. Such a silence follows if
    the gateway or its writer process was stopped, suspended or disconnected, or if the clock was set forward. The event
    keeps this time from counting against any broker.

    Args:
        event_log: Log to append to.
        gateway_id: Name of the gateway in the RESUME events.
        gap_s: Silence after which a RESUME event is due, in seconds.
    """

    def __init__(self, event_log: EventLog, gateway_id: str, gap_s: float) -> None:
        self._log = event_log
        resume = Resume(actor=Actor(gateway=gateway_id, via="routelake"))
        self._resume: Entry = routing_key(resume), encode(resume)
        self._gap_s = gap_s
        self._last: Last | None = None

    def append(self, entries: Sequence[Entry]) -> list[Appended]:
        """Append like `EventLog.append`. If a RESUME event is due, it comes first, in the log and in the result."""
        began_s = steady_s()
        written = None
        if self._last is not None and began_s - self._last.began_s <= self._gap_s:
            # Before the stamp, the clock may be set or this process may be suspended. So the log checks the stamp too.
            with suppress(LateError):
                written = self._log.append(entries, self._last.event_time_ms + int(self._gap_s * 1000))
        if written is None:
            written = self._log.append([self._resume, *entries])
        self._last = Last(began_s, written[-1].event_time_ms)
        return written


class LogWorker:
    """The gateway's connection to its writer process. It is an `eventlog.group_commit.LogClient`.

    Args:
        log_url: URL of the log, as for `open_log`.
        gateway_id: Name of the gateway in the RESUME events.
        gap_s: Silence after which a RESUME event is due, in seconds, as for `ResumingLog`.
        max_leap_ms: Maximum leap of the clock, in milliseconds, as for `Stamps`.
    """

    def __init__(self, log_url: str, gateway_id: str, gap_s: float, max_leap_ms: int = MAX_LEAP_MS) -> None:
        self._arguments = log_url, gateway_id, gap_s, max_leap_ms
        self.limits = NO_LIMITS
        self.late_after_s = gap_s if is_kafka(log_url) else None
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._is_open = False
        self._ended = False
        self._closing = False
        self.died = asyncio.Event()
        """Set if the process exited before `close`. Then nothing more can be written."""

    async def open(self) -> str:
        """See `LogClient`. Call it once only."""
        try:
            process, stream = spawn(__name__)
        except OSError as error:
            raise UnavailableError(f"the process that writes the event log cannot be started: {error}") from error
        reader, self._writer = await asyncio.open_unix_connection(sock=stream)
        self._process = process
        self._reading = critical_task(asyncio.create_task(self._read(reader, process)), "event log writer: replies")
        try:
            opened: tuple[str, Limits] = await self._ask(self._arguments)
        except InDoubtError as error:
            raise UnavailableError("the event log writer process exited while it opened the event log") from error
        lineage, self.limits = opened
        self._is_open = True
        return lineage

    async def end(self) -> LogEnd:
        """See `LogClient`."""
        try:
            end: LogEnd = await self._ask(None)
        except InDoubtError as error:
            raise UnavailableError("the event log writer process has exited") from error
        return end

    async def append(self, entries: Sequence[Entry]) -> list[Appended]:
        """See `LogClient`."""
        return list(map(Appended._make, await self._ask(entries)))

    async def close(self) -> None:
        """See `LogClient`."""
        self._closing = True
        if self._process is None:
            return
        if not self._is_open:
            self._process.kill()  # no append to finish, and Kafka's client closes slowly
        elif not self._ended:
            self._writer.write_eof()  # the process exits at the end of its input
        try:
            await asyncio.to_thread(self._process.wait, _CLOSE_S)
        except subprocess.TimeoutExpired:
            log.warning("event log writer process did not stop in time; killed")
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        await asyncio.wait([self._reading])  # `critical_task` reports its failure
        self._writer.close()

    async def _ask(self, question: object) -> Any:  # noqa: ANN401 (the answer to this question, of our own child)
        if self._closing or self._ended:
            raise UnavailableError(STOPPING)
        data = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._writer.write(_length.pack(len(data)) + data)
        answer = await asked
        if isinstance(answer, RoutelakeError):
            raise answer
        return answer

    async def _read(self, reader: asyncio.StreamReader, process: subprocess.Popen[bytes]) -> None:
        """Pass on answers until the process exits."""
        with suppress(OSError, EOFError):
            while True:
                (size,) = _length.unpack(await reader.readexactly(_length.size))
                answer = pickle.loads(await reader.readexactly(size))  # noqa: S301  # by our own child
                asked = self._asked.popleft()
                if not asked.done():
                    asked.set_result(answer)
        self._ended = True
        for asked in self._asked:
            if not asked.done():
                asked.set_result(
                    InDoubtError(
                        "the event log writer process exited during a write. It is unknown whether this was written."
                    )
                )
        if not self._closing:
            self.died.set()
            exit_code = await asyncio.to_thread(process.wait)
            log.error("event log writer process exited; the gateway stops", exit_code=exit_code)


def main() -> None:
    """Serve the gateway until it ends."""
    end_with_parent()
    configure("event-log")
    with Connection(SERVED) as gateway, suppress(EOFError, ConnectionError):
        _serve(gateway)


def _serve(gateway: Connection) -> None:
    log_url, gateway_id, gap_s, max_leap_ms = gateway.recv()
    event_log = _tried(UnavailableError, open_log, log_url, Stamps(max_leap_ms=max_leap_ms))
    if isinstance(event_log, RoutelakeError):
        send(gateway, event_log)
        gateway.recv()  # waits for the gateway to end
        return
    with closing(event_log):
        resuming_log = ResumingLog(event_log, gateway_id, gap_s)
        send(gateway, (event_log.lineage, event_log.limits))
        while True:
            asked = gateway.recv()
            if asked is None:
                send(gateway, _tried(UnavailableError, event_log.end))
            else:
                send(gateway, _tried(InDoubtError, _append, resuming_log, asked))


def _append(log: ResumingLog, entries: Sequence[Entry]) -> list[tuple[int, ...]]:
    return list(map(tuple, log.append(entries)))


def _tried(
    unexpected: type[RoutelakeError], work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T | RoutelakeError:
    """Return the result of ``work``, or the error to send to the gateway.

    Args:
        unexpected: Error for an exception of another kind.
        work: Function to call.
        *args: Its arguments.
        **kwargs: Its named arguments.
    """
    try:
        return work(*args, **kwargs)
    except RoutelakeError as error:
        return error
    except Exception as error:
        log.exception("unexpected error in the event log writer process")
        return unexpected(f"event log: {error!r}")
