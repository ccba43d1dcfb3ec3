# SPDX-License-Identifier: Apache-2.0
"""Bytes of one connection to frames, for pieces of any size. No I/O, no clock.

A bad frame is refused as soon as its length field, or the header mark after it, has arrived. No memory is reserved for
an announced length. The bytes of an unfinished frame are kept in one buffer that grows with them. So single bytes and
64 MiB in small pieces cost no more than the bytes themselves. Only a registration needs a large frame. Every other
large frame is refused as soon as its header has arrived.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyDecoder, NettyRemotingServer.HandshakeHandler.
"""

from __future__ import annotations

import struct
from typing import Final, Protocol

from remoting.codec.frame import (
    CHECK_ENCODER,
    DEFAULT_FRAME_LIMIT_BYTES,
    FLAG_RESPONSE,
    HEADER_LIMIT_BYTES,
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    RemotingCommand,
    check_length,
    check_mark,
    decode_header,
    decode_long_header,
    fields_problem,
)
from remoting.codec.proxy_protocol import preamble_bytes
from remoting.codec.reply import Reply
from schemas.codes import RequestCode
from schemas.errors import ProtocolError

PLAIN_FRAME_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""Maximum frame of a request other than REGISTER_BROKER, in bytes. Only a registration has topics in its body. Other
requests are small, or have one KV value, which is up to six times as long in JSON
(`schemas.limits.MAX_KV_VALUE_BYTES`)."""
_PLAIN_LENGTH: Final = PLAIN_FRAME_LIMIT_BYTES - LENGTH_BYTES
_unpack_length = struct.Struct(">i").unpack_from
_unpack_start = struct.Struct(">iI").unpack_from


class CachedRequest(Protocol):
    """The common part of all requests that differ only in their opaque.

    Attributes:
        reply: The current reply, if it is already known.
    """

    @property
    def reply(self) -> Reply | None: ...  # noqa: D102

    def answer(self) -> Reply:
        """Return the current reply. An exception becomes an error reply."""


Recognised = tuple[CachedRequest, bytes]
"""A recognised request, and the digits of its opaque."""


class RequestCache(Protocol):
    """Cache of requests for the connections of a server. It is called on the event loop and never waits."""

    @property
    def code(self) -> int:
        """The only request code that the cache recognises."""

    def find(self, serialize_type: int, header: bytes) -> Recognised | None:
        """Recognise the header of a request without a body. None: the request has to be decoded."""

    def learn(self, header: bytes, command: RemotingCommand) -> Recognised | None:
        """Recognise a request that was decoded from this header. None: the request is for `Handler.handle`."""


Received = RemotingCommand | Recognised
"""A decoded request, or a recognised one."""


class RemotingConnection:
    """The receiving side of one connection, for the server or, with `keep_responses`, for the client.

    Attributes:
        error: Error of the first invalid bytes, or None. Frames before them were returned. Later bytes are not read.
    """

    __slots__ = (
        "_announced",
        "_buffer",
        "_frame_limit_bytes",
        "_head",
        "_inline",
        "_keep_responses",
        "_may_have_preamble",
        "_needed",
        "error",
    )

    def __init__(
        self,
        frame_limit_bytes: int = DEFAULT_FRAME_LIMIT_BYTES,
        inline: RequestCache | None = None,
        *,
        keep_responses: bool = False,
    ) -> None:
        """Start at the first byte.

        Args:
            frame_limit_bytes: Maximum size of a whole frame, in bytes.
            inline: Cache that recognises requests. None: all requests are decoded.
            keep_responses: Whether to return frames with the response bit too, for a client.
        """
        self._inline = inline
        self._keep_responses = keep_responses
        self._frame_limit_bytes = frame_limit_bytes
        self._buffer = bytearray()
        self._needed = 1
        self._announced = 0
        self._head: RemotingCommand | None = None
        """Decoded header of an unfinished large frame, without the body."""
        self._may_have_preamble = True
        self.error: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes that have arrived of an unfinished frame."""
        return len(self._buffer)

    @property
    def announced_bytes(self) -> int:
        """Size of an unfinished frame by its length field, in bytes, or 0 while the size is unknown."""
        return self._announced if self._buffer else 0

    def drop_unfinished(self) -> None:
        """Drop an unfinished frame, because the connection ends."""
        self._buffer = bytearray()
        self._head = None
        if self.error is not None:  # its traceback refers to the bytes and, in a cycle, to this object
            self.error = ProtocolError(str(self.error))

    def receive_data(self, data: bytes) -> list[Received]:
        """Receive the peer's next bytes.

        Returns:
            The requests that the bytes complete. If invalid bytes follow, `error` is set and the next call raises it.

        Raises:
            ProtocolError: The bytes are not a frame. The connection must be closed.
        """
        if self.error is not None:
            raise self.error
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer = bytearray()
            self._announced = 0
        received: list[Received] = []
        try:
            at = self._skip_preamble(data) if self._may_have_preamble and data else 0
            if not self._may_have_preamble:
                at = self._take_frames(data, at, received)
        except ProtocolError as error:
            self.error = error
            if not received:
                raise
            return received
        if at < len(data):
            self._buffer += data[at:] if at else data
        return received

    def _skip_preamble(self, data: bytes) -> int:
        """Return the offset of the first frame. While it is unknown, `_may_have_preamble` stays set."""
        size = preamble_bytes(data)
        if size is None:
            self._needed = len(data) + 1
            return 0
        self._may_have_preamble = False
        return size

    def _take_frames(self, data: bytes, at: int, received: list[Received]) -> int:
        """Append the complete frames from `at` on. Set `_needed` to the number of bytes for the next step.

        Returns:
            The offset at which the unfinished frame starts.
        """
        inline = self._inline
        longest = self._frame_limit_bytes - LENGTH_BYTES
        size = len(data)
        while size - at >= 8:
            length, mark = _unpack_start(data, at)
            end = at + LENGTH_BYTES + length
            if inline is not None and mark & MAX_HEADER_BYTES == length - 4 and 4 < length <= longest and end <= size:
                recognised = inline.find(mark >> 24, data[at + 8 : end])
                if recognised is not None:
                    received.append(recognised)
                    at = end
                    continue
            check_length(length, self._frame_limit_bytes)
            check_mark(mark, length)
            header_length = mark & MAX_HEADER_BYTES
            body_at = at + 8 + header_length
            is_long = header_length > HEADER_LIMIT_BYTES and not self._keep_responses
            if length > _PLAIN_LENGTH and not self._keep_responses:
                if is_long:
                    raise ProtocolError(
                        f"header of {header_length} bytes is over the limit of {HEADER_LIMIT_BYTES}. {CHECK_ENCODER}"
                    )
                if body_at > size:
                    self._announced, self._needed = end - at, body_at - at
                    return at
                if self._head is None:
                    self._head = _decode_head(mark, data[at + 8 : body_at], end - at)
            if end > size:
                self._announced = self._needed = end - at
                return at
            header = data[at + 8 : body_at]
            if self._head is not None:
                command, self._head = self._head, None
                command.body = data[body_at:end]
            else:
                decode = decode_long_header if is_long else decode_header
                command = decode(mark >> 24, header, data[body_at:end])
            at = end
            # A server sends no such requests, so it drops answers, as RocketMQ drops answers with an unknown opaque.
            if self._keep_responses or not command.flag & FLAG_RESPONSE:
                recognised = None if inline is None else inline.learn(header, command)
                received.append(command if recognised is None else recognised)
        self._needed = 8
        if size - at < LENGTH_BYTES:
            self._needed = LENGTH_BYTES
        else:
            check_length(_unpack_length(data, at)[0], self._frame_limit_bytes)
        return at


def _decode_head(mark: int, header: bytes, size: int) -> RemotingCommand:
    """Decode the header of a large frame, once, and refuse the frame if it is not a registration.

    Args:
        mark: Second word of the frame, as a number: serialization type and header length.
        header: The complete header.
        size: Size of the whole frame, in bytes.

    Raises:
        ProtocolError: The frame is not a registration, or has too many header fields.
    """
    command = decode_header(mark >> 24, header, b"")
    if command.code != RequestCode.REGISTER_BROKER:
        raise ProtocolError(
            f"frame of {size} bytes with request code {command.code}: only REGISTER_BROKER may have more than "
            f"{PLAIN_FRAME_LIMIT_BYTES}. {CHECK_ENCODER}"
        )
    problem = fields_problem(command)
    if problem is not None:
        raise ProtocolError(problem)
    return command
