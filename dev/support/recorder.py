# SPDX-License-Identifier: Apache-2.0
"""Record of the requests of one side to several servers, in the order in which they arrive.

A server is scripted (a function answers) or a proxy (another server answers). All of them live on one event loop in one
thread, so that the order of the recording is the order of arrival across servers.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from dev.peers.java import free_port
from dev.support.frames import decode_frame
from remoting.codec.frame import FLAG_RESPONSE, RemotingCommand, encode_frame

T = TypeVar("T")

Answer = Callable[[RemotingCommand], "RemotingCommand | Awaitable[RemotingCommand | None] | None"]
"""Function that answers for a scripted server; an answer of None is silence."""

_BIND_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Recorded:
    """One request: the name of the server it reached, and all of it but opaque, language and version."""

    server: str
    code: int
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: str = ""
    oneway: bool = False


class Recorder:
    """Servers and what they were asked. Use it as ``with``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: list[Recorded] = []

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def scripted(self, name: str, answer: Answer, address: str = "") -> str:
        """Start a server that gives prepared answers.

        Args:
            name: Name in the recording.
            answer: Called on the event loop with each request that is not oneway.
            address: host:port to listen on; empty for a free port of 127.0.0.1. If another process has it, this waits.

        Returns:
            Address that it listens at.
        """

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while (frame := await _read_frame(reader)) is not None:
                request = decode_frame(frame)
                self._note(name, request)
                if request.is_oneway:
                    continue
                answered = answer(request)
                reply = await answered if isinstance(answered, Awaitable) else answered
                if reply is not None:
                    reply.opaque, reply.flag = request.opaque, reply.flag | FLAG_RESPONSE
                    writer.write(encode_frame(reply))

        return self._listen(serve, address)

    def proxy(self, name: str, upstream: str, address: str = "") -> str:
        """Start a server that passes frames on to another one and back, as they are.

        Args:
            name: Name in the recording.
            upstream: Address of the other one, host:port.
            address: Address as in `scripted`.

        Returns:
            Address that it listens at.
        """

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host, _, port = upstream.rpartition(":")
            back_reader, back_writer = await asyncio.open_connection(host, int(port))

            async def back() -> None:
                while (frame := await _read_frame(back_reader)) is not None:
                    writer.write(frame)
                writer.close()

            backwards = asyncio.create_task(back())
            try:
                while (frame := await _read_frame(reader)) is not None:
                    request = decode_frame(frame)
                    if not request.is_response:
                        self._note(name, request)
                    back_writer.write(frame)
            finally:
                back_writer.close()
                backwards.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await backwards

        return self._listen(serve, address)

    def take(self) -> list[Recorded]:
        """Return the requests that have arrived since the last call."""

        async def take() -> list[Recorded]:
            taken, self._requests = self._requests, []
            return taken

        return self._run(take())

    def _note(self, name: str, request: RemotingCommand) -> None:
        body = request.body.decode("utf-8")
        self._requests.append(Recorded(name, request.code, request.ext_fields or {}, body, request.is_oneway))

    def _listen(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]], address: str
    ) -> str:
        host, _, port = (address or f"127.0.0.1:{free_port()}").rpartition(":")

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await serve(reader, writer)
            finally:
                self._tasks.discard(task)
                writer.close()

        deadline = time.monotonic() + _BIND_TIMEOUT_S
        while True:
            try:
                server = self._run(asyncio.start_server(handle, host, int(port), limit=1 << 26))
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)  # another run of the same tests has this address
            else:
                self._servers.append(server)
                return f"{host}:{port}"

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=30)

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the transports' connection_lost


async def _read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """A whole frame; None when there are no more."""
    try:
        head = await reader.readexactly(4)
        return head + await reader.readexactly(struct.unpack(">i", head)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
