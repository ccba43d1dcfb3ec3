# SPDX-License-Identifier: Apache-2.0
"""uvicorn's HTTP protocol with what it lacks: a fast path, deadlines, and bounds on heads and bodies.

uvicorn waits for a head or a body for ever. Here a head must be complete ``header_timeout_s`` after its first byte (or
after connecting) and stay within ``max_header_bytes``, and a message must be complete a little after the application's
own deadline for bodies. A client that goes on sending after its request was answered (413, say) is listened to for
``linger_s``, so that it can read the answer before the connection goes. One that does not fetch its answers is cut off
after ``write_timeout_s``. What all connections hold together is bounded in `api.http.bounds`.

No byte of a body is ever read as a request. An upgrade that nobody here speaks is ignored (RFC 9110, 7.8), but
httptools takes the message for one without a body and stops behind the head. So the parser is made anew and told the
same head without its Upgrade, and reads on from there: the body, and the next request. What leaves a doubt is answered
400 (`api.http.heads`), and nothing behind it is read. uvicorn's own protocol drops what comes behind such a head. h11
has no such stop, and takes forty times as long for a head: too long for the promised rate of plain reads.

A plain read of a route is answered as soon as its head is parsed (`api.http.fast_path`), if nothing else is under way
on its connection. Of requests that arrive together only the first is: those behind it take turns with other
connections.

Pattern: Kludex/uvicorn#157.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
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
from api.http.problems import BAD_REQUEST, BUSY, MEDIA_TYPE, RETRY, TIMEOUT, TOO_LARGE, TOO_MANY, Kind, Problem
from api.http.settings import HttpSettings
from remoting.codec.bounds import address_of
from remoting.server.refusals import Refusals
from remoting.server.tls_channel import Secured, TlsTransport

_GRACE_S: Final = 5.0
_HEADER_BYTES: Final = 150
"""Memory of a header without its name and value, roughly, in bytes."""
_REQUEST_BYTES: Final = 3000
"""Memory of a request that waits behind another one, in bytes."""
_HEAD_TOO_LARGE: Final = dataclasses.replace(TOO_LARGE, status=431)

_BROKEN_BODY: Final = Problem(BAD_REQUEST, "the body is not in the form that its Transfer-Encoding names").response()
"""An application that answers so."""


class Listener(NamedTuple):
    """Objects that all connections of a listener share."""

    limits: HttpSettings
    counts: Metrics
    fast_routes: FastRoutes
    bounds: ConnectionBounds
    refusals: Refusals


class _Cycle(RequestResponseCycle):
    """A request and its answer.

    An answer over HTTP/1.0 without a length is not chunked: its end is that of the connection. uvicorn chunks it.
    """

    is_broken = False
    """The rest of the body cannot be read."""
    _is_open_ended = False

    def break_off(self) -> None:
        """End the body, as if the client had gone; the answer is still sent, and is the last one."""
        self.is_broken = True
        self.keep_alive = False
        self.message_event.set()

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Answer, by the application unless the body is known to be broken before it begins."""
        await super().run_asgi(cast("ASGI3Application", _BROKEN_BODY) if self.is_broken else app)

    async def receive(self) -> ASGIReceiveEvent:
        """A part of the body, or that there will be no more."""
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
    """One connection. Made by uvicorn, which passes all arguments but the first."""

    cycle: _Cycle

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
        # uvicorn's parser goes on behind a message that ends the connection
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self._between = True
        """The parser stands between two messages."""
        self._in_head = True
        self._is_first = False
        """No request of the bytes that came last was answered by the fast path."""
        self._was_fast = False
        """The message that the parser is in was."""
        self._head_bytes = 0
        """Size of an incomplete head, or of chunk headers and trailers since the last byte of a body."""
        self._is_last = False
        """The connection ends with the message that the parser is in."""
        self._is_over = False
        """Nothing more is read: the last message was, or one that breaks a rule."""
        self._refusal = b""
        """Sent once everything that was asked before is answered."""
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.address = ""
        self.is_tls = False
        self.certificate_names: tuple[str, ...] = ()
        """Names in the client's verified certificate."""
        self.needs_certificate = False
        """Flag that clients without a certificate may see health alone: `TrustedOrigins` refuses the rest."""
        self._lacks_certificate = False
        self.active_s = time.monotonic()
        self.held_bytes = 0
        self.held_since_s = 0.0

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are too many, or whose it was is gone already.

        A connection that was reset in the backlog has no address any more, and may have a request all the same. It is
        nobody's: no answer would come to anybody, the history would name none, and it is not "from this machine".
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
        """The handshake is done. Requests find this as ``request.state.certificate_names``."""
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
        """Plain where only TLS is taken, or TLS that failed."""
        self._count_refusal(reason, detail)
        if reason == "not-encrypted":
            self._refuse(BAD_REQUEST, "this port requires https")
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.bounds.release(self)
        self.pipeline.clear()  # they and this hold each other, and the garbage collector comes late
        self._disarm()
        self._clear_stall()
        self._unset_keepalive_if_required()
        self.counts.connections.labels("http").dec()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and bound what is not yet a request."""
        if self._is_over:
            return
        self._head_bytes += len(data)
        self._is_first = True
        # uvicorn's own cancels the keep-alive timer first, and starts it again after the answer: expensive.
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
        elif self._deadline is None:  # a request that came in one piece needs none
            if not self._in_head:
                self._arm(self.limits.body_timeout_s + _GRACE_S)
            elif self._head_bytes or not self._between:  # or it began behind another request
                self._arm(self.limits.header_timeout_s)

    def _goes_on(self, error: Exception, data: bytes) -> bool:
        """Read on behind the head of a message that asks for an upgrade; False where something is no HTTP."""
        rest = memoryview(data)  # not copied for each of many such heads
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
        if not self._is_over:  # what comes behind the last message is nobody's
            cause = error.__context__
            self.send_400_response(str(cause if isinstance(cause, HeadError) else error))
        return False

    def send_400_response(self, msg: str) -> None:
        """Bytes that are not HTTP."""
        self._count_refusal("bad-request", msg)
        self._refuse(BAD_REQUEST, msg)

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks."""
        super().pause_writing()
        self._weigh()
        self._stalled = self.loop.call_later(self.limits.write_timeout_s, self._abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._weigh()
        self._clear_stall()

    def timeout_keep_alive_handler(self) -> None:
        """Idle for too long; what the client has not fetched by now is dropped, or closing would wait for it."""
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
        """Close for the sake of others. A client that has begun a request is told to come again."""
        self._count_refusal(reason, f"idle for {time.monotonic() - self.active_s:.0f} s")
        if self._head_bytes and self._in_head and self._is_answered() and not self.transport.get_write_buffer_size():
            self._refuse(BUSY, "too much at once from this address; try again")
        else:
            self.transport.abort()

    def _weigh(self) -> None:
        """Say what is held because of this peer."""
        size = self.transport.get_write_buffer_size() if self.flow.write_paused else 0
        if self._head_bytes:
            size += self._head_bytes + _HEADER_BYTES * len(self.headers or ())
        if self.cycle is not None:
            size += len(self.cycle.body) + _REQUEST_BYTES * len(self.pipeline)
        if size != self.held_bytes:
            self.bounds.hold(self, size)

    def _count_refusal(self, reason: str, detail: str) -> None:
        self.refusals.note(reason, f"{self.client[0]}:{self.client[1]}" if self.client else "", detail)

    # --- the fast path ---

    def _is_idle(self) -> bool:
        """Return whether the connection is idle: all that came was parsed, and all requests are answered."""
        return self._between and not self._head_bytes and self._is_answered()

    def _is_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _answer_fast(self) -> bool:
        """Answer the request whose head is complete; False if it is the application's."""
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
        except Exception:  # here it would pass for invalid HTTP; in the application it is a 500, and logged
            answer = None
        if answer is None:
            return False
        self._is_first = False
        self._was_fast = True
        self.transport.writelines(answer)  # one call to the kernel, and a large body is not copied
        self.server_state.total_requests += 1
        # Timers are expensive: the one that runs is left to find out, at its end, that the connection was not idle.
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        self.fast_routes.answered(time.perf_counter() - began_s)
        return True

    # --- the parser ---

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._is_last:
            self._is_over = True
            raise HeadError("the connection ended with the request before")
        self._between = False
        self.url = b""
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; a trailer is none, and is dropped (RFC 9110, 6.5.1)."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is there; the body has its own deadline."""
        parser = self.parser
        is_upgrade = parser.should_upgrade()
        if is_upgrade and parser.get_method() != b"CONNECT":
            return  # it will be told again (`_goes_on`)
        if self._lacks_certificate or not self._answer_fast():
            self._begin()
        self._in_head = False
        self._head_bytes = 0
        self._disarm()

    def _begin(self) -> None:
        """Give the request to the application, once those before it are answered.

        Raises:
            HeadError: it breaks a rule.
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
        """A part of a body."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there; the next head may take as long as the connection may be idle."""
        if self._in_head:
            return  # it asks for an upgrade and is told again
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
        """Answered: the rest of this request is given ``linger_s``, no more."""
        super().on_response_complete()
        if self.pipeline:  # uvicorn would read on, a segment of requests for each one that is answered
            self.flow.pause_reading()
        if self.held_bytes:
            self._weigh()
        if not self.cycle.response_complete:
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
        if self._is_over or (self._in_head and self._between and not self._head_bytes):  # or connected and said nothing
            self.transport.close()
            return
        self.counts.security.labels(TIMEOUT.slug).inc()
        if self._in_head:
            self._refuse(TIMEOUT, f"the head was not complete after {self.limits.header_timeout_s:g} s")
        else:
            self.transport.close()

    def _refuse(self, kind: Kind, detail: str) -> None:
        """Answer by hand what comes behind everything that is answered, and close.

        A request whose body is under way answers itself: that its body is incomplete.
        """
        self._is_over = True
        if not self._in_head:
            if self._is_answered():
                self.transport.close()
            else:
                self.cycle.break_off()
            return
        body = json.dumps(kind.body(detail)).encode()
        headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
        if kind in (BUSY, TOO_MANY):
            headers |= RETRY
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._refusal = b"%b%b\r\n%b" % (STATUS_LINE[kind.status], lines.encode(), body)
        if self._is_answered():
            self.transport.write(self._refusal)
            self.transport.close()
        else:
            self._arm(self.limits.body_timeout_s + _GRACE_S)
