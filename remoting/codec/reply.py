# SPDX-License-Identifier: Apache-2.0
"""Replies: the opaque they echo, and answers that are encoded once and sent many times.

A reply has a JSON header, whichever its request has, as those of a stock 5.x server.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingAbstract.writeResponse, RemotingCommand.
"""

from __future__ import annotations

from remoting.codec.frame import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RemotingCommand,
    encode_header,
    frame_start,
    json_header_around_opaque,
)
from schemas.codes import ResponseCode, SerializeType


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


def encode_reply(request: RemotingCommand, reply: RemotingCommand) -> tuple[bytes, bytes]:
    """The reply's frame with the request's opaque; nothing when the request was oneway.

    Returns:
        Everything before the body, and the reply's own body: a large one need not be copied.

    Raises:
        ProtocolError: It does not fit into a frame.
    """
    if request.flag & FLAG_ONEWAY:
        return b"", b""
    reply.opaque = request.opaque
    reply.flag |= FLAG_RESPONSE
    return encode_header(reply, SerializeType.JSON), reply.body


class EncodedReply:
    """A reply encoded once, but for the opaque: for answers that are sent again and again.

    It is four pieces: a start, the opaque's digits, the tail of the header and the body, which is not copied. Only the
    start depends on how many digits there are, through the length fields.

    Attributes:
        command: What it was made of. It must not change.
        code: Its response code.
        body: What follows the header.
        size: About how many bytes a reply has.
    """

    __slots__ = ("_head", "_header_length", "_starts", "_tail", "body", "code", "command", "size")

    def __init__(self, command: RemotingCommand) -> None:
        """Encode.

        Args:
            command: A response; its opaque does not matter.
        """
        self.command = command
        self.code = int(command.code)
        self.body = command.body
        self._head, self._tail = json_header_around_opaque(command)
        self._header_length = len(self._head) + len(self._tail)
        self.size = 16 + self._header_length + len(self.body)
        self._starts: dict[int, bytes] = {}

    def pieces(self, digits: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        """The reply to a request with this opaque."""
        start = self._starts.get(len(digits))
        if start is None:
            header_length = self._header_length + len(digits)
            start = frame_start(SerializeType.JSON, header_length, len(self.body)) + self._head
            self._starts[len(digits)] = start
        return start, digits, self._tail, self.body

    def encode(self, digits: bytes) -> bytes:
        """`pieces` in one."""
        return b"".join(self.pieces(digits))
