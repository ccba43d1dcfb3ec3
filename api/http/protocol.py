# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP protocol with additions: a fast path, deadlines, and bounds on heads and bodies.

uvicorn waits for a head or a body for ever. This protocol sets deadlines:

- A head must be complete ``header_timeout_s`` after its first byte, or after the connection was opened. It must stay
  within ``max_header_bytes``.
- A message must be complete a little after the application's own deadline for bodies.
- If a client goes on sending after its request was answered (with 413, say), the server reads on for ``linger_s``. So
  the client can read the answer before the connection is closed.
- If a client does not fetch its answers, its connection is closed after ``write_timeout_s``.

`api.http.bounds` bounds what all connections hold together.

No byte of a body is ever read as a request. An upgrade to a protocol that this server does not speak is ignored
(RFC 9110, 7.8). But httptools takes such a message for one without a body and stops after the head. So a new parser
gets the same head without its Upgrade header. It reads on from there: the body, and the next request. If a head is
ambiguous, the answer is 400 (`api.http.heads`), and nothing after it is read. uvicorn's own protocol drops what follows
such a head. h11 has no such stop, but takes forty times as long for a head: too long for the promised rate of plain
reads.

A plain read of a route is answered as soon as its head is parsed (`api.http.fast_path`), if the connection has no other
request in progress. If several requests arrive together, only the first is answered so. The others take turns with
other connections.

A request that is parsed can take sixty times the memory of its bytes. So while requests wait for the one before them,
the bytes after them are not parsed.

Pattern: Kludex/uvicorn#157.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from api.gateway.metrics import Metrics
from api.http.bounds import OF_ADDRESS, ConnectionBounds
from api.http.fast_path import FastRoutes
from api.http.heads import HeadError, read_head
from api.http.problems import BAD_REQUEST, BUSY, RETRY, TIMEOUT, TOO_LARGE, TOO_MANY, Kind, Problem
from api.http.settings import HttpSettings
from remoting.codec.bounds import address_of
from remoting.server.refusals import Refusals
from remoting.server.tls_channel import Secured, TlsTransport

_GRACE_S: Final = 5.0
_HEADER_BYTES: Final = 150
"""Memory of a header without its name and value, roughly, in bytes."""
_REQUEST_BYTES: Final = 3000
"""Memory of a request that waits behind another one, in bytes."""
_PIECE_BYTES: Final = 8 * 1024
"""Number of bytes that are parsed at a time. uvloop reads up to 256 KiB, which may hold thousands of requests."""
_HEAD_TOO_LARGE: Final = dataclasses.replace(TOO_LARGE, status=431)

_BROKEN_BODY: Final = Problem(BAD_REQUEST, "the body is not in the form that its Transfer-Encoding names").response()
"""ASGI application that gives this answer."""


class Listener(NamedTuple):
    """Objects that all connections of a listener share."""

    limits: HttpSettings
    counts: Metrics
    fast_routes: FastRoutes
    bounds: ConnectionBounds
    refusals: Refusals


class _Cycle(RequestResponseCycle):
    """A request and its answer.

    An answer over HTTP/1.0 without a length is not chunked: the end of the connection ends it. uvicorn would chunk it.
    """

    is_broken = False
    """The rest of the body cannot be read."""
    _is_open_ended = False

    def break_off(self) -> None:
        """End the body as if the client had disconnected. The answer is still sent, as the connection's last one."""
        self.is_broken = True
        self.keep_alive = False
        self.message_event.set()

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Let the application answer. If the body is known to be broken before that, answer 400."""
        await super().run_asgi(cast("ASGI3Application", _BROKEN_BODY) if self.is_broken else app)

    async def receive(self) -> ASGIReceiveEvent:
        """Return a part of the body, or the disconnect message if there will be no more."""
        if not self.is_broken:
            message = await super().receive()
            if not self.is_broken:
                return message
        return {"type": "http.disconnect"}

    async def send(self, message: ASGISendEvent) -> None:
        """Write a part of the answer."""
        if self.scope["http_version"] == "1.0":
            if message["type"] == "http.response.start":
                if all(name.lower() != b"content-length" for name, _ in message.get("headers", ())):
                    self._is_open_ended = True
                    self.chunked_encoding = False
            elif message["type"] == "http.response.body" and self._is_open_ended:
                self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class GuardedProtocol(HttpToolsProtocol, Secured):
    """One connection. uvicorn makes it and passes all arguments but the first."""

    cycle: _Cycle | None  # type: ignore[assignment]
    """The newest request. None before the first one, and after the connection was lost."""

    def __init__(
        self,
        listener: Listener,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits, self.counts, self.fast_routes, self.bounds, self.refusals = listener
        # uvicorn's parser would read on after a message that ends the connection
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self._between = True
        """The parser is between two messages."""
        self._in_head = True
        self._unparsed = b""
        """Bytes that arrived after the requests that wait."""
        self._is_first = False
        """The fast path has answered no request of the newest bytes."""
        self._was_fast = False
        """The fast path has answered the message that the parser is in."""
        self._head_bytes = 0
        """Size of an incomplete head, or of chunk headers and trailers since the last byte of a body."""
        self._is_last = False
        """The connection ends with the message that the parser is in."""
        self._is_over = False
        """Nothing more is read, because the last message was read or a message broke a rule."""
        self._refusal = b""
        """Answer that is sent after all earlier requests are answered."""
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.address = ""
        self.is_tls = False
        self.certificate_names: tuple[str, ...] = ()
        """Names in the client's verified certificate."""
        self.needs_certificate = False
        """Clients without a certificate may read only health: `TrustedOrigins` refuses the rest."""
        self._lacks_certificate = False
        self.active_s = time.monotonic()
        self.held_bytes = 0
        self.held_since_s = 0.0

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, unless there are too many or its client is gone already.

        A connection that was reset in the backlog has no client address any more, but may still have a request. The
        request is dropped: no client would get the answer, the history could name no sender, and it is not "from this
        machine".
        """
        super().connection_made(transport)
        self.counts.connections.labels("http").inc()
        if self.client is None:
            transport.abort()
            return
        self.address = address_of(self.client[0])
        if self.bounds.admit(self):
            self._arm(self.limits.header_timeout_s)
        elif self.bounds.has_too_many(self.address):
            self._count_refusal(OF_ADDRESS, f"{self.limits.max_connections_per_address} of this address")
            self._refuse(TOO_MANY, "too many connections of this address (--quota http-connections=...)")
        else:
            self._count_refusal("too-many-connections", f"{self.limits.max_connections} connections, all busy")
            self._refuse(BUSY, "too many connections")

    def secure(self, transport: TlsTransport, names: tuple[str, ...]) -> None:
        """Take the TLS transport. Requests have the names as ``request.state.certificate_names``.

        Args:
            transport: Transport for the decrypted data.
            names: Names in the client's verified certificate. Empty without one.
        """
        self.transport = transport
        self.flow = FlowControl(transport)
        self.scheme = "https"
        self.is_tls, self.certificate_names = True, names
        self._lacks_certificate = self.needs_certificate and not names
        self.app_state = {
            **self.app_state,
            "certificate_names": names,
            "lacks_certificate": self._lacks_certificate,
        }

    def refuse_tls(self, reason: str, detail: str) -> None:
        """Refuse a plain connection where TLS is required, or a connection with a failed TLS handshake."""
        self._count_refusal(reason, detail)
        if reason == "not-encrypted":
            self._refuse(BAD_REQUEST, "this port requires https")
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything that the connection holds."""
        self.bounds.release(self)
        self._unparsed = b""
        self._disarm()
        self._clear_stall()
        self._unset_keepalive_if_required()
        self.counts.connections.labels("http").dec()
        super().connection_lost(exc)
        # The requests and this object refer to each other, and the garbage collector comes late.
        self.pipeline.clear()
        self.cycle = None

    def data_received(self, data: bytes) -> None:
        """Feed the parser with what a few requests need, and keep the rest until they are answered."""
        self._is_first = True
        if len(data) <= _PIECE_BYTES and not self.pipeline:
            self._feed(data)
        elif not self._is_over:
            self._unparsed += data
            self._feed_pieces()

    def _feed_pieces(self) -> None:
        """Feed the parser with the bytes that wait, until a request waits for another one."""
        while self._unparsed and not (self.pipeline or self._is_over or self.transport.is_closing()):
            piece, self._unparsed = self._unparsed[:_PIECE_BYTES], self._unparsed[_PIECE_BYTES:]
            self._feed(piece)
        if self._is_over:
            self._unparsed = b""
        if self._unparsed:
            self._disarm()  # the head may be complete in these bytes
            self.flow.pause_reading()
            self._weigh()

    def _feed(self, data: bytes) -> None:
        """Feed the parser, and bound the bytes that are not yet a request."""
        if self._is_over:
            return
        self._head_bytes += len(data)
        # uvicorn's own method cancels the keep-alive timer first and starts it again after the answer: expensive.
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError) as error:
            if not self._goes_on(error, data):
                return
        if self.transport.is_closing():
            return
        if self._between:  # empty lines before a request
            self._head_bytes = 0
        if self._head_bytes or self.held_bytes or self.pipeline or not self._in_head:
            self._weigh()
        if self._head_bytes > self.limits.max_header_bytes:
            self._refuse(_HEAD_TOO_LARGE, f"the head is larger than {self.limits.max_header_bytes} bytes")
        elif self._deadline is None:  # a request that came in one piece needs no deadline
            if not self._in_head:
                self._arm(self.limits.body_timeout_s + _GRACE_S)
            elif self._head_bytes or not self._between:  # or it began after another request
                self._arm(self.limits.header_timeout_s)

    def _goes_on(self, error: Exception, data: bytes) -> bool:
        """Read on after the head of a message that asks for an upgrade. Return False if the bytes are not HTTP."""
        rest = memoryview(data)  # no copy for each of many such heads
        while isinstance(error, httptools.HttpParserUpgrade):
            rest = rest[error.args[0] :]
            head = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
            head += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            try:
                self.parser.feed_data(b"\r\n".join((*head, b"", b"")))
                self.parser.feed_data(rest)
            except (httptools.HttpParserUpgrade, httptools.HttpParserError) as another:
                error = another
            else:
                return True
        if not self._is_over:  # bytes after the last message are ignored
            cause = error.__context__
            self.send_400_response(str(cause if isinstance(cause, HeadError) else error))
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP."""
        self._count_refusal("bad-request", msg)
        self._refuse(BAD_REQUEST, msg)

    def pause_writing(self) -> None:
        """Start the deadline for a client that reads its answers too slowly."""
        super().pause_writing()
        self._weigh()
        self._stalled = self.loop.call_later(self.limits.write_timeout_s, self._abort)

    def resume_writing(self) -> None:
        """Clear the deadline, because the client reads again."""
        super().resume_writing()
        self._weigh()
        self._clear_stall()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. Data that the client has not fetched is dropped: closing would wait for it."""
        left_s = self.active_s + self.timeout_keep_alive - time.monotonic()
        if not self._is_idle():
            self.timeout_keep_alive_task = None  # the next answer starts it
        elif left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)
        elif self.transport.get_write_buffer_size():
            self._abort()
        else:
            super().timeout_keep_alive_handler()

    # --- bounds over all connections ---

    @property
    def is_busy(self) -> bool:
        """Return whether a request is being answered."""
        return self._in_head and not self._is_answered()

    def evict(self, reason: str) -> None:
        """Close to make room for others. A client that has begun a request gets an answer that asks it to try again."""
        self._count_refusal(reason, f"idle for {time.monotonic() - self.active_s:.0f} s")
        if self._head_bytes and self._in_head and self._is_answered() and not self.transport.get_write_buffer_size():
            self._refuse(BUSY, "too much at once from this address; try again")
        else:
            self.transport.abort()

    def _weigh(self) -> None:
        """Report to the bounds how many bytes are held for this client."""
        size = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if self._head_bytes:
            size += self._head_bytes + _HEADER_BYTES * len(self.headers or ())
        if self.cycle is not None:
            size += len(self.cycle.body) + _REQUEST_BYTES * len(self.pipeline) + len(self._unparsed)
        if size != self.held_bytes:
            self.bounds.hold(self, size)

    def _count_refusal(self, reason: str, detail: str) -> None:
        self.refusals.note(reason, f"{self.client[0]}:{self.client[1]}" if self.client else "", detail)

    # --- the fast path ---

    def _is_idle(self) -> bool:
        """Return whether the connection is idle: all that came was parsed, and all requests are answered."""
        return self._between and not self._head_bytes and self._is_answered()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _answer_fast(self) -> bool:
        """Answer the request that has just got its complete head. Return False to leave it to the application."""
        began_s = time.perf_counter()
        parser = self.parser
        if (
            not self._is_first
            or not self._is_answered()
            or self.flow.write_paused
            or parser.get_method() != b"GET"
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or self.transport.is_closing()
        ):
            return False
        try:
            defaults, has_certificate = self.server_state.default_headers, bool(self.certificate_names)
            answer = self.fast_routes.answer(self.client, self.url, self.headers, defaults, has_certificate)
        except Exception:  # the parser would take it for invalid HTTP; the application answers 500 and logs it
            answer = None
        if answer is None:
            return False
        self._is_first = False
        self._was_fast = True
        self.transport.writelines(answer)  # one call to the kernel, and a large body is not copied
        self.server_state.total_requests += 1
        # Timers are expensive, so the running one is not reset: at its end it checks if the connection was idle.
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        self.fast_routes.answered(time.perf_counter() - began_s)
        return True

    # --- the parser ---

    def on_message_begin(self) -> None:
        """Begin a request at its first byte."""
        if self._is_last:
            self._is_over = True
            raise HeadError("the connection ended with the request before")
        self._between = False
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. A trailer is not a header and is dropped (RFC 9110, 6.5.1)."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Answer the request or begin it. The body has its own deadline."""
        parser = self.parser
        is_upgrade = parser.should_upgrade()
        if is_upgrade and parser.get_method() != b"CONNECT":
            return  # the parser calls again (`_goes_on`)
        if self._lacks_certificate or not self._answer_fast():
            self._begin()
        self._in_head = False
        self._head_bytes = 0
        self._disarm()

    def _begin(self) -> None:
        """Give the request to the application, after the requests before it are answered.

        Raises:
            HeadError: The head breaks a rule.
        """
        version = self.parser.get_http_version()
        method = self.parser.get_method()
        target = read_head(method, version, self.url, self.headers)
        if target.host is not None:
            self.headers = [header for header in self.headers if header[0] != b"host"]
            self.headers.append((b"host", target.host))
        path = target.path.decode("ascii")
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "method": method.decode("ascii"),
            "scheme": self.scheme or "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": target.path,
            "query_string": target.query,
            "root_path": self.root_path,
            "headers": self.headers,
            "client": self.client,
            "server": self.server,
            "state": self.app_state.copy(),
        }
        keeps_alive = version != "1.0" and self.parser.should_keep_alive()
        self._is_last = not keeps_alive
        is_next = self._is_answered()
        self.cycle = _Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=version != "1.0"
            and any(name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers),
            keep_alive=keeps_alive,
            on_response=self.on_response_complete,
        )
        if is_next:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request. The next head may take as long as the connection may be idle."""
        if self._in_head:
            return  # the message asks for an upgrade, and the parser calls again
        self._between = True
        self._is_over = self._is_last
        self._in_head = True
        self._head_bytes = 0
        self.active_s = time.monotonic()
        self._disarm()
        if self._was_fast:
            self._was_fast = False
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """End the answer. The rest of its request must arrive within ``linger_s``."""
        super().on_response_complete()
        self._is_first = True
        self._feed_pieces()
        if self.pipeline:  # uvicorn would resume reading: a segment of requests for each one that is answered
            self.flow.pause_reading()
        if self.held_bytes:
            self._weigh()
        if not self._is_answered():
            return
        if not self._in_head:
            self._arm(self.limits.linger_s)
        elif self._refusal:
            self.transport.write(self._refusal)
            self.transport.close()

    # --- deadlines ---

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _clear_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _abort(self) -> None:
        self.counts.security.labels(TIMEOUT.slug).inc()
        self.transport.abort()

    def _too_slow(self) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self._is_over or (self._in_head and self._between and not self._head_bytes):  # or connected and sent nothing
            self.transport.close()
            return
        self.counts.security.labels(TIMEOUT.slug).inc()
        if self._in_head:
            self._refuse(TIMEOUT, f"the head was not complete after {self.limits.header_timeout_s:g} s")
        else:
            self.transport.close()

    def _refuse(self, kind: Kind, detail: str) -> None:
        """Close with an answer, which is sent after all earlier answers.

        If the body of a request is incomplete, that request's own answer says so.
        """
        self._is_over = True
        if not self._in_head:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()
            else:
                self.cycle.break_off()
            return
        retry = RETRY if kind is TOO_MANY else {}
        answer = Problem(kind, detail, headers={"connection": "close", **retry}).response()
        lines = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self._refusal = b"%b%b\r\n%b" % (STATUS_LINE[kind.status], lines, bytes(answer.body))
        if self._is_answered():
            self.transport.write(self._refusal)
            self.transport.close()
        else:
            self._arm(self.limits.body_timeout_s + _GRACE_S)
