# SPDX-License-Identifier: Apache-2.0
"""The event log is written by a process of its own (ADR 8).

An append waits for a disk, and a thread that waits has to get the interpreter back afterwards: from one that answers
route requests without a pause, which is slow for the append and, far more, for the answers (reports/performance.md). So
the gateway's event loop sends what is to be written to a process, and has the offsets when it is durable::

    gateway                                       process
    ── (URL, ...) ──────────────────────────────► opens the log
    ◄── its lineage and limits, or an error ─────
    ── entries ─────────────────────────────────► `ResumingLog`
    ◄── their offsets and times, or an error ────
    ...                                           pickles, framed as by multiprocessing's Connection

The two live and die together. The log is opened once, and compared with the tables then: a gateway without its process
ends, and its supervisor starts it anew. A process without its gateway is killed by the kernel, so that nothing is
written on behalf of one that is gone.
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
from typing import Final, NamedTuple, ParamSpec, TypeVar

import structlog

from eventlog.base import NO_LIMITS, Appended, Entry, EventLog, LateError, Limits, LogEnd
from eventlog.group_commit import STOPPING
from eventlog.open import open_log
from eventlog.stamps import MAX_LEAP_MS, Stamps, steady_s
from eventlog.urls import is_kafka
from runtime.children import SERVED, end_with_parent, spawn
from runtime.logs import configure
from runtime.supervised_tasks import critical_task
from schemas.errors import InDoubtError, RoutelakeError, UnavailableError
from schemas.events import Actor, Resume, encode, routing_key

log = structlog.get_logger("routelake.gateway")

P = ParamSpec("P")
T = TypeVar("T")

_length = struct.Struct("!i")

_CLOSE_S: Final = 1.0
"""How long an append under way may hold up the end. `GroupCommit.stop` has waited for it before."""

Answer = LogEnd | list[Appended] | RoutelakeError | tuple[str, Limits]


class Last(NamedTuple):
    """The last append: when it began (where it hung after that, it is silence, too), and its event time."""

    began_s: float
    event_time_ms: int


class ResumingLog:
    """Appends to a log and tells, by a RESUME event, of the time in which nobody listened.

    It comes first when nothing was written yet, or nothing for long (the gateway, or the process that writes for it,
    was stopped, suspended or cut off, or the clock was set ahead), so that this time counts against no broker.

    Args:
        event_log: the log.
        gateway_id: names the gateway in the events written here.
        gap_s: silence after which a RESUME event is due.
    """

    def __init__(self, event_log: EventLog, gateway_id: str, gap_s: float) -> None:
        self._log = event_log
        resume = Resume(actor=Actor(gateway=gateway_id, via="routelake"))
        self._resume: Entry = routing_key(resume), encode(resume)
        self._gap_s = gap_s
        self._last: Last | None = None

    def append(self, entries: Sequence[Entry]) -> list[Appended]:
        """`EventLog.append`, behind a RESUME event where one is due: then the result has one more, in front."""
        began_s = steady_s()
        written = None
        if self._last is not None and began_s - self._last.began_s <= self._gap_s:
            # From here to the stamp the clock may be set, or this process stand still: the log checks the stamp again.
            with suppress(LateError):
                written = self._log.append(entries, self._last.event_time_ms + int(self._gap_s * 1000))
        if written is None:
            written = self._log.append([self._resume, *entries])
        self._last = Last(began_s, written[-1].event_time_ms)
        return written


class LogWorker:
    """The gateway's end of the process; an `eventlog.group_commit.LogClient`.

    Args:
        log_url: As for `open_log`.
        gateway_id: names the gateway in the events written there.
        gap_s: as for `ResumingLog`.
        max_leap_ms: as for `Stamps`.
    """

    def __init__(self, log_url: str, gateway_id: str, gap_s: float, max_leap_ms: int = MAX_LEAP_MS) -> None:
        self._arguments = log_url, gateway_id, gap_s, max_leap_ms
        self.limits = NO_LIMITS
        self.late_after_s = gap_s if is_kafka(log_url) else None
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: deque[asyncio.Future[Answer]] = deque()
        self._ended = False
        self._closing = False
        self.died = asyncio.Event()
        """Set when the process exited without being closed: nothing can be written any more."""

    async def open(self) -> str:
        """See `LogClient`. Once."""
        try:
            process, stream = spawn(__name__)
        except OSError as error:
            raise UnavailableError(f"the process that writes the event log cannot be started: {error}") from error
        reader, self._writer = await asyncio.open_unix_connection(sock=stream)
        self._process = process
        self._reading = critical_task(asyncio.create_task(self._read(reader, process)), "event log writer: replies")
        try:
            opened = await self._ask(self._arguments)
        except InDoubtError as error:
            raise UnavailableError("the event log writer process exited while it opened the event log") from error
        if not isinstance(opened, tuple) or isinstance(opened, LogEnd):
            raise UnavailableError("the event log writer process sent an unexpected answer")
        lineage, self.limits = opened
        return lineage

    async def end(self) -> LogEnd:
        """See `LogClient`."""
        try:
            end = await self._ask(None)
        except InDoubtError as error:
            raise UnavailableError("the event log writer process has exited") from error
        if not isinstance(end, LogEnd):
            raise UnavailableError("the event log writer process sent an unexpected answer")
        return end

    async def append(self, entries: Sequence[Entry]) -> list[Appended]:
        """See `LogClient`."""
        written = await self._ask(entries)
        if not isinstance(written, list):
            raise InDoubtError("the event log writer process sent an unexpected answer")
        return written

    async def close(self) -> None:
        """See `LogClient`."""
        self._closing = True
        if self._process is None:
            return
        if not self._ended:
            self._writer.write_eof()  # it ends
        try:
            await asyncio.to_thread(self._process.wait, _CLOSE_S)
        except subprocess.TimeoutExpired:
            log.warning("event log writer process did not stop in time; killed")
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        await asyncio.wait([self._reading])  # of its death somebody was told
        self._writer.close()

    async def _ask(self, question: object) -> Answer:
        if self._closing or self._ended:
            raise UnavailableError(STOPPING)
        data = pickle.dumps(question, pickle.HIGHEST_PROTOCOL)
        asked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._writer.write(_length.pack(len(data)) + data)
        answer = await asked
        if isinstance(answer, RoutelakeError):
            raise answer
        return answer

    async def _read(self, reader: asyncio.StreamReader, process: subprocess.Popen[bytes]) -> None:
        """Pass on answers until the process has ended."""
        with suppress(OSError, EOFError):
            while True:
                (size,) = _length.unpack(await reader.readexactly(_length.size))
                answer: Answer = pickle.loads(await reader.readexactly(size))  # noqa: S301  # by our own child
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
    """Write until the gateway is gone."""
    end_with_parent()
    configure("event-log")
    with Connection(SERVED) as gateway, suppress(EOFError, ConnectionError):
        _serve(gateway)


def _serve(gateway: Connection) -> None:
    log_url, gateway_id, gap_s, max_leap_ms = gateway.recv()
    event_log = _tried(open_log, log_url, Stamps(max_leap_ms=max_leap_ms))
    if isinstance(event_log, RoutelakeError):
        gateway.send(event_log)
        gateway.recv()  # the gateway's end
        return
    with closing(event_log):
        resuming_log = ResumingLog(event_log, gateway_id, gap_s)
        gateway.send((event_log.lineage, event_log.limits))
        while True:
            asked = gateway.recv()
            gateway.send(_tried(event_log.end) if asked is None else _tried(resuming_log.append, asked))


def _tried(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | RoutelakeError:
    """Return the result of ``work``, or the error to send to the gateway."""
    try:
        return work(*args, **kwargs)
    except RoutelakeError as error:
        return error
    except Exception as error:
        log.exception("unexpected error in the event log writer process")
        return UnavailableError(f"event log: {error!r}")
