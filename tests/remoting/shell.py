# SPDX-License-Identifier: Apache-2.0
"""A server with a handler that a test controls, and a client, on either event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar, cast

import uvloop

from dev.support.frames import decode_frame
from remoting.codec.commands import RefusedError
from remoting.codec.connection import Recognised
from remoting.codec.frame import RemotingCommand, encode_frame
from remoting.codec.reply import EncodedReply, not_supported, response
from remoting.server.channel import Connection
from remoting.server.server import RemotingServer
from remoting.server.settings import RemotingSettings
from remoting.server.tls import Handshakes
from remoting.server.tls_channel import ListenerTls
from schemas.errors import UnavailableError

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
T = TypeVar("T")
TIMEOUT_S = 60.0

ECHO, WAIT, FAIL, REFUSE, BUSY, SILENT = 106, 206, 219, 304, 311, 312
"""Codes, by what the handler below does with them."""


def run(main: Callable[[], Coroutine[Any, Any, T]], loop: str = "uvloop") -> T:
    """Run a test on a loop."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(asyncio.wait_for(main(), TIMEOUT_S))


class Topic:
    """What a recognised route request asks."""

    def __init__(self, topic: str | None, handler: Handler) -> None:
        self.topic, self.handler = topic, handler
        self.reply: EncodedReply | None = None

    def answer(self) -> EncodedReply:
        return self.handler.answer(self.topic)


class Handler:
    """Answers route requests for topics it has, and the codes above; keeps a record of everything."""

    def __init__(self, routes: dict[str | None, bytes] | None = None) -> None:
        self.replies = {topic: EncodedReply(response(body=body)) for topic, body in (routes or {}).items()}
        self.handled: list[RemotingCommand] = []
        self.connected: list[Connection] = []
        self.closed: list[tuple[Connection, str | None]] = []
        self.running = self.most_running = 0
        self.gate = asyncio.Event()

    # --- remoting.codec.connection.Inline ---

    code = 105

    def find(self, serialize_type: int, header: bytes) -> Recognised | None:
        return None

    def learn(self, header: bytes, command: RemotingCommand) -> Recognised | None:
        topic = command.ext("topic")
        if command.code != 105 or command.is_oneway or topic not in {*self.replies, "explosive"}:
            return None
        return Topic(topic, self), b"%d" % command.opaque

    def answer(self, topic: str | None) -> EncodedReply:
        if topic == "explosive":
            raise ValueError("boom")
        return self.replies[topic]

    # --- remoting.server.channel.Handler ---

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        self.handled.append(command)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._answer(command)
        finally:
            self.running -= 1

    async def _answer(self, command: RemotingCommand) -> RemotingCommand | None:
        match command.code:
            case 105:
                return response(17, f"no {command.ext('topic')}")
            case 106:
                return response(body=command.body)
            case 206:
                await self.gate.wait()
                return response(body=command.body)
            case 219:
                raise ValueError("boom")
            case 304:
                raise RefusedError("crc32 not match", ext_fields={})
            case 311:
                raise UnavailableError("log is away")
            case 312:
                return None
        return not_supported(command.code)

    def on_connect(self, connection: Connection) -> None:
        self.connected.append(connection)

    def on_close(self, connection: Connection) -> None:
        self.closed.append((connection, connection.close_reason))

    @property
    def reasons(self) -> list[str]:
        """Why connections were closed, in order."""
        return [reason or "" for _, reason in self.closed]


@contextlib.asynccontextmanager
async def serving(
    handler: Handler,
    settings: RemotingSettings | None = None,
    tls: ListenerTls | None = None,
    handshakes: Handshakes | None = None,
) -> AsyncIterator[RemotingServer]:
    """A server on a free port."""
    server = RemotingServer(handler, settings, handler, tls=tls, handshakes=handshakes)
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        handler.gate.set()
        await server.close(grace_s=2.0)


class Client:
    """A peer that sends and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *commands: RemotingCommand) -> None:
        self.writer.write(b"".join(map(encode_frame, commands)))

    async def receive(self) -> RemotingCommand:
        start = await self.reader.readexactly(4)
        return decode_frame(start + await self.reader.readexactly(struct.unpack(">i", start)[0]))

    async def ask(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        return await self.receive()

    def stop_reading(self) -> None:
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def read_on(self) -> None:
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    async def rest(self) -> bytes:
        """Everything until the server closes; a reset counts as that."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


@contextlib.asynccontextmanager
async def connected(
    server: RemotingServer, limit: int = 1 << 20, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Client]:
    """A client of this server that holds no more than about this many bytes unread."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=limit, ssl=tls)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
