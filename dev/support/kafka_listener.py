# SPDX-License-Identifier: Apache-2.0
"""A listener of Kafka, as far as it lets anybody in: versions, SASL PLAIN or OAUTHBEARER, one answer to METADATA.

It hangs up where Kafka 4.3 does: at TLS on a plain port and plain text on a TLS port, and at METADATA before SASL.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from eventlog.kafka.access.wire import (
    API_VERSIONS,
    ILLEGAL_SASL_STATE,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_AUTHENTICATION_FAILED,
    SASL_HANDSHAKE,
    UNSUPPORTED_SASL_MECHANISM,
    sized,
    text,
)


class KafkaListener:
    """On a port of this machine, within `with`.

    Args:
        tls: TLS context of a server; None: plain text.
        takes: First message of an accepted client, by mechanism; empty: no authentication.
        host: Address to listen at.
    """

    def __init__(
        self, tls: ssl.SSLContext | None = None, takes: dict[str, bytes] | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._tls = tls
        self._takes = takes or {}
        self._socket = socket.create_server((host, 0))
        self._threads = [threading.Thread(target=self._serve)]

    @property
    def address(self) -> str:
        """host:port."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept
        self._socket.close()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._receive, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _receive(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with connection, connection.dup() as raw, suppress(OSError):
            try:
                if self._tls is None:
                    self._talk(connection)
                else:
                    with self._tls.wrap_socket(connection, server_side=True) as encrypted:
                        self._talk(encrypted)
            finally:  # as Java does: what was said last arrives, though the peer has said more
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass

    def _talk(self, connection: socket.socket) -> None:
        mechanism, is_in = "", not self._takes
        while head := connection.recv(4):
            (size,) = struct.unpack(">i", head)
            if not 0 < size < 100 * 1024 * 1024:
                return
            request = b""
            while len(request) < size:
                if not (more := connection.recv(size - len(request))):
                    return
                request += more
            api, _, correlation, length = struct.unpack_from(">hhih", request)
            body = request[10 + length :]
            if api == API_VERSIONS:
                answer = struct.pack(">hi", 0, 0)
            elif api == SASL_HANDSHAKE:
                mechanism = body[2:].decode()
                known = mechanism in self._takes
                error = 0 if known else UNSUPPORTED_SASL_MECHANISM if self._takes else ILLEGAL_SASL_STATE
                answer = struct.pack(">hi", error, len(self._takes)) + b"".join(map(text, self._takes))
            elif api == SASL_AUTHENTICATE:
                is_in = body[4:] == self._takes[mechanism]
                error, why = (0, "") if is_in else (SASL_AUTHENTICATION_FAILED, "Authentication failed")
                answer = struct.pack(">h", error) + text(why) + sized(b"")
            elif api == METADATA and is_in:
                answer = struct.pack(">iii", 0, 1, 0)
            else:
                return
            connection.sendall(struct.pack(">ii", 4 + len(answer), correlation) + answer)
