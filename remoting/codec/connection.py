# SPDX-License-Identifier: Apache-2.0
"""One connection's bytes to frames, however they are cut. No I/O, no clock.

A frame is refused as soon as its length field, or its header mark behind it, has arrived: nothing is gathered on the
account of an announced length. What has arrived of an unfinished frame is gathered in one buffer that grows with it, so
that neither a byte at a time nor 64 MiB in small pieces costs more than the bytes themselves. A frame that is larger
than every request but one ever needs is refused as soon as its header says that it is none of these registrations.

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
"""Largest frame of a request that is no REGISTER_BROKER: those have their topics in the body, the others next to
nothing, or one KV value, of which JSON may make six times as much (`schemas.limits.MAX_KV_VALUE_BYTES`)."""
_PLAIN_LENGTH: Final = PLAIN_FRAME_LIMIT_BYTES - LENGTH_BYTES
_unpack_length = struct.Struct(">i").unpack_from
_unpack_start = struct.Struct(">iI").unpack_from


class CachedRequest(Protocol):
    """The common part of all requests that differ in their opaque alone.

    Attributes:
        reply: The reply of the moment, if it is known already.
    """

    @property
    def reply(self) -> Reply | None: ...  # noqa: D102

    def answer(self) -> Reply:
        """The reply of the moment; what this raises becomes one."""


Recognised = tuple[CachedRequest, bytes]
"""A recognised request, and the digits of its opaque."""


class RequestCache(Protocol):
    """Cache of requests that a server gives to its connections. Called on its event loop; waits for nothing."""

    @property
    def code(self) -> int:
        """The one request code that it recognises."""

    def find(self, serialize_type: int, header: bytes) -> Recognised | None:
        """Recognise a header that has no body behind it; None: it has to be decoded."""

    def learn(self, header: bytes, command: RemotingCommand) -> Recognised | None:
        """The same of a request that was decoded from this header; None: it is for `Handler.handle`."""


Received = RemotingCommand | Recognised
"""A request in full, or one that was recognised."""


class RemotingConnection:
    """The receiving side of one connection: the server's, or with `keep_responses` the client's.

    Attributes:
        error: Set once the bytes made no sense; what came before was returned, nothing after it is read.
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
            frame_limit_bytes: Largest whole frame.
            inline: Recognises requests; None: all are decoded.
            keep_responses: Return frames with the response bit, too: this side asks.
        """
        self._inline = inline
        self._keep_responses = keep_responses
        self._frame_limit_bytes = frame_limit_bytes
        self._buffer = bytearray()
        self._needed = 1
        self._announced = 0
        self._head: RemotingCommand | None = None
        """Head, without the body, of a large frame that has begun."""
        self._may_have_preamble = True
        self.error: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes kept of a frame that has begun but not ended."""
        return len(self._buffer)

    @property
    def announced_bytes(self) -> int:
        """The size of the frame that has begun but not ended, as far as it has said it; 0 before."""
        return self._announced if self._buffer else 0

    def drop_unfinished(self) -> None:
        """Let go of a frame that has begun: the connection ends."""
        self._buffer = bytearray()
        self._head = None
        if self.error is not None:  # its traceback has the bytes, and this object, which has it
            self.error = ProtocolError(str(self.error))

    def receive_data(self, data: bytes) -> list[Received]:
        """Take what the peer sent next.

        Returns:
            The requests that it completes. If an error follows them, `error` is set and the next call raises it.

        Raises:
            ProtocolError: The bytes are no frame. The connection must be closed; there is no way back in.
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
        """Return the offset of the first frame; leave `_may_have_preamble` set while the offset is unknown."""
        size = preamble_bytes(data)
        if size is None:
            self._needed = len(data) + 1
            return 0
        self._may_have_preamble = False
        return size

    def _take_frames(self, data: bytes, at: int, received: list[Received]) -> int:
        """Append the whole frames from `at` on; note what is needed for the next one.

        Returns:
            Where the unfinished frame starts.
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
            # A server has not asked: it drops answers, as RocketMQ's does one with an opaque that it does not know.
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
    """Decode the header of a large frame, once, and refuse the frame if it is no registration.

    Args:
        mark: Second word of the frame, as a number: serialization type and header length.
        header: The complete header.
        size: Size of the whole frame, in bytes.

    Raises:
        ProtocolError: The frame is no registration, or has more header fields than are accepted.
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
