# SPDX-License-Identifier: Apache-2.0
"""Replies: the opaque they echo, answers that are encoded once and sent many times, and their common bodies. No I/O.

A reply has a JSON header, whichever its request has, as those of a stock 5.x server. Route, cluster and member group
bodies, which come in dialects, are in `schemas.rocketmq_json`.

Sources (5.5.0): org.apache.rocketmq.remoting.netty.NettyRemotingAbstract.writeResponse, RemotingCommand, org.apache
.rocketmq.remoting.protocol.body.TopicList, KVTable, org.apache.rocketmq.remoting.protocol.DataVersion,
DefaultRequestProcessor.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from remoting.codec.commands import RefusedError
from remoting.codec.frame import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RemotingCommand,
    encode_header,
    frame_start,
    json_header_around_opaque,
)
from schemas.broker import DataVersion
from schemas.codes import ResponseCode, SerializeType
from schemas.errors import AccessDeniedError, InDoubtError, NotFoundError, RoutelakeError, UnavailableError

_PLAIN: Final = f"{string.ascii_letters}{string.digits}%|_-".encode()

_AROUND_BYTES: Final = 16
"""Size of a reply without header and body: the start of its frame and the opaque, roughly."""

_PLACE: Final = "(908172635)"
"""In a template: where the text goes. No remark has it."""


def is_plain(text: bytes) -> bool:
    """Return True if it has only characters of RocketMQ's topic names (TopicValidator). JSON escapes none of them."""
    return not text.strip(_PLAIN)  # as any other character stops it; twice as fast as `translate`


class Reply(Protocol):
    """A reply that lacks the opaque alone.

    Attributes:
        code: Its response code.
        size: About how many bytes it has.
    """

    @property
    def code(self) -> int: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102

    @property
    def command(self) -> RemotingCommand:
        """The same before it was encoded."""

    def pieces(self, digits: bytes) -> tuple[bytes, ...]:
        """The reply to a request with this opaque."""


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


def encode_reply(request: RemotingCommand, reply: RemotingCommand | Reply) -> tuple[bytes, bytes]:
    """The reply's frame with the request's opaque; nothing when the request was oneway.

    Args:
        request: The request.
        reply: The reply, encoded or not.

    Returns:
        Everything before the last piece, and the last piece, which is the reply's own body: a large one need not be
        copied.

    Raises:
        ProtocolError: The reply does not fit into a frame.
    """
    if request.flag & FLAG_ONEWAY:
        return b"", b""
    if not isinstance(reply, RemotingCommand):
        pieces = reply.pieces(b"%d" % request.opaque)
        return b"".join(pieces[:-1]), pieces[-1]
    reply.opaque = request.opaque
    reply.flag |= FLAG_RESPONSE
    return encode_header(reply, SerializeType.JSON), reply.body


class EncodedReply:
    """A reply encoded once, but for the opaque: for answers that are sent again and again.

    It is four pieces: a start, the opaque's digits, the tail of the header and the body, which is not copied. Only the
    start depends on how many digits there are, through the length fields.

    Attributes:
        command: Command that was encoded. It must not change.
        code: Its response code.
        body: Body that follows the header.
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
        self.size = _AROUND_BYTES + self._header_length + len(self.body)
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


class RemarkTemplate:
    """A reply that is encoded once but for a text in its remark, for refusals that name what was asked for.

    Attributes:
        code: Its response code.
        length: Length of its header, without text and opaque.
        before: Header between opaque and text.
        after: Header after the text.
        starts: Everything before the opaque, by the length of the header.
    """

    def __init__(self, make: Callable[[str], RemotingCommand]) -> None:
        """Encode.

        Args:
            make: Makes the reply for a text, which is once in the remark and nowhere else. There is no body.
        """
        command = make(_PLACE)
        self.make = make
        self.code = int(command.code)
        self._head, tail = json_header_around_opaque(command)
        self.before, self.after = tail.split(_PLACE.encode())
        self.length = len(self._head) + len(tail) - len(_PLACE)
        self.starts: dict[int, bytes] = {}

    def fill(self, text: str, plain: bytes | None = None) -> Reply:
        """The reply for a text.

        Args:
            text: The text.
            plain: The encoded text, if it is known to be plain (`is_plain`).
        """
        if plain is None:
            plain = text.encode()
            if not is_plain(plain):
                return EncodedReply(self.make(text))
        return _FilledReply(self, plain, self.code, _AROUND_BYTES + self.length + len(plain))

    def start(self, length: int) -> bytes:
        """Make the entry of `starts` for a header of this length."""
        found = self.starts[length] = frame_start(SerializeType.JSON, length, 0) + self._head
        return found


class _FilledReply(msgspec.Struct, eq=False, gc=False):
    """A template with a plain text (`is_plain`). Each request makes a new one, so it does as little as possible."""

    template: RemarkTemplate
    text: bytes
    code: int
    size: int

    @property
    def command(self) -> RemotingCommand:
        return self.template.make(self.text.decode())

    def pieces(self, digits: bytes) -> tuple[bytes, ...]:
        template, length = self.template, self.size - _AROUND_BYTES + len(digits)
        start = template.starts.get(length) or template.start(length)
        return start, digits, template.before, self.text, template.after


_encode = msgspec.json.Encoder().encode


def encode_topic_list(topics: Iterable[str], broker_addr: str | None = None) -> bytes:
    """TopicList.encode; only GET_SYSTEM_TOPIC_LIST_FROM_NS names an address."""
    body: dict[str, object] = {} if broker_addr is None else {"brokerAddr": broker_addr}
    body["topicList"] = list(topics)
    return _encode(body)


def encode_kv_table(table: Mapping[str, str | None]) -> bytes:
    """KVTable.encode; keys without value are left out."""
    return _encode({"table": {key: value for key, value in sorted(table.items()) if value is not None}})


def encode_data_version(version: DataVersion) -> bytes:
    """DataVersion.encode."""
    return b'{"counter":%d,"stateVersion":%d,"timestamp":%d}' % (
        version.counter,
        version.state_version,
        version.timestamp,
    )


def not_supported(code: int) -> RemotingCommand:
    """The answer to a request code that nobody handles."""
    return response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")


def failure(error: Exception) -> RemotingCommand:
    """The answer to a request whose handling raised: SYSTEM_ERROR and the text, unless the error knows better."""
    if isinstance(error, RefusedError):
        return response(error.code, str(error), error.ext_fields)
    if isinstance(error, NotFoundError):
        return response(error.code, str(error))
    if isinstance(error, AccessDeniedError):
        return response(ResponseCode.NO_PERMISSION, str(error))
    if isinstance(error, UnavailableError | InDoubtError):
        return response(ResponseCode.SYSTEM_BUSY, str(error))
    if isinstance(error, RoutelakeError):
        return response(ResponseCode.SYSTEM_ERROR, str(error))
    return response(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
