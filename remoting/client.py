# SPDX-License-Identifier: Apache-2.0
"""Client of the remoting protocol on asyncio: one connection to each address, opened when it is needed.

A connection carries many requests at a time. ``opaque`` links each answer to its request. Requests of the peer, such as
NOTIFY_MIN_BROKER_ID_CHANGE, go to `on_request`.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingClient, NettyRemotingAbstract, NettyClientConfig.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Final, cast

import msgspec

from remoting.codec.connection import RemotingConnection
from remoting.codec.frame import FLAG_ONEWAY, RemotingCommand, encode_frame
from remoting.errors import (
    AnswerError,
    AnswerTimeoutError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    why_not_connected,
)
from schemas.codes import MAX_INT, LanguageCode, ResponseCode
from schemas.errors import ProtocolError

CONNECT_TIMEOUT_S: Final = 3.0
"""Time limit for a connect, in seconds (NettyClientConfig.connectTimeoutMillis)."""
ANSWER_TIMEOUT_S: Final = 3.0
"""Time limit for the answer to one request, in seconds (MQClientAPIImpl's usual timeoutMillis).
A call can set another limit."""

MAX_PORT: Final = 65_535
_MAX_HOST: Final = 253
"""Maximum length of a DNS name, in characters."""
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")

OnRequest = Callable[[str, RemotingCommand], RemotingCommand | None]
"""Handler of a peer's own request: (address, request) -> answer, or None for no answer."""

Sign = Callable[[RemotingCommand], RemotingCommand]
"""Adds the sender's signature to a request. The signature does not cover opaque and language."""


class RemotingClient:
    """Client for requests to any number of addresses. Belongs to one event loop. Use it with ``async with``."""

    def __init__(
        self,
        *,
        on_request: OnRequest | None = None,
        sign: Sign | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Create a client without connections.

        Args:
            on_request: Handler of a peer's requests, called on the event loop. None: requests stay unanswered.
            sign: Function that signs each request. None: requests are not signed.
            tls: TLS context for every connection. None: connections are plain.
        """
        self._sign = sign
        self._tls = tls
        self._on_request = on_request
        self._links: dict[str, asyncio.Task[_Link]] = {}

    async def __aenter__(self) -> RemotingClient:
        """Return this client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self.close()

    async def ask(self, address: str, request: RemotingCommand, timeout_s: float = ANSWER_TIMEOUT_S) -> RemotingCommand:
        """Send a request, and return its answer with any response code.

        Args:
            address: Address as host:port.
            request: The request. Its opaque and language are set here.
            timeout_s: Time limit for connecting, sending and the answer together, in seconds.

        Raises:
            ConnectError, AnswerTimeoutError, ConnectionLostError: No answer.
        """
        try:
            async with asyncio.timeout(timeout_s):
                link = await self._link(address)
                return await link.ask(request if self._sign is None else self._sign(request))
        except TimeoutError:
            message = f"no answer to request {request.code} within {timeout_s:g} s"
            raise AnswerTimeoutError(address, message, code=request.code) from None

    async def call(
        self, address: str, request: RemotingCommand, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> RemotingCommand:
        """Send a request like `ask`, but raise an error for every answer other than SUCCESS.

        Raises:
            ConnectError, AnswerTimeoutError, ConnectionLostError: No answer.
            AnswerError: The answer's code is not SUCCESS.
        """
        answer = await self.ask(address, request, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise AnswerError(address, answer)
        return answer

    async def send_oneway(self, address: str, request: RemotingCommand) -> None:
        """Send a request without an answer.

        Raises:
            ConnectError, ConnectionLostError: No connection.
        """
        link = await self._link(address)
        request = request if self._sign is None else self._sign(request)
        link.send(msgspec.structs.replace(request, flag=request.flag | FLAG_ONEWAY))

    async def drop(self, address: str) -> None:
        """Close the connection to one address. The next request opens a new one."""
        task = self._links.pop(address, None)
        if task is not None:
            await _close(task)

    async def close(self) -> None:
        """Close every connection. Requests that still wait for an answer fail with ConnectionLostError."""
        links, self._links = list(self._links.values()), {}
        for task in links:
            await _close(task)

    async def _link(self, address: str) -> _Link:
        task = self._links.get(address)
        if task is None or (task.done() and not _alive(task)):
            task = asyncio.create_task(self._connect(address))
            task.add_done_callback(_look)
            self._links[address] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not task.cancelled() or (current is not None and current.cancelling()):
                raise
            raise ConnectionLostError(address, "the connection was closed") from None

    async def _connect(self, address: str) -> _Link:
        host, port = _host_and_port(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, link = await loop.create_connection(
                    lambda: _Link(address, self._on_request),
                    host,
                    port,
                    ssl=self._tls,
                )
        except TimeoutError:
            raise ConnectError(address, f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
        except (OSError, ValueError) as error:  # ValueError: a name that IDNA cannot encode
            raise ConnectError(address, f"no connection: {why_not_connected(error)}") from error
        return link


def _host_and_port(address: str) -> tuple[str, int]:
    """Split an address. A peer may have registered any text as an address, so a resolver gets only checked names.

    Raises:
        ConnectError: The address is not ``host:port``.
    """
    host, _, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) <= MAX_PORT
    if not is_port or not host.isascii() or not 0 < len(host) <= _MAX_HOST or not _HOST.fullmatch(host):
        raise ConnectError(address[:_MAX_HOST], "no connection: the address is not HOST:PORT")
    return host, int(port)


def _look(task: asyncio.Task[_Link]) -> None:
    """Retrieve the failure of a link task, so that asyncio does not log it. The next request connects again."""
    if not task.cancelled():
        task.exception()


def _alive(task: asyncio.Task[_Link]) -> bool:
    return not task.cancelled() and task.exception() is None and not task.result().closed.is_set()


async def _close(task: asyncio.Task[_Link]) -> None:
    if not task.done():
        task.cancel()
    elif _alive(task):
        await task.result().close()


class _Link(asyncio.Protocol):
    """One connection and the requests that wait for an answer on it."""

    def __init__(self, address: str, on_request: OnRequest | None) -> None:
        self.closed = asyncio.Event()
        self._address = address
        self._on_request = on_request
        self._incoming = RemotingConnection(keep_responses=True)
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._transport: asyncio.Transport | None = None
        self._end = "the connection is closed"

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        """Send a request, and return its answer. Raises ConnectionLostError."""
        if self._transport is not None and self._transport.is_closing():
            await self.closed.wait()  # afterwards the reason is known
        opaque = self.send(request)
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = future
        try:
            return await future
        finally:
            self._waiting.pop(opaque, None)

    def send(self, request: RemotingCommand) -> int:
        """Write a request, and return its opaque. Raises ConnectionLostError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionLostError(self._address, self._end)
        self._opaque = self._opaque % MAX_INT + 1
        self._transport.write(
            encode_frame(msgspec.structs.replace(request, opaque=self._opaque, language=LanguageCode.PYTHON))
        )
        return self._opaque

    async def close(self) -> None:
        """Close the connection after all written data has been sent."""
        if self._transport is not None:
            self._transport.close()
            await self.closed.wait()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, because the connection is ready."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass answers to the waiting requests, and the peer's requests to the handler."""
        try:
            received = self._incoming.receive_data(data)
        except ProtocolError as error:
            self._fail(ConnectionLostError(self._address, f"cannot read the answer: {error}"))
            if self._transport is not None:
                self._transport.abort()
            return
        for command in received:
            if not isinstance(command, RemotingCommand):
                continue  # a route request, which no peer sends to a client
            if command.is_response:
                future = self._waiting.get(command.opaque)
                if future is not None and not future.done():
                    future.set_result(command)
            elif self._on_request is not None:
                answer = self._on_request(self._address, command)
                if answer is not None and not command.is_oneway and self._transport is not None:
                    self._transport.write(encode_frame(msgspec.structs.replace(answer, opaque=command.opaque)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every waiting request, because no answer can come any more."""
        self._transport = None
        self._end = f"connection lost: {'closed by the peer' if exc is None else why_not_connected(exc)}"
        self._fail(ConnectionLostError(self._address, self._end))
        self.closed.set()

    def _fail(self, error: ClientError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
