# SPDX-License-Identifier: Apache-2.0
"""The server's side of one TLS connection, and the order of handshakes.

`TlsSession` decrypts and encrypts bytes without I/O. The peer's bytes go into one `ssl.MemoryBIO`, and OpenSSL's bytes
come out of another. A record is read as soon as it is complete, so that at most one unfinished record is held.

`Handshakes` is a queue. The signature for a handshake takes the event loop some 0.3 ms (P-256) or 0.5 ms (RSA of 2,048
bits). A client can cause this work at no cost, because it can send the same first message each time. So each turn of
the loop begins one handshake, and the addresses take turns. A connected peer waits for at most one handshake, and an
address does not wait for the queue of another address.

Source (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingServer.TlsModeHandler; RFC 8446, RFC 5246.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from remoting.errors import why_not_tls
from schemas.errors import ProtocolError
from schemas.tls import certificate_names

HANDSHAKE: Final = 0x16
"""The first byte of a TLS connection. As the first byte of a frame's length it would announce 352 MiB or more."""

RECORD_BYTES: Final = 16 * 1024
"""Maximum number of plain bytes in one record."""


class TlsSession:
    """TLS state of one connection.

    Attributes:
        is_open: Whether the handshake is complete.
        certificate_names: After the handshake, the names in the peer's verified certificate. Empty without one.
        has_ended: Whether the peer has announced the end of its data (close_notify).
        error: Error after which nothing more can be read, or None.
    """

    __slots__ = ("_incoming", "_object", "_outgoing", "certificate_names", "error", "has_ended", "is_open")

    def __init__(self, context: ssl.SSLContext) -> None:
        """Create a session before its first bytes."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_open = self.has_ended = False
        self.certificate_names: tuple[str, ...] = ()
        self.error: ProtocolError | None = None

    def receive(self, data: bytes) -> bytes:
        """Receive encrypted bytes.

        Returns:
            The plain bytes that the encrypted bytes complete. Afterwards `to_send` has the answer, which may be an
            alert. If the bytes are invalid, `error` is set.
        """
        if self.error is not None or self.has_ended:
            return b""
        pieces: list[bytes] = []
        incoming = self._incoming
        try:
            incoming.write(data)
            if not self.is_open:
                self._object.do_handshake()
                self.is_open = True
                # Read now: later bytes may break the session, and then OpenSSL has no peer certificate.
                self.certificate_names = certificate_names(self._object.getpeercert(binary_form=True) or b"")
            read = self._object.read
            while True:
                piece = read(RECORD_BYTES)
                if not piece:
                    self.has_ended = True
                    break
                pieces.append(piece)
                if not incoming.pending:  # OpenSSL reads one record at a time, so nothing is left of this one
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = ProtocolError(f"TLS: {why_not_tls(error)}")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def to_send(self) -> bytes:
        """Return the bytes that wait to be sent, and drop them here."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Encrypt plain bytes. The result begins with all bytes that already wait to be sent.

        Raises:
            ProtocolError: The session has failed.
        """
        write = self._object.write
        try:
            written = write(data)
            if written < len(data):
                rest = memoryview(data)
                while written < len(data):
                    written += write(rest[written:])
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS: {why_not_tls(error)}") from None
        return self._outgoing.read()

    def close(self) -> bytes:
        """The last bytes to send: the waiting bytes, then close_notify."""
        if self.is_open and self.error is None:
            with contextlib.suppress(ssl.SSLError):  # the peer's own close_notify is not waited for
                self._object.unwrap()
        return self._outgoing.read()


OVER_QUOTA: Final = "quota-tls-handshakes"
"""Reason to close a connection: its address has begun too many handshakes recently."""


class Handshakes:
    """Queue of TLS handshakes of one gateway, for all its ports. Belongs to one event loop."""

    def __init__(self, refusal: Callable[[str], str | None] = lambda _address: None) -> None:
        """Create an empty queue.

        Args:
            refusal: Function that returns the reason why an address gets no handshake now, or None.
        """
        self.refusal = refusal
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        """Callbacks that begin handshakes, by address. The next address is first."""

    def wait(self, address: str, begin: Callable[[], None]) -> None:
        """Queue a handshake. ``begin`` is called at its turn, never in this turn of the loop."""
        if not self._waiting:
            self._go_on()
        self._waiting.setdefault(address, deque()).append(begin)

    def _next(self) -> None:
        address, beginnings = self._waiting.popitem(last=False)
        begin = beginnings.popleft()
        if beginnings:
            self._waiting[address] = beginnings
        if self._waiting:
            self._go_on()
        begin()

    def _go_on(self) -> None:
        asyncio.get_running_loop().call_soon(self._next)
