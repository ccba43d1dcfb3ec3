# SPDX-License-Identifier: Apache-2.0
"""One connection on the event loop: `RemotingConnection` with a socket, and bounds on all that a peer can make grow.

Path of a request::

    data_received -> frames -> recognised by `RequestCache`: answered in the same turn, all answers in one write
                            -> all others: Handler.handle in a task of its own, answered at the end of the task

Behaviour of a peer, and the bound that stops it:

=====================================  =====================================================================
sends and never reads                  above `write_high_bytes` nothing more is read, handled or answered. The
                                       connection is closed after the idle timeout, or sooner if all such
                                       connections together hold `max_unread_bytes`
sends faster than the server handles   after `max_in_flight` requests or `max_in_flight_bytes`, reading pauses
announces a frame, does not finish it  closed after `frame_deadline_s`, plus time for a slow but steady upload, or
                                       sooner if all such connections together hold `max_received_bytes`
sends nothing                          closed after `idle_timeout_s`, or sooner if `max_connections` is reached
sends large frames, like many others   is read in turn with the others (`FairQueue`)
sends HTTP, or bytes of no protocol    closed at the first length field. An HTTP client gets the right address
sends TLS to a port without TLS        closed at the first length field (with TLS: `remoting.server.tls_channel`)
=====================================  =====================================================================

If memory is short, the connection that has held most for longest is evicted (`remoting.codec.bounds`).

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingServer, NettyRemotingAbstract, NettyServerConfig.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable
from sys import getsizeof
from typing import Any, Final, NamedTuple, Protocol, cast

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
from schemas.events import AnyEvent

SHARED_BYTES: Final = 64 * 1024
"""Size of a body, in bytes, from which on it is sent without a copy. All peers with this answer share its bytes."""

_HTTP_REFUSAL: Final = (
    f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(HTTP_IS_ELSEWHERE) + 1}\r\n"
    f"Connection: close\r\n\r\n{HTTP_IS_ELSEWHERE}\n"
).encode()

_GO_AWAY: Final = b"\0\0\0\0\0\0\0\x01" + GRPC_IS_ELSEWHERE.encode()
# An empty SETTINGS frame, then GOAWAY with PROTOCOL_ERROR and a text that gRPC clients show (RFC 9113, 6.5 and 6.8).
_HTTP_2_REFUSAL: Final = b"\0\0\0\x04" + bytes(5) + len(_GO_AWAY).to_bytes(3) + b"\x07" + bytes(5) + _GO_AWAY
InlineAuthorizer = Callable[[Any, "Connection"], Reply]
"""Returns the reply to a request that `RequestCache` recognises, or a refusal. An exception becomes an error reply."""

FIELD_BYTES: Final = 160
"""Memory of a header field without its name and value, in bytes: its place in the dict, and two objects."""

CLOSE_GRACE_S: Final = 5.0
"""Time that a closed connection may take to flush before it is dropped, in seconds."""


class Handler(Protocol):
    """Interface that the server calls for connections and requests. All methods are called on the event loop."""

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | Reply | None:
        """The answer to a request, or None for no answer. An exception becomes an answer (`Server.failure`).

        A large body must be one object for all peers that get the same answer: it stays in memory until the last peer
        has read it. An unknown request code gets the answer REQUEST_CODE_NOT_SUPPORTED.
        """

    def on_connect(self, connection: Connection) -> None:
        """Called after a peer has connected."""

    def on_close(self, connection: Connection) -> None:
        """Called after a connection ended, from either side. `close_reason` has the reason."""


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
        """Count a connection and give it an id. Returns False if the connection is refused."""

    def release(self, connection: Connection) -> None:
        """Remove a closed connection from the counts."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a request as a task. The server keeps a reference to the task until it ends."""

    def failure(self, error: Exception, connection: Connection) -> RemotingCommand:
        """The answer to a request after its handler raised an exception. An unexpected exception is logged."""

    def count(self, request_code: int, response_code: int) -> None:
        """Count an answer."""

    def guard(self, callback: Callable[[Connection], None], connection: Connection) -> None:
        """Call a callback of the handler. An exception in it does not end the connection."""


class LastHeartbeat(NamedTuple):
    """Header fields of a heartbeat, its event, and routing key and payload of the event on the event log."""

    fields: dict[str, str] | None
    event: AnyEvent
    encoded: tuple[str, bytes]


class Connection(Secured):
    """One connection, with the attributes and methods for handlers.

    Attributes:
        id: Unique id, also across restarts.
        peer: host:port at the other end of the socket.
        address: Address of the peer for limits by address.
        last_read: Time of the last received bytes, on the server's clock.
        has_spoken: Whether the peer has sent a complete request.
        has_registered: Whether a broker has registered over the connection. Handlers set it.
        is_tls: Whether the connection is encrypted.
        certificate_names: Names in the peer's verified certificate. Empty without one.
        known: Data that the handler keeps about the peer.
        heartbeat: Last heartbeat, because a broker sends the same one each second. Handlers set it.
        close_reason: Reason why the connection was closed, or None while it is open.
    """

    def __init__(self, server: Server) -> None:
        """Create the connection. `RemotingServer` does this for each accepted socket."""
        settings = server.settings
        self.id = ""
        self.peer = ""
        self.address = ""
        self.has_spoken = False
        self.has_registered = False
        self.is_tls = False
        self.certificate_names: tuple[str, ...] = ()
        self.known: object = None
        self.heartbeat: LastHeartbeat | None = None
        self.close_reason: str | None = None
        self._server = server
        self._settings = settings
        self._handler = server.handler
        self._memory = server.memory
        self._incoming = RemotingConnection(settings.frame_limit_bytes, server.inline)
        self._transport: asyncio.Transport | None = None
        self._tls: TlsTransport | None = None
        self._backlog: deque[Received] = deque()
        self._put_back = 0
        """Number of requests at the front of the backlog that were started, and put back before they were handled."""
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
            True if the request was sent. False if the connection is closing, or if the peer does not read.
        """
        transport = self._open
        if transport is None or not self._writing:
            return False
        transport.write(encode_frame(command, serialize_type))
        return True

    def close(self, reason: str) -> None:
        """Close the connection after all written data has been sent."""
        if self.close_reason is None and self._transport is not None:
            self.close_reason = reason
            self._closing_since = self._server.now
            self._release_all()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection immediately. Data not yet sent is lost."""
        if self._transport is not None:
            if self.close_reason is None:
                self.close_reason = reason
            self._release_all()
            self._transport.abort()

    def let_go(self, command: RemotingCommand) -> None:
        """Drop the body of a request that is no longer needed, so that other requests can use the memory."""
        size = len(command.body)
        command.body = b""
        self._account_in_flight(-size)

    # --- remoting.server.tls_channel.Secured ---

    def secure(self, transport: TlsTransport, names: tuple[str, ...]) -> None:
        """Use the encrypted transport from now on, after the handshake."""
        self._transport = self._tls = transport
        self.is_tls = True
        self.certificate_names = names

    def refuse_tls(self, reason: str, detail: str) -> None:
        """Refuse and close the connection: TLS is required and the peer does not use it, or TLS failed."""
        self._server.refusals.note(reason, self.peer, detail)
        self.close(f"{reason}: {detail}")

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection or refuse it. If the peer reset it before the accept, it has no address: abort it."""
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
        """Release the connection. Requests in flight are completed, and their answers are dropped."""
        if self._transport is None:
            return
        self._transport = None
        if self.close_reason is None:
            self.close_reason = f"connection lost: {exc}" if exc else "closed by peer"
        self._release_all()
        self._server.release(self)
        self._server.guard(self._handler.on_close, self)

    def data_received(self, data: bytes) -> None:
        """Receive bytes, and process the requests that they complete."""
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
            backlog = self._backlog
            waited = bool(backlog)
            backlog += received
            if not waited:
                self._process()
            if backlog:
                self._postpone(received if waited else backlog)
        if incoming.error is not None:
            self._refuse(incoming.error, data)
        elif incoming.buffered_bytes or self._unfinished_bytes:
            self._note_unfinished(incoming.buffered_bytes, len(data))

    def pause_writing(self) -> None:
        """Stop answering and reading, because the peer does not read its answers."""
        self._writing = False
        self._may_answer.clear()
        self._not_writing_since = self._server.now
        self._unread_since_s = time.monotonic()
        self.stop_reading()
        self._memory.stopped_reading(self)

    def resume_writing(self) -> None:
        """Answer and read again, because the peer reads its answers again."""
        self._writing = True
        self._shared_bytes = 0
        self._may_answer.set()
        self._memory.reads_again(self)
        self.go_on()

    # --- requests ---

    def _process(self) -> None:
        """Answer the recognised requests of the backlog and start the others, as far as the bounds allow."""
        transport = self._transport
        if transport is None:
            return
        gate = self._server.gate
        high = self._settings.write_high_bytes
        backlog = self._backlog
        out: list[bytes] = []
        size = successes = 0
        while backlog:
            request = backlog.popleft()
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
                        break
            elif not self._start(request):
                backlog.appendleft(request)
                break
        if successes:
            self._server.answered_inline[0] += successes
        if out:
            transport.write(b"".join(out))

    def _start(self, command: RemotingCommand) -> bool:
        """Start a request. Returns False if the bounds do not allow it now."""
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
        if self._backlog_bytes:  # the request waited, so its size is in this sum
            self._account_backlog(-size)
        self._in_flight += 1
        self._account_in_flight(size)
        self._server.spawn(self._serve(command, size - len(command.body)))
        return True

    async def _serve(self, command: RemotingCommand, fields_bytes: int) -> None:
        """Handle one request and send its answer. If the peer does not read, the request goes back to the backlog.

        Args:
            command: The request.
            fields_bytes: Its size without the body, which may be released meanwhile.
        """
        if not self._writing and self._transport is not None:
            # An answer in this turn of the loop has filled the write buffer.
            size = fields_bytes + len(command.body)
            self._in_flight -= 1
            self._account_in_flight(-size)
            self._backlog.insert(self._put_back, command)
            self._put_back += 1
            self._account_backlog(size)
            return
        try:
            reply = await self._handler.handle(command, self)
        except Exception as error:
            reply = self._server.failure(error, self)
        finally:
            self._in_flight -= 1
            self._account_in_flight(-fields_bytes - len(command.body))
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

    def _postpone(self, requests: Iterable[Received]) -> None:
        """Count the size of requests that stay in the backlog, and stop reading."""
        self._account_backlog(sum(size_of(request) for request in requests if not isinstance(request, tuple)))
        self.stop_reading()

    def _release_all(self) -> None:
        """Release all memory of the connection. Nothing more is read or answered."""
        self._backlog.clear()
        self._account_backlog(-self._backlog_bytes)
        self._incoming.drop_unfinished()
        self._account(0)
        self._memory.fair_queue.leave(self)
        self._memory.reads_again(self)
        self._may_answer.set()

    @property
    def held(self) -> Holding[Connection]:
        """Received bytes of requests that are not yet being handled."""
        return Holding(self, self.address, self._unfinished_bytes + self._backlog_bytes, self._holding_since_s)

    @property
    def unread(self) -> Holding[Connection]:
        """Bytes of answers that wait for the peer, without bodies that are shared with other connections."""
        # Encrypted bytes are not shared.
        shared = self._shared_bytes if self._tls is None else min(self._shared_bytes, self._tls.waiting_bytes)
        size = 0 if self._transport is None else self._transport.get_write_buffer_size() - shared
        return Holding(self, self.address, max(0, size), self._unread_since_s)

    def stop_reading(self) -> None:
        """Stop reading from the peer until `go_on`."""
        if self._reading and (transport := self._open):
            self._reading = False
            transport.pause_reading()

    @property
    def missing_bytes(self) -> int:
        """Number of bytes that are still missing from an unfinished frame, by its announced length."""
        incoming = self._incoming
        return 0 if self.closed else max(0, incoming.announced_bytes - incoming.buffered_bytes)

    def read_on(self) -> None:
        """Resume reading, for the next piece of a large frame."""
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
        """Process the backlog, then read again, as far as the bounds allow."""
        transport = self._open
        if transport is None or not self._writing:
            return
        self._put_back = 0
        self._process()
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

    def _account_backlog(self, size: int) -> None:
        """Add a size, which may be negative, to the bytes of the backlog. A backlog that changes counts as new."""
        if not self._unfinished_bytes:
            self._holding_since_s = time.monotonic()
        self._backlog_bytes += size
        self._memory.backlog_bytes += size

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
        """Check the deadlines. The time in which the server did not read does not count against the peer."""
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
    """Approximate memory of a request while it is handled, in bytes: body, texts of the fields, and dict entries."""
    fields = command.ext_fields
    if not fields:
        return len(command.body)
    return (
        len(command.body) + getsizeof("".join(fields)) + getsizeof("".join(fields.values())) + FIELD_BYTES * len(fields)
    )


def host_and_port(address: object) -> str:
    """A socket address as text, or "" without an address."""
    if not isinstance(address, tuple):
        return str(address or "")
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
