# SPDX-License-Identifier: Apache-2.0
"""The server's side of one TLS connection, and the order of handshakes.

`TlsSession` turns bytes of the wire to plain bytes and back, without I/O. The peer's bytes go into one `ssl.MemoryBIO`;
OpenSSL's bytes come out of another. A record is read as soon as it is whole, so that at most one unfinished record is
held.

`Handshakes` is a queue. To sign for a handshake takes the event loop some 0.3 ms (P-256) or 0.5 ms (RSA of 2,048 bits).
The client pays nothing: its first message can be the same each time. So one handshake is begun in each turn of the
loop, address after address: a connected peer waits for at most one handshake, and an address does not wait for the
queue of another.

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
"""The most plain bytes of one record."""


class TlsSession:
    """One connection.

    Attributes:
        is_open: Whether the handshake is done.
        certificate_names: After the handshake, the names in the peer's certificate; empty without a verified one.
        has_ended: Whether the peer has said that it sends nothing more (close_notify).
        error: Reason that nothing more can be read; None while it can.
    """

    __slots__ = ("_incoming", "_object", "_outgoing", "certificate_names", "error", "has_ended", "is_open")

    def __init__(self, context: ssl.SSLContext) -> None:
        """Nothing has come yet."""
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_open = self.has_ended = False
        self.certificate_names: tuple[str, ...] = ()
        self.error: ProtocolError | None = None

    def receive(self, data: bytes) -> bytes:
        """Take what came from the wire.

        Returns:
            The plain bytes that it completes. What is to be answered, be it an alert, is in `to_send` afterwards; if
            the bytes made no sense, `error` is set.
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
                # Now: what comes next may break the session, and then OpenSSL knows of no peer.
                self.certificate_names = certificate_names(self._object.getpeercert(binary_form=True) or b"")
            read = self._object.read
            while True:
                piece = read(RECORD_BYTES)
                if not piece:
                    self.has_ended = True
                    break
                pieces.append(piece)
                if not incoming.pending:  # OpenSSL takes one record at a time: nothing is left of this one
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = ProtocolError(f"TLS: {why_not_tls(error)}")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def to_send(self) -> bytes:
        """Return the bytes that wait to be sent, once."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Records for plain bytes, behind whatever else waits to be sent.

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
        """The last bytes to send: close_notify, and what waited before it."""
        if self.is_open and self.error is None:
            with contextlib.suppress(ssl.SSLError):  # the peer's own close_notify is not waited for
                self._object.unwrap()
        return self._outgoing.read()

    def describe(self) -> str:
        """Version and cipher, for a person."""
        cipher = self._object.cipher()
        return f"{self._object.version()} {cipher[0] if cipher else ''}"


OVER_QUOTA: Final = "quota-tls-handshakes"
"""Reason to close a connection: its address has begun too many handshakes of late."""


class Handshakes:
    """The queue of one gateway, for all its ports. Lives on one event loop."""

    def __init__(self, refusal: Callable[[str], str | None] = lambda _address: None) -> None:
        """Create an empty queue.

        Args:
            refusal: Returns why an address gets no handshake now; None: it gets one.
        """
        self.refusal = refusal
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        """Beginnings of handshakes by address, the next address first."""

    def wait(self, address: str, begin: Callable[[], None]) -> None:
        """Call ``begin`` when it is the turn of its connection, not in this turn of the loop."""
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
