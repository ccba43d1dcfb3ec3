# SPDX-License-Identifier: Apache-2.0
"""Replies: the header type they get, the opaque they echo, and answers that are encoded once and sent many times.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingAbstract.writeResponse, RemotingCommand.
"""

from __future__ import annotations

from enum import StrEnum

from remoting.frame import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    INT,
    RemotingCommand,
    binary_header_around_opaque,
    encode_frame_apart,
    frame_start,
    json_header_around_opaque,
)
from schemas.codes import ResponseCode, SerializeType


class ReplyHeader(StrEnum):
    """Which header type replies get. A stock 5.x server uses its own configured type, a 4.x server the request's."""

    JSON = "json"
    ROCKETMQ = "rocketmq"
    ECHO = "echo"


def response(
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """An answer; `encode_reply` gives it its request's opaque.

    Args:
        code: ResponseCode.
        remark: For a person.
        ext_fields: {} where the answer type has a header class with nothing in it; None where it has none.
        body: Empty for none.
    """
    return RemotingCommand(code, ext_fields, body, remark, FLAG_RESPONSE)


def reply_type(request_type: SerializeType, reply_header: ReplyHeader) -> SerializeType:
    """The header type of a reply (RemotingCommand.serializeTypeConfigInThisServer)."""
    if reply_header is ReplyHeader.ECHO:
        return request_type
    return SerializeType.JSON if reply_header is ReplyHeader.JSON else SerializeType.ROCKETMQ


def encode_reply(
    request: RemotingCommand, reply: RemotingCommand, reply_header: ReplyHeader = ReplyHeader.JSON
) -> bytes:
    """The reply's frame with the request's opaque; b"" when the request was oneway.

    Raises:
        ProtocolError: It does not fit into a frame.
    """
    head, body = encode_reply_apart(request, reply, reply_header)
    return head + body


def encode_reply_apart(
    request: RemotingCommand, reply: RemotingCommand, reply_header: ReplyHeader = ReplyHeader.JSON
) -> tuple[bytes, bytes]:
    """`encode_reply` in two pieces, of which the second is the reply's own body: a large one need not be copied.

    Raises:
        ProtocolError: It does not fit into a frame.
    """
    if request.flag & FLAG_ONEWAY:
        return b"", b""
    reply.opaque = request.opaque
    reply.flag |= FLAG_RESPONSE
    return encode_frame_apart(reply, reply_type(request.serialize_type, reply_header)), reply.body


class ReplyTemplate:
    """An answer encoded once, but for the opaque: for route answers, which are sent again and again.

    A JSON reply is four pieces: a start, the opaque's digits, the tail of the header and the body, which is not copied.
    Only the start depends on how many digits there are, through the length fields.

    Attributes:
        command: What it was made of. It must not change.
        code: Its response code.
        starts: Number of digits to the start, for those that were needed so far (`start`).
        tail: What follows the digits.
        body: What follows the header.
        size: About how many bytes a reply has.
    """

    __slots__ = ("_head", "_header_length", "body", "code", "command", "size", "starts", "tail")

    def __init__(self, command: RemotingCommand) -> None:
        """Encode.

        Args:
            command: A response; its opaque does not matter.
        """
        self.command = command
        self.code = int(command.code)
        self.body = command.body
        self._head, self.tail = json_header_around_opaque(command)
        self._header_length = len(self._head) + len(self.tail)
        self.size = 16 + self._header_length + len(self.body)
        self.starts: dict[int, bytes] = {}

    def start(self, digits: int) -> bytes:
        """What precedes an opaque of this many characters, kept for the next time."""
        start = self.starts.get(digits)
        if start is None:
            start = frame_start(SerializeType.JSON, self._header_length + digits, len(self.body)) + self._head
            self.starts[digits] = start
        return start

    def encode(self, digits: bytes, serialize_type: SerializeType = SerializeType.JSON) -> bytes:
        """The whole reply.

        Args:
            digits: The opaque, in decimal.
            serialize_type: Of the header.
        """
        if serialize_type == SerializeType.JSON:
            return b"".join((self.start(len(digits)), digits, self.tail, self.body))
        head, tail = binary_header_around_opaque(self.command)
        start = frame_start(serialize_type, len(head) + INT.size + len(tail), len(self.body))
        return b"".join((start, head, INT.pack(int(digits)), tail, self.body))
