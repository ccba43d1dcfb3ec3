# SPDX-License-Identifier: Apache-2.0
"""TLS and plain connections on one port, told apart by the first byte. The protocol behind gets plain bytes.

Steps of a connection::

    connection_made -> the protocol behind admits it, over the plain transport
    first bytes     -> after an optional PROXY preamble: 0x16 is TLS, anything else is plain
    plain           -> handed to the protocol behind for good (`set_protocol`), or refused (enforcing)
    TLS             -> waits for its turn (`Handshakes`), handshake within `handshake_s`, then `Secured.secure`: from
                       then on the protocol behind reads and writes through a `TlsTransport`

If a peer does not read, at most one encrypted piece beyond the transport's high-water mark is held for it. The rest
stays plain, as the same objects that were written. So connections that wait for the same body share its memory.

Source (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingServer.HandshakeHandler, TlsModeHandler.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from remoting.codec.bounds import address_of
from remoting.codec.frame import GRPC_IS_ELSEWHERE, offers_h2
from remoting.codec.proxy_protocol import preamble_bytes
from remoting.server.tls import HANDSHAKE, OVER_QUOTA, Handshakes, TlsSession
from schemas.errors import ProtocolError
from schemas.tls import TlsMode

PIECE_BYTES: Final = 64 * 1024
"""Maximum number of plain bytes that are encrypted at a time."""

FIRST_BYTES: Final = 20 * 1024
"""Maximum size of a client's first message with a preamble, in bytes. The message is kept until the handshake begins.
A client sends more only after an answer."""

HANDSHAKE_S: Final = 10.0
"""Time that a client may take from its first byte to the end of the handshake, in seconds."""


NO_APPLICATION_PROTOCOL: Final = bytes((21, 3, 1, 0, 2, 2, 120))
"""A TLS alert (RFC 7301, 3.2)."""


@dataclass(slots=True)
class ListenerTls:
    """TLS of one port.

    Attributes:
        context: Context of the next connection. It may be replaced while the server listens.
        mode: PERMISSIVE or ENFORCING.
        needs_certificate: Whether a client without a certificate can reach only health and readiness (HTTP).
    """

    context: ssl.SSLContext
    mode: TlsMode = TlsMode.PERMISSIVE
    needs_certificate: bool = False


class Secured(asyncio.Protocol):
    """A protocol that may be behind a `TlsSniffer`."""

    def secure(self, transport: TlsTransport, names: tuple[str, ...]) -> None:
        """Continue after the handshake.

        Args:
            transport: Transport to use from now on.
            names: Names in the client's verified certificate. Empty without one.
        """
        raise NotImplementedError

    def refuse_tls(self, reason: str, detail: str) -> None:
        """Count a refusal and close.

        Args:
            reason: Label for a metric: ``not-encrypted``, ``tls-handshake``, ``tls-record``, ``tls-deadline``,
                ``quota-tls-handshakes``.
            detail: Detail for a person.
        """
        raise NotImplementedError


class TlsTransport(asyncio.Transport):
    """A transport that encrypts its bytes. `TlsSniffer` creates it."""

    def __init__(self, raw: asyncio.Transport, session: TlsSession, *, is_held: bool = False) -> None:
        super().__init__()
        self.waiting_bytes = 0
        """Plain bytes that wait for the peer to read."""
        self._raw = raw
        self._session = session
        self._waiting: deque[bytes | memoryview] = deque()
        self._is_closing = False
        self._is_held = is_held

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send data, or keep it while the peer does not read."""
        if self._is_closing or not data:
            return
        if self._is_held or len(data) > PIECE_BYTES:
            self._waiting.append(bytes(data))
            self.waiting_bytes += len(data)
            self._send_waiting()
        else:
            self._send(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write small pieces together, and large pieces without a copy."""
        small: list[bytes | bytearray | memoryview] = []
        for data in list_of_data:
            if len(data) > PIECE_BYTES:
                self.write(b"".join(small))
                small = []
                self.write(data)
            else:
                small.append(data)
        self.write(b"".join(small))

    def hold(self) -> None:
        """Keep data from now on, because the peer does not read."""
        self._is_held = True

    def go_on(self) -> bool:
        """Send the waiting data, because the peer reads again. Returns whether nothing waits any more."""
        self._is_held = False
        self._send_waiting()
        return not self._is_held

    def close(self) -> None:
        """Send the waiting data and close_notify, then close."""
        if not self._is_closing:
            self._is_closing = True
            if not self._waiting:
                self._finish()

    def abort(self) -> None:
        """Close immediately. Waiting data is lost."""
        self._is_closing = True
        self._waiting.clear()
        self.waiting_bytes = 0
        self._raw.abort()

    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self._is_closing or self._raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Number of bytes that were written and not yet sent, encrypted or plain."""
        return self._raw.get_write_buffer_size() + self.waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the plain transport."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 (asyncio's)
        """Return the information of the plain transport."""
        return self._raw.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """Return whether the transport reads from the peer."""
        return self._raw.is_reading()

    def pause_reading(self) -> None:
        """Stop reading from the peer."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read from the peer again."""
        self._raw.resume_reading()

    def _send(self, data: bytes | bytearray | memoryview) -> None:
        try:
            records = self._session.encrypt(cast("bytes", data))
        except ProtocolError:
            self.abort()
        else:
            self._raw.write(records)

    def _send_waiting(self) -> None:
        while self._waiting and not self._is_held:
            data = self._waiting.popleft()
            if len(data) > PIECE_BYTES:
                view = memoryview(data)
                self._waiting.appendleft(view[PIECE_BYTES:])
                data = view[:PIECE_BYTES]
            self.waiting_bytes -= len(data)
            self._send(data)
        if self._is_closing and not self._waiting:
            self._finish()

    def _finish(self) -> None:
        if not self._raw.is_closing():
            self._raw.write(self._session.close())
            self._raw.close()


class TlsSniffer(asyncio.Protocol):
    """Detects TLS on a socket, and decrypts for a protocol that handles plain bytes only."""

    def __init__(
        self,
        behind: Secured,
        source: ListenerTls,
        handshakes: Handshakes,
        *,
        takes_preamble: bool,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """Wait for the first bytes of an accepted socket.

        Args:
            behind: Protocol that gets the plain bytes.
            source: TLS context and mode of the port.
            handshakes: Queue that decides when a handshake begins, or refuses it.
            takes_preamble: Whether the port speaks remoting. Then a PROXY preamble may come first, and a client that
                offers HTTP/2 is refused. Plain bytes are passed on with the preamble.
            handshake_s: See `HANDSHAKE_S`.
        """
        self._behind = behind
        self._source = source
        self._handshakes = handshakes
        self._takes_preamble = takes_preamble
        self._handshake_s = handshake_s
        self._first = b""
        self._session: TlsSession | None = None
        self._transport: TlsTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_paused = self._is_waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the connection on to the protocol behind."""
        self._raw = cast("asyncio.Transport", transport)
        self._behind.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass the end of the connection on to the protocol behind."""
        self._disarm()
        self._behind.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Pass the end of the peer's data on to the protocol behind."""
        return self._behind.eof_received()

    def pause_writing(self) -> None:
        """Keep data and pause the protocol behind, because the peer does not read."""
        if self._transport is not None:
            self._transport.hold()
        if not self._is_paused:
            self._is_paused = True
            self._behind.pause_writing()

    def resume_writing(self) -> None:
        """Send the waiting data, then resume the protocol behind, because the peer reads again."""
        if self._transport is None or self._transport.go_on():
            self._is_paused = False
            self._behind.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Detect TLS in the first bytes, or decrypt later bytes."""
        if self._session is not None:
            self._decrypt(self._session, data)
        elif self._is_waiting:
            self._first += data
        elif not self._raw.is_closing():
            self._decide(self._first + data)

    def _decide(self, data: bytes) -> None:
        try:
            at = preamble_bytes(data) if self._takes_preamble else 0
        except ProtocolError:
            at = 0  # the protocol behind reports the error
        if at is None or at >= len(data):
            self._first = data
            self._arm()
            return
        if data[at] == HANDSHAKE:
            self._first = data[at:] if at else data
            self._arm()
            self._ask_for_turn()
            return
        self._first = b""
        self._disarm()
        if self._source.mode is TlsMode.ENFORCING:
            text = "this port requires TLS (--tls-mode enforcing). Turn TLS on in the client."
            self._behind.refuse_tls("not-encrypted", text)
            return
        self._raw.set_protocol(self._behind)
        self._behind.data_received(data)

    def _ask_for_turn(self) -> None:
        peer = self._raw.get_extra_info("peername")
        address = address_of(peer[0]) if isinstance(peer, tuple) else ""
        if self._takes_preamble and offers_h2(self._first):
            self._disarm()
            self._first = b""
            self._raw.write(NO_APPLICATION_PROTOCOL)
            self._behind.refuse_tls("protocol-error", f"a TLS ClientHello for HTTP/2: {GRPC_IS_ELSEWHERE}")
            return
        refusal = self._handshakes.refusal(address)
        if refusal is not None or len(self._first) > FIRST_BYTES:
            self._disarm()
            self._first = b""
            too_long = f"the first message has more than {FIRST_BYTES} bytes"
            reason, detail = (OVER_QUOTA, refusal) if refusal else ("tls-handshake", too_long)
            self._behind.refuse_tls(reason, detail)
            return
        self._is_waiting = True
        self._raw.pause_reading()
        self._handshakes.wait(address, self._begin)

    def _begin(self) -> None:
        """Begin the handshake at the turn of this connection."""
        self._is_waiting = False
        first, self._first = self._first, b""
        if self._raw.is_closing():
            return
        self._raw.resume_reading()
        self._session = TlsSession(self._source.context)
        self._decrypt(self._session, first)

    def _decrypt(self, session: TlsSession, data: bytes) -> None:
        transport = self._transport
        if self._raw.is_closing() or (transport is not None and transport.is_closing()):
            return
        plain = session.receive(data)
        answer = session.to_send()
        if answer:
            self._raw.write(answer)
        if transport is None and session.is_open:
            self._disarm()
            transport = self._transport = TlsTransport(self._raw, session, is_held=self._is_paused)
            self._behind.secure(transport, session.certificate_names)
        if plain:
            self._behind.data_received(plain)
        if session.error is not None:
            self._disarm()
            self._behind.refuse_tls("tls-handshake" if transport is None else "tls-record", str(session.error))
        elif session.has_ended and transport is not None:
            transport.close()

    def _arm(self) -> None:
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._handshake_s, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self._raw.is_closing():
            self._behind.refuse_tls("tls-deadline", f"no handshake within {self._handshake_s:g} s")
