# SPDX-License-Identifier: Apache-2.0
"""Reader of large registrations, in a process of its own.

A registration with ten thousand topics holds the interpreter for many milliseconds. If hundreds of brokers send one at
once, route requests would wait for it again and again. So the gateway passes the request to another process. It gets
back what it needs: the event without its topics, and the payload for the log. The process starts with the first such
registration. It ends with the gateway in any case, because the gateway holds the other end of its socket.

Reading is pure. So a process that has ended, or does not answer for long, is simply replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import threading
import traceback
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import msgspec
import structlog

from remoting.codec.commands import RefusedError, RequestContext, read_bool, to_event
from remoting.codec.frame import RemotingCommand
from remoting.codec.registration import inflates_beyond
from runtime.children import SERVED, give_way, send, spawn
from runtime.memory import give_back_large_blocks
from schemas.errors import BadRequestError, UnavailableError
from schemas.events import EventEncoder, RegisterBroker

log = structlog.get_logger("routelake.gateway")

LARGE_BODY_BYTES: Final = 128 * 1024
"""Size of a body above which a registration is large, after decompression."""
LARGE_COMPRESSED_BYTES: Final = 8 * 1024
"""Compressed size above which the inflated size is not calculated. It is about 20 times as large."""

_CPU_LIMIT_S: Final = 2.0
"""Processor time after which a registration is refused. The largest that are accepted take less than one second."""
_LIMIT_S: Final = 60.0
"""Time after which the process is killed, in seconds. The limit is high because the machine may be busy."""


class ReadRegistration(NamedTuple):
    """Contents of a registration.

    Attributes:
        event: The registration without its topics.
        payload: The registration with its topics, as the event log takes it.
        names: Names of its topics.
    """

    event: RegisterBroker
    payload: bytes
    names: tuple[str, ...]


def is_large(command: RemotingCommand) -> bool:
    """Return whether a registration is too large for the event loop, by the size of its body as sent."""
    size = len(command.body)
    return size > LARGE_BODY_BYTES or (size > LARGE_COMPRESSED_BYTES and bool(read_bool(command, "compressed")))


def becomes_large(command: RemotingCommand) -> bool:
    """Return whether a registration is large after decompression. The check costs a fraction of a millisecond."""
    return bool(read_bool(command, "compressed")) and inflates_beyond(command.body, LARGE_BODY_BYTES)


class Turns:
    """A bounded number of places, in which addresses take turns. Used on one event loop.

    An address with many waiting requests delays only its own.
    """

    def __init__(self, places: int) -> None:
        """Create the places without any waiting request.

        Args:
            places: Number of registrations at a time.
        """
        self._free = places
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Waiting requests by address, the next address first."""

    @contextlib.asynccontextmanager
    async def of(self, address: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it until the block ends."""
        if self._free:
            self._free -= 1
        else:
            future = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(address, deque()).append(future)
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._give_back()
                raise
        try:
            yield
        finally:
            self._give_back()

    def _give_back(self) -> None:
        while self._waiting:
            address, queue = self._waiting.popitem(last=False)
            future = queue.popleft()
            if queue:
                self._waiting[address] = queue
            if not future.done():
                future.set_result(None)
                return
        self._free += 1


class LargeRegistrations:
    """The gateway's side of the process."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._closed = False
        self._child: _Child | None = None

    def read(self, command: RemotingCommand, context: RequestContext) -> ReadRegistration | None:
        """Do `to_event` for a REGISTER_BROKER, and encode the event. Blocks. Reads one registration at a time.

        Raises:
            RefusedError: The answer is an error.
            UnavailableError: The process has died, took too long or cannot be started. The next call starts another.
        """
        with self._busy:
            try:
                answer = self._ask(command, context)
            except (OSError, EOFError) as error:
                exit_code = self._drop()
                log.warning(
                    "cannot read a large registration: its process failed",
                    error=repr(error),
                    exit_code=exit_code,
                    broker=(command.ext("brokerName") or "")[:255],
                )
                raise UnavailableError(
                    "the process that reads large registrations failed, took too long or did not start "
                    f"({error!r}). Check the free memory. The next registration starts it again."
                ) from error
            except BaseException:
                self._drop()  # otherwise the next call would get this call's answer
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Kill the process, also while it reads."""
        self._closed = True
        child = self._child
        if child is not None:
            child.process.kill()
        with self._busy:
            self._drop()

    def _ask(self, command: RemotingCommand, context: RequestContext) -> ReadRegistration | Exception | None:
        if self._child is not None and self._child.process.poll() is not None:
            log.warning("process for large registrations exited; starting another", exit_code=self._drop())
        if self._child is None:
            self._child = _start()
        if self._closed:
            raise ConnectionAbortedError("the gateway stops")
        process, pipe = self._child
        watchdog = threading.Timer(_LIMIT_S, process.kill)
        watchdog.start()
        try:
            # Sent separately, because pickling would copy the body.
            send(pipe, (msgspec.structs.replace(command, body=b""), context))
            pipe.send_bytes(command.body)
            answer: ReadRegistration | Exception | None = pipe.recv()
        finally:
            watchdog.cancel()
        return answer

    def _drop(self) -> int | None:
        """Kill the process, if there is one. Return its exit code."""
        if self._child is None:
            return None
        process, pipe = self._child
        process.kill()
        pipe.close()
        self._child = None
        return process.wait()


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    pipe: Connection


def _start() -> _Child:
    process, stream = spawn(__name__)
    return _Child(process, Connection(stream.detach()))


def read_registration(
    encoder: EventEncoder, command: RemotingCommand, context: RequestContext
) -> ReadRegistration | None:
    """Do the work of `LargeRegistrations.read` in this process. Return None if the request changes nothing.

    Raises:
        RefusedError: The answer is an error.
    """
    event = to_event(command, context)
    if event is None:
        return None
    assert isinstance(event, RegisterBroker)
    topicless = msgspec.structs.replace(event, topic_config_table=None)
    return ReadRegistration(topicless, encoder.encode(event), tuple(event.topic_config_table or ()))


def main() -> None:
    """Read registrations until the gateway has ended."""
    give_back_large_blocks()
    give_way()
    with contextlib.suppress(EOFError, ConnectionError):
        _serve(Connection(SERVED))


def _serve(pipe: Connection) -> None:
    encoder = EventEncoder()
    signal.signal(signal.SIGPROF, _give_up)
    while True:
        command, context = pipe.recv()
        command.body = pipe.recv_bytes()
        signal.setitimer(signal.ITIMER_PROF, _CPU_LIMIT_S)
        try:
            answer: ReadRegistration | Exception | None = read_registration(encoder, command, context)
        except Exception as error:
            if not isinstance(error, BadRequestError):
                error.add_note(traceback.format_exc())  # the gateway logs it
            answer = error
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        send(pipe, answer)


def _give_up(_signal: int, _frame: object) -> None:
    raise RefusedError(f"the registration takes more than {_CPU_LIMIT_S:g} s of processor time to read")
