# SPDX-License-Identifier: Apache-2.0
"""A plain blocking client of the remoting protocol, part of the oracle.

A frame is: int32 length of what follows; uint8 header type (0 JSON, 1 ROCKETMQ); uint24 header length; header; body.
All integers are big-endian (NettyEncoder, NettyDecoder, RemotingCommand, RocketMQSerializable).

It is written from the reference alone, so that it can judge the product's codec: nothing is imported from it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from dev.model.wire import Request, Response

JSON_HEADER = 0
BINARY_HEADER = 1

_RESPONSE_FLAG = 1
_ONEWAY_FLAG = 2

_LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)


class ConnectionClosed(Exception):
    """The peer closed the connection before a whole frame had arrived."""


@dataclass(frozen=True)
class Frame:
    """A decoded frame of either direction.

    Attributes:
        header_type: JSON_HEADER or BINARY_HEADER.
        header: code, language, version, opaque, flag, remark, extFields (None when absent).
        body: b"" when there was none.
    """

    header_type: int
    header: dict[str, Any]
    body: bytes

    @property
    def is_response(self) -> bool:
        """Return whether flag bit 0 is set."""
        return bool(self.header.get("flag", 0) & _RESPONSE_FLAG)

    @property
    def opaque(self) -> int:
        """The number that ties an answer to its request."""
        return int(self.header.get("opaque", 0))

    def response(self) -> Response:
        """This frame as an answer."""
        header = self.header
        return Response(header.get("code", 0), header.get("extFields"), self.body, header.get("remark"))

    def request(self) -> Request:
        """This frame as a request, as a peer that is asked would see it."""
        header = self.header
        return Request(
            header.get("code", 0),
            header.get("extFields") or {},
            self.body,
            header.get("version", 0),
            header.get("language") or "OTHER",
            bool(header.get("flag", 0) & _ONEWAY_FLAG),
        )


def encode_frame(
    code: int,
    ext: dict[str, str] | None,
    body: bytes = b"",
    *,
    version: int = 0,
    language: str = "JAVA",
    opaque: int = 0,
    flag: int = 0,
    remark: str | None = None,
    header_type: int = JSON_HEADER,
) -> bytes:
    """The bytes of one frame.

    Args:
        code: Request or response code.
        ext: extFields; None leaves the key out.
        body: May be empty.
        version: Ordinal of the peer's release.
        language: LanguageCode name.
        opaque: Chosen by the asking side, echoed by the other.
        flag: Bit 0 response, bit 1 oneway.
        remark: Free text.
        header_type: JSON_HEADER or BINARY_HEADER.
    """
    if header_type == JSON_HEADER:
        fields: dict[str, Any] = {
            "code": code,
            "flag": flag,
            "language": language,
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": version,
        }
        if ext is not None:
            fields["extFields"] = ext
        if remark is not None:
            fields["remark"] = remark
        header = json.dumps(fields, ensure_ascii=False, sort_keys=True).encode()
    else:
        text = (remark or "").encode()
        entries = b"".join(_binary_entry(key, value) for key, value in (ext or {}).items())
        header = (
            struct.pack(">hbhii", code, _LANGUAGES.index(language), version, opaque, flag)
            + struct.pack(">i", len(text))
            + text
            + struct.pack(">i", len(entries))
            + entries
        )
    return struct.pack(">iI", 4 + len(header) + len(body), header_type << 24 | len(header)) + header + body


def _binary_entry(key: str, value: str) -> bytes:
    """RocketMQSerializable.mapSerialize of one entry."""
    raw_key, raw_value = key.encode(), value.encode()
    return struct.pack(">h", len(raw_key)) + raw_key + struct.pack(">i", len(raw_value)) + raw_value


def decode_frame(frame: bytes) -> Frame:
    """Decode what follows the length field.

    Args:
        frame: Exactly `length` bytes.
    """
    (mark,) = struct.unpack_from(">I", frame)
    header_type, header_length = mark >> 24, mark & 0xFFFFFF
    header, body = frame[4 : 4 + header_length], frame[4 + header_length :]
    if header_type == JSON_HEADER:
        return Frame(JSON_HEADER, json.loads(header), body)
    if header_type == BINARY_HEADER:
        return Frame(BINARY_HEADER, _decode_binary_header(header), body)
    raise ValueError(f"header type {header_type}")


def _decode_binary_header(header: bytes) -> dict[str, Any]:
    """RocketMQSerializable.rocketMQProtocolDecode."""
    code, language, version, opaque, flag = struct.unpack_from(">hbhii", header)
    at = 13
    (length,) = struct.unpack_from(">i", header, at)
    remark = header[at + 4 : at + 4 + length].decode() if length else None
    at += 4 + length
    (length,) = struct.unpack_from(">i", header, at)
    at += 4
    end = at + length
    ext: dict[str, str] = {}
    while at < end:
        (size,) = struct.unpack_from(">h", header, at)
        key = header[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (size,) = struct.unpack_from(">i", header, at)
        ext[key] = header[at + 4 : at + 4 + size].decode()
        at += 4 + size
    return {
        "code": code,
        "language": _LANGUAGES[language],
        "version": version,
        "opaque": opaque,
        "flag": flag,
        "remark": remark,
        "extFields": ext or None,
    }


class RemotingClient:
    """One connection. Not thread-safe.

    Frames that answer nothing (requests of the server, such as NOTIFY_MIN_BROKER_ID_CHANGE) collect in `unsolicited`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        binary: bool = False,
        connect_timeout_s: float = 5.0,
        tls: ssl.SSLContext | None = None,
        source: str = "",
    ) -> None:
        """Connect.

        Args:
            host: Host of the server.
            port: Port of the server.
            binary: Whether requests carry the ROCKETMQ header instead of the JSON one.
            connect_timeout_s: Maximum wait for the connection, in seconds.
            tls: Encrypt with this; None: plain.
            source: The address it comes from; empty: the system's choice.
        """
        self._socket = socket.create_connection((host, port), connect_timeout_s, (source, 0) if source else None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._header_type = BINARY_HEADER if binary else JSON_HEADER
        self._opaques = itertools.count(1)
        self._buffer = bytearray()
        self.unsolicited: list[Frame] = []

    def __enter__(self) -> RemotingClient:
        """Return this client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, request: Request, *, binary: bool | None = None) -> int:
        """Send one request without waiting.

        Args:
            request: Request to send.
            binary: Header type of this request; None is the client's own.

        Returns:
            Its opaque number.
        """
        opaque = next(self._opaques)
        header_type = self._header_type if binary is None else BINARY_HEADER if binary else JSON_HEADER
        self.send_raw(
            encode_frame(
                request.code,
                request.ext,
                request.body,
                version=request.version,
                language=request.language,
                opaque=opaque,
                flag=_ONEWAY_FLAG if request.oneway else 0,
                header_type=header_type,
            )
        )
        return opaque

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def call(self, request: Request, timeout_s: float = 30.0, *, binary: bool | None = None) -> Response:
        """Send one request and wait for its answer.

        Args:
            request: Must not be oneway.
            timeout_s: Maximum wait, in seconds.
            binary: Header type of this request; None is the client's own.

        Raises:
            TimeoutError: No answer in time.
            ConnectionClosed: The server closed the connection.
        """
        opaque = self.send(request, binary=binary)
        return self.receive(opaque, timeout_s)

    def receive(self, opaque: int, timeout_s: float = 30.0) -> Response:
        """Wait for the answer that carries this opaque number."""
        deadline = time.monotonic() + timeout_s
        while True:
            frame = self.receive_frame(max(0.0, deadline - time.monotonic()))
            if frame.is_response and frame.opaque == opaque:
                return frame.response()
            self.unsolicited.append(frame)

    def receive_frame(self, timeout_s: float = 30.0) -> Frame:
        """Wait for the next frame of any kind."""
        deadline = time.monotonic() + timeout_s
        self._fill(4, deadline)
        (length,) = struct.unpack_from(">i", self._buffer)
        self._fill(4 + length, deadline)
        frame = bytes(self._buffer[4 : 4 + length])
        del self._buffer[: 4 + length]
        return decode_frame(frame)

    def closed_by_peer(self, timeout_s: float = 30.0) -> bool:
        """Return whether the peer closes the connection within this time without sending a whole frame."""
        try:
            self.receive_frame(timeout_s)
        except ConnectionClosed:
            return True
        except TimeoutError:
            return False
        return False

    def _fill(self, size: int, deadline: float) -> None:
        """Read until the buffer holds this many bytes."""
        while len(self._buffer) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(1 << 16)
            except (ConnectionResetError, ssl.SSLError) as error:
                raise ConnectionClosed from error
            if not data:
                raise ConnectionClosed
            self._buffer += data
