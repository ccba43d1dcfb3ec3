# SPDX-License-Identifier: Apache-2.0
"""The four Kafka requests of the access probe, in their oldest versions.

A frame is its size (4 bytes) and a header. The header of a request is api key, version, correlation id and client id.
The header of an answer is the correlation id. Source: https://kafka.apache.org/protocol, and kafka.net.connection of
kafka-python.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

_MAX_ANSWER_BYTES: Final = 1024 * 1024
_CLIENT_ID: Final = b"routelake"

METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 3, 17, 18, 36
"""API keys."""

UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 33, 34, 58
"""Error codes."""

NO_TOPICS: Final = struct.pack(">i", 0)
"""Body of a METADATA request, version 1."""


class HungUpError(Exception):
    """Error: the other side closed the connection."""


class NoKafkaError(Exception):
    """Error: the answer is not an answer of Kafka. ``head`` is its beginning."""

    def __init__(self, head: bytes) -> None:
        """See the attribute."""
        self.head = head
        super().__init__(head)


def ask(sock: socket.socket, api: int, version: int, body: bytes = b"") -> bytes:
    """Send a request, and return the body of the answer.

    Raises:
        HungUpError, NoKafkaError: No answer of Kafka came.
        OSError: The connection failed, or timed out.
    """
    head = struct.pack(">hhih", api, version, api, len(_CLIENT_ID)) + _CLIENT_ID
    sock.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    size = _exactly(sock, 4)
    (length,) = struct.unpack(">i", size)
    if not 4 <= length <= _MAX_ANSWER_BYTES:
        raise NoKafkaError(size)
    answer = _exactly(sock, length)
    if answer[:4] != struct.pack(">i", api):
        raise NoKafkaError(size + answer[:4])
    return answer[4:]


def text(value: str) -> bytes:
    """Encode a STRING of the Kafka protocol."""
    return struct.pack(">h", len(value.encode())) + value.encode()


def sized(value: bytes) -> bytes:
    """Encode BYTES of the Kafka protocol."""
    return struct.pack(">i", len(value)) + value


class Handshake(NamedTuple):
    """The answer to SASL_HANDSHAKE, version 1."""

    error: int
    mechanisms: list[str]


def handshake(body: bytes) -> Handshake:
    """Decode the answer to SASL_HANDSHAKE. Raises NoKafkaError."""
    try:
        error, count = struct.unpack_from(">hi", body)
        at, mechanisms = 6, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", body, at)
            mechanisms.append(body[at + 2 : at + 2 + length].decode())
            at += 2 + length
    except (struct.error, UnicodeDecodeError):
        raise NoKafkaError(body[:8]) from None
    return Handshake(error, mechanisms)


class Authenticated(NamedTuple):
    """The answer to SASL_AUTHENTICATE, version 0."""

    error: int
    message: str
    auth_bytes: bytes


def authenticated(body: bytes) -> Authenticated:
    """Decode the answer to SASL_AUTHENTICATE. Raises NoKafkaError."""
    try:
        error, length = struct.unpack_from(">hh", body)
        at = 4 + max(length, 0)
        (size,) = struct.unpack_from(">i", body, at)
    except struct.error:
        raise NoKafkaError(body[:8]) from None
    return Authenticated(error, body[4:at].decode(errors="replace"), body[at + 4 : at + 4 + max(size, 0)])


def _exactly(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            raise HungUpError
        got += more
    return got
