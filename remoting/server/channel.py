# SPDX-License-Identifier: Apache-2.0
"""One connection on the event loop: `RemotingConnection` with a socket, and bounds on all that a peer can make grow.

How a request travels::

    data_received -> frames -> what `RequestCache` recognises: answered in the same turn, all answers in one write
                            -> all others: Handler.handle in a task of its own, answered when it is done

What a peer can do and what stops it:

=====================================  =====================================================================
sends and never reads                  above `write_high_bytes` nothing more is read, handled or answered; after
                                       the idle timeout the connection is dropped, sooner if all of them together
                                       hold `max_unread_bytes`
sends faster than is handled           `max_in_flight` requests or their bytes, then reading pauses
announces a frame and lets it starve   `frame_deadline_s`, plus what a slow but steady upload needs; dropped sooner
                                       if all of them together hold `max_received_bytes`
says nothing                           `idle_timeout_s`; sooner if it is among `max_connections`
sends large frames, as many do         takes turns with the others (`FairQueue`)
sends HTTP, noise, or TLS where there  closed at the first length field; HTTP is told where it belongs
is none (else: `remoting.server.tls_channel`)
=====================================  =====================================================================

The connection that holds most, for longest, is evicted for the sake of others (`remoting.codec.bounds`).

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingServer, NettyRemotingAbstract, NettyServerConfig.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from sys import getsizeof
from typing import Any, Final, Protocol, cast

from remoting.codec.bounds import Holding, address_of
from remoting.codec.connection import Received, RemotingConnection, RequestCache
from remoting.codec.frame import GRPC_IS_ELSEWHERE, HTTP_IS_ELSEWHERE, RemotingCommand, encode_frame, offers_h2
from remoting.codec.reply import EncodedReply, Reply, encode_reply
from remoting.server.memory import LARGE_BYTES, ConnectionMemory
from remoting.server.refusals import Refusals
from remoting.server.settings import RemotingSettings
from remoting.server.tls_channel import NO_APPLICATION_PROTOCOL, Secured, TlsTransport
from schemas.codes import SerializeType
from schemas.errors import ProtocolError

SHARED_BYTES: Final = 64 * 1024
"""Bodies from here on are sent without a copy: every peer that waits for this answer waits for the same bytes."""

_HTTP_REFUSAL: Final = (
    f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(HTTP_IS_ELSEWHERE) + 1}\r\n"
    f"Connection: close\r\n\r\n{HTTP_IS_ELSEWHERE}\n"
).encode()

_GO_AWAY: Final = b"\0\0\0\0\0\0\0\x01" + GRPC_IS_ELSEWHERE.encode()
# SETTINGS without any, then GOAWAY with PROTOCOL_ERROR and a text, which gRPC clients show (RFC 9113, 6.5 and 6.8).
_HTTP_2_REFUSAL: Final = b"\0\0\0\x04" + bytes(5) + len(_GO_AWAY).to_bytes(3) + b"\x07" + bytes(5) + _GO_AWAY
InlineAuthorizer = Callable[[Any, "Connection"], Reply]
"""Returns the reply to what `RequestCache` has found, or its refusal; what it raises becomes one."""

FIELD_BYTES: Final = 160
"""Memory of a header field without its name and value, in bytes: its place in the dict, and two objects."""

CLOSE_GRACE_S: Final = 5.0
"""Time that a closed connection may take to flush before it is dropped, in seconds."""


class Handler(Protocol):
    """Interface that the server calls for connections and requests. All methods are called on the event loop."""

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | Reply | None:
        """The answer to a request; None for none at all. What it raises becomes an answer (`answers.failure`).

        A large body has to be the same object for all who are told the same: it is kept until the last has read it.
        A code it does not know gets `answers.not_supported`.
        """

    def on_connect(self, connection: Connection) -> None:
        """A peer has connected."""

    def on_close(self, connection: Connection) -> None:
        """A connection is gone, whoever ended it; `close_reason` says why."""


class Server(Protocol):
    """Interface of the server that has accepted a connection. Its attributes are explained at `RemotingServer`."""

    settings: RemotingSettings
    handler: Handler
    inline: RequestCache | None
    gate: InlineAuthorizer | None
    memory: ConnectionMemory[Connection]
    refusals: Refusals
    answered_inline: defaultdict[int, int]
    now: float
    is_closing: bool

    def admit(self, connection: Connection) -> bool:
        """Count a connection in and give it an id; False if it has to go."""

    def release(self, connection: Connection) -> None:
        """Count it out."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a request; the server keeps the task alive."""

    def failure(self, error: Exception, connection: Connection) -> RemotingCommand:
        """The answer to a request whose handling raised; the unexpected is logged."""

    def count(self, request_code: int, response_code: int) -> None:
        """Count an answer."""

    def guard(self, callback: Callable[[Connection], None], connection: Connection) -> None:
        """Call back; what it raises must not take the connection down."""


class Connection(Secured):
    """One connection, as handlers see it.

    Attributes:
        id: Unique for all time.
        peer: host:port at the other end of the socket.
        address: Address of the peer for limits by address.
        last_read: Time of the last received bytes, on the server's clock.
        has_spoken: Whether a whole request has come.
        has_registered: Whether a broker has registered over it; handlers set it.
        is_tls: Whether it is encrypted.
        certificate_names: Names in the peer's verified certificate; empty without one.
        known: Data that the handler keeps about the peer.
        close_reason: Reason why it was closed; None while it is open.
    """

    def __init__(self, server: Server) -> None:
        """Made by `RemotingServer` for each accepted socket."""
        settings = server.settings
        self.id = ""
        self.peer = ""
        self.address = ""
        self.has_spoken = False
        self.has_registered = False
        self.is_tls = False
        self.certificate_names: tuple[str, ...] = ()
        self.known: object = None
        self.close_reason: str | None = None
        self._server = server
        self._settings = settings
        self._handler = server.handler
        self._memory = server.memory
        self._incoming = RemotingConnection(settings.frame_limit_bytes, server.inline)
        self._transport: asyncio.Transport | None = None
        self._tls: TlsTransport | None = None
        self._backlog: list[Received] = []
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._backlog_bytes = 0
        self._unfinished_bytes = 0
        self._shared_bytes = 0
        self._reading = True
        self._writing = True
        self._may_answer = asyncio.Event()
        self._holding_since_s = self._unread_since_s = 0.0
        self.last_read = self._frame_since = self._not_writing_since = self._closing_since = server.now

    @property
    def _open(self) -> asyncio.Transport | None:
        """The transport, unless it is closed or closing."""
        transport = self._transport
        return None if transport is None or transport.is_closing() else transport

    @property
    def closed(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._open is None

    def send(self, command: RemotingCommand, serialize_type: SerializeType = SerializeType.JSON) -> bool:
        """Send a request of the server's own, such as NOTIFY_MIN_BROKER_ID_CHANGE.

        Returns:
            Whether it was sent; not when the connection is closing or the peer does not read.
        """
        transport = self._open
        if transport is None or not self._writing:
            return False
        transport.write(encode_frame(command, serialize_type))
        return True

    def close(self, reason: str) -> None:
        """Close after what was written has been sent."""
        if self.close_reason is None and self._transport is not None:
            self.close_reason = reason
            self._closing_since = self._server.now
            self._release_all()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Drop it at once, with whatever was not sent."""
        if self._transport is not None:
            if self.close_reason is None:
                self.close_reason = reason
            self._release_all()
            self._transport.abort()

    def let_go(self, command: RemotingCommand) -> None:
        """Drop the body of a request that is needed no more; its bytes are free for others."""
        size = len(command.body)
        command.body = b""
        self._account_in_flight(-size)

    # --- remoting.server.tls_channel.Secured ---

    def secure(self, transport: TlsTransport, names: tuple[str, ...]) -> None:
        """The handshake is done: from now on through this transport."""
        self._transport = self._tls = transport
        self.is_tls = True
        self.certificate_names = names

    def refuse_tls(self, reason: str, detail: str) -> None:
        """Plain where only TLS is taken, or TLS that failed."""
        self._server.refusals.note(reason, self.peer, detail)
        self.close(f"{reason}: {detail}")

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it in, or refuse it. One that was reset before it was taken has no address any more: it is nobody's."""
        stream = cast("asyncio.Transport", transport)
        peer = stream.get_extra_info("peername")
        if peer is None:
            self.close_reason = "gone before it was taken"
            stream.abort()
            return
        self.peer = host_and_port(peer)
        self.address = address_of(peer[0]) if isinstance(peer, tuple) else self.peer
        if not self._server.admit(self):
            self.close_reason = "too many connections"
            stream.abort()
            return
        self._transport = stream
        stream.set_write_buffer_limits(high=self._settings.write_high_bytes)
        self._server.guard(self._handler.on_connect, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out. Requests in flight are carried through; their answers go nowhere."""
        if self._transport is None:
            return
        self._transport = None
        if self.close_reason is None:
            self.close_reason = f"connection lost: {exc}" if exc else "closed by peer"
        self._release_all()
        self._server.release(self)
        self._server.guard(self._handler.on_close, self)

    def data_received(self, data: bytes) -> None:
        """Take bytes, answer what they complete."""
        if self.close_reason is not None:
            return
        incoming = self._incoming
        self.last_read = self._server.now
        try:
            received = incoming.receive_data(data)
        except ProtocolError as error:
            self._refuse(error, data)
            return
        if received:
            self.has_spoken = True
            if self._backlog:
                self._set_backlog(self._backlog + received)
            else:
                self._process(received)
        if incoming.error is not None:
            self._refuse(incoming.error, data)
        elif incoming.buffered_bytes or self._unfinished_bytes:
            self._note_unfinished(incoming.buffered_bytes, len(data))

    def pause_writing(self) -> None:
        """The peer does not read: stop answering, hence stop reading."""
        self._writing = False
        self._may_answer.clear()
        self._not_writing_since = self._server.now
        self._unread_since_s = time.monotonic()
        self.stop_reading()
        self._memory.stopped_reading(self)

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._writing = True
        self._shared_bytes = 0
        self._may_answer.set()
        self._memory.reads_again(self)
        self.go_on()

    # --- requests ---

    def _process(self, received: list[Received]) -> None:
        """Answer what was recognised, start the others; what does not fit within the bounds waits in the backlog."""
        transport = self._transport
        if transport is None:
            return
        gate = self._server.gate
        high = self._settings.write_high_bytes
        out: list[bytes] = []
        size = successes = 0
        for index, request in enumerate(received):
            if isinstance(request, tuple):
                asked, digits = request
                try:
                    reply: Reply = (asked.reply or asked.answer()) if gate is None else gate(asked, self)
                except Exception as error:
                    reply = EncodedReply(self._server.failure(error, self))
                if reply.code:
                    self._server.answered_inline[reply.code] += 1
                else:
                    successes += 1
                out += reply.pieces(digits)
                size += reply.size
                if size >= high:
                    transport.write(b"".join(out))
                    out = []
                    size = 0
                    if not self._writing:
                        self._postpone(received[index + 1 :])
                        break
            elif not self._start(request):
                self._postpone(received[index:])
                break
        if successes:
            self._server.answered_inline[0] += successes
        if out:
            transport.write(b"".join(out))

    def _start(self, command: RemotingCommand) -> bool:
        """Begin a request, unless the bounds forbid it for now."""
        settings = self._settings
        if not self._writing:
            return False
        size = size_of(command)
        if self._in_flight and (
            self._in_flight >= settings.max_in_flight or self._in_flight_bytes + size > settings.max_in_flight_bytes
        ):
            return False
        if size >= LARGE_BYTES and not self._memory.may_start(size, self):
            return False
        self._in_flight += 1
        self._account_in_flight(size)
        self._server.spawn(self._serve(command))
        return True

    async def _serve(self, command: RemotingCommand) -> None:
        """Handle one request from start to answer. While the peer does not read there is none, nor is it prepared."""
        if not self._writing and self._transport is not None:
            # An answer in this turn of the loop was more than the peer reads.
            self._in_flight -= 1
            self._account_in_flight(-size_of(command))
            self._postpone([command, *self._backlog])
            return
        try:
            reply = await self._handler.handle(command, self)
        except Exception as error:
            reply = self._server.failure(error, self)
        finally:
            self._in_flight -= 1
            self._account_in_flight(-size_of(command))
        if reply is not None:
            self._server.count(command.code, reply.code)
            while not self._writing and self._transport is not None and self.close_reason is None:
                await self._may_answer.wait()
            self._answer(command, reply)
        if self._backlog or not self._reading:
            self.go_on()

    def _answer(self, command: RemotingCommand, reply: RemotingCommand | Reply) -> None:
        transport = self._open
        if transport is None:
            return
        try:
            head, body = encode_reply(command, reply)
        except (ProtocolError, UnicodeError) as error:
            reply = self._server.failure(error, self)
            head, body = encode_reply(command, reply)
        if len(body) < SHARED_BYTES:
            if head:
                transport.write(head + body)
        else:
            self._shared_bytes += len(body)
            transport.writelines((head, body))

    # --- bounds ---

    def _postpone(self, rest: list[Received]) -> None:
        self._set_backlog(rest)
        if rest:
            self.stop_reading()

    def _set_backlog(self, backlog: list[Received]) -> None:
        """Have these wait, instead of those that have waited."""
        size = sum(size_of(request) for request in backlog if not isinstance(request, tuple))
        if size and not self._backlog_bytes and not self._unfinished_bytes:
            self._holding_since_s = time.monotonic()
        self._backlog = backlog
        self._memory.backlog_bytes += size - self._backlog_bytes
        self._backlog_bytes = size

    def _release_all(self) -> None:
        """Nothing more is read or answered."""
        self._set_backlog([])
        self._incoming.drop_unfinished()
        self._account(0)
        self._memory.fair_queue.leave(self)
        self._memory.reads_again(self)
        self._may_answer.set()

    @property
    def held(self) -> Holding[Connection]:
        """Return the bytes that have come and are not being handled."""
        return Holding(self, self.address, self._unfinished_bytes + self._backlog_bytes, self._holding_since_s)

    @property
    def unread(self) -> Holding[Connection]:
        """Answers that wait for the peer; not what is held anyway, for all who are told the same."""
        # What is encrypted is nobody else's.
        shared = self._shared_bytes if self._tls is None else min(self._shared_bytes, self._tls.waiting_bytes)
        size = 0 if self._transport is None else self._transport.get_write_buffer_size() - shared
        return Holding(self, self.address, max(0, size), self._unread_since_s)

    def stop_reading(self) -> None:
        """Take nothing more from the peer until `go_on`."""
        if self._reading and (transport := self._open):
            self._reading = False
            transport.pause_reading()

    @property
    def missing_bytes(self) -> int:
        """Number of bytes still to come of an unfinished frame, as far as the peer has announced it."""
        incoming = self._incoming
        return 0 if self.closed else max(0, incoming.announced_bytes - incoming.buffered_bytes)

    def read_on(self) -> None:
        """Resume reading: the next piece of a large frame may come."""
        if self._reading and (transport := self._open):
            transport.resume_reading()

    def read_later(self) -> None:
        """Pause reading while others have their turn."""
        if self._reading and (transport := self._open):
            transport.pause_reading()

    @property
    def is_idle(self) -> bool:
        """Return whether no request of this connection is being handled."""
        return not self._in_flight and self.close_reason is None

    def go_on(self) -> None:
        """Take up the backlog, then reading, as far as the bounds allow."""
        transport = self._open
        if transport is None or not self._writing:
            return
        backlog = self._backlog
        self._set_backlog([])
        self._process(backlog)
        if not self._reading and self._may_read():
            self._reading = True
            self.last_read = self._frame_since = self._server.now
            transport.resume_reading()

    def _may_read(self) -> bool:
        return self._writing and not self._backlog and not self._server.is_closing

    def _note_unfinished(self, size: int, arrived: int) -> None:
        before = self._unfinished_bytes
        if not before or size < before + arrived:
            self._frame_since = self._server.now  # a frame has just begun
            self._holding_since_s = time.monotonic()
        self._account(size)
        if size > before:
            self._memory.unfinished_grew()
        announced = self._incoming.announced_bytes
        if announced >= LARGE_BYTES and self._memory.must_queue(size):
            self.read_later()
            self._memory.fair_queue.wait(self)
        else:
            self._memory.fair_queue.leave(self)

    def _account(self, size: int) -> None:
        self._memory.unfinished_bytes += size - self._unfinished_bytes
        self._unfinished_bytes = size

    def _account_in_flight(self, size: int) -> None:
        self._in_flight_bytes += size
        self._memory.account_in_flight(size)

    def _refuse(self, error: ProtocolError, data: bytes) -> None:
        protocol, answer = error.fields.get("protocol"), b""
        if protocol == "TLS" and offers_h2(data):
            error, answer = ProtocolError(f"a TLS ClientHello for HTTP/2: {GRPC_IS_ELSEWHERE}"), NO_APPLICATION_PROTOCOL
        elif protocol == "HTTP":
            answer = _HTTP_REFUSAL
        elif protocol == "HTTP/2":
            answer = _HTTP_2_REFUSAL
        self._server.refusals.note("protocol-error", self.peer, str(error))
        if answer and self._transport is not None:
            self._transport.write(answer)
        self.close(f"protocol error: {error}")

    def tick(self, now: float) -> None:
        """Look at the clock. Time in which this side did not read does not count against the peer."""
        settings = self._settings
        slack = settings.tick_s
        if self.close_reason is not None:
            if now - self._closing_since > CLOSE_GRACE_S + slack:
                self.abort(self.close_reason)
        elif not self._writing:
            if now - self._not_writing_since > settings.idle_timeout_s + slack:
                self.abort("peer does not read its answers")
        elif not self._reading:
            return
        elif self._unfinished_bytes:
            allowed = settings.frame_deadline_s + self._unfinished_bytes / settings.frame_min_bytes_per_s
            if now - self._frame_since > allowed + slack:
                self.close(f"frame not complete after {allowed:g} s")
        elif not self._in_flight and now - self.last_read > settings.idle_timeout_s + slack:
            self.close(f"idle for {settings.idle_timeout_s:g} s")


def size_of(command: RemotingCommand) -> int:
    """About how many bytes a request holds while it is handled: a text by its width, a field by its place, too."""
    fields = command.ext_fields
    if not fields:
        return len(command.body)
    return (
        len(command.body) + getsizeof("".join(fields)) + getsizeof("".join(fields.values())) + FIELD_BYTES * len(fields)
    )


def host_and_port(address: object) -> str:
    """A socket address as text; "" when there is none."""
    if not isinstance(address, tuple):
        return str(address or "")
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
