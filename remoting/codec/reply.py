# SPDX-License-Identifier: Apache-2.0
"""Replies that repeat the opaque, replies that are encoded once and sent many times, and their common bodies. No I/O.

Like the replies of a stock 5.x server, a reply has a JSON header for every encoding of the request. The bodies of
routes, clusters and member groups have dialects and are in `schemas.rocketmq_json`.

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
"""Approximate size of a reply without header and body, in bytes: the start of the frame and the opaque."""

_PLACE: Final = "(908172635)"
"""Placeholder for the text in a template. No remark contains it."""


def is_plain(text: bytes) -> bool:
    """Return True if a text has only the characters of topic names (TopicValidator). JSON escapes none of them."""
    return not text.strip(_PLAIN)  # every other character stops `strip`; twice as fast as `translate`


class Reply(Protocol):
    """A reply that is complete except for the opaque.

    Attributes:
        code: Response code.
        size: Approximate size, in bytes.
    """

    @property
    def code(self) -> int: ...  # noqa: D102
    @property
    def size(self) -> int: ...  # noqa: D102

    @property
    def command(self) -> RemotingCommand:
        """The reply before it was encoded."""

    def pieces(self, digits: bytes) -> tuple[bytes, ...]:
        """Return the encoded reply to a request with this opaque, in pieces."""


def response(
    code: int = ResponseCode.SUCCESS,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """Create an answer. `encode_reply` sets the opaque of its request.

    Args:
        code: ResponseCode of the answer.
        remark: Text for a person.
        ext_fields: {} if the answer type has a header class without fields. None: it has no header class.
        body: Body, or empty for no body.
    """
    return RemotingCommand(code, ext_fields, body, remark, FLAG_RESPONSE)


def encode_reply(request: RemotingCommand, reply: RemotingCommand | Reply) -> tuple[bytes, bytes]:
    """Encode the frame of a reply, with the request's opaque. A oneway request gets no bytes.

    Args:
        request: The request.
        reply: The reply, encoded or not.

    Returns:
        All bytes before the last piece, and the last piece. The last piece is the reply's own body object, so that a
        large body need not be copied.

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
    """A reply that is encoded once, except for the opaque, and sent many times.

    The reply has four pieces: a start, the opaque's digits, the rest of the header, and the body, which is not copied.
    Only the start depends on the number of digits, because of the length fields.

    Attributes:
        command: Command that was encoded. It must not change.
        code: Response code.
        body: Body after the header.
        size: Approximate size of a reply, in bytes.
    """

    __slots__ = ("_head", "_header_length", "_starts", "_tail", "body", "code", "command", "size")

    def __init__(self, command: RemotingCommand) -> None:
        """Encode a reply.

        Args:
            command: The response. Its opaque is ignored.
        """
        self.command = command
        self.code = int(command.code)
        self.body = command.body
        self._head, self._tail = json_header_around_opaque(command)
        self._header_length = len(self._head) + len(self._tail)
        self.size = _AROUND_BYTES + self._header_length + len(self.body)
        self._starts: dict[int, bytes] = {}

    def pieces(self, digits: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the reply to a request with this opaque, in four pieces."""
        start = self._starts.get(len(digits))
        if start is None:
            header_length = self._header_length + len(digits)
            start = frame_start(SerializeType.JSON, header_length, len(self.body)) + self._head
            self._starts[len(digits)] = start
        return start, digits, self._tail, self.body

    def encode(self, digits: bytes) -> bytes:
        """Return the joined `pieces`."""
        return b"".join(self.pieces(digits))


class RemarkTemplate:
    """A reply that is encoded once, except for the opaque and a text in its remark. Refusals that name a topic use it.

    Attributes:
        code: Response code.
        length: Length of the header without text and opaque, in bytes.
        before: Header between opaque and text.
        after: Header after the text.
        starts: All bytes before the opaque, by the length of the header.
    """

    def __init__(self, make: Callable[[str], RemotingCommand]) -> None:
        """Encode a template.

        Args:
            make: Factory of the reply for a text. The text must be in the remark once, and nowhere else. The reply must
                have no body.
        """
        command = make(_PLACE)
        self.make = make
        self.code = int(command.code)
        self._head, tail = json_header_around_opaque(command)
        self.before, self.after = tail.split(_PLACE.encode())
        self.length = len(self._head) + len(tail) - len(_PLACE)
        self.starts: dict[int, bytes] = {}

    def fill(self, text: str, plain: bytes | None = None) -> Reply:
        """Return the reply for a text.

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
        """Create the entry of `starts` for a header of this length, and return it."""
        found = self.starts[length] = frame_start(SerializeType.JSON, length, 0) + self._head
        return found


class _FilledReply(msgspec.Struct, eq=False, gc=False):
    """A template with a plain text (`is_plain`). Each request creates one, so it does as little as possible."""

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
    """TopicList.encode. Only GET_SYSTEM_TOPIC_LIST_FROM_NS has an address."""
    body: dict[str, object] = {} if broker_addr is None else {"brokerAddr": broker_addr}
    body["topicList"] = list(topics)
    return _encode(body)


def encode_kv_table(table: Mapping[str, str | None]) -> bytes:
    """KVTable.encode. Keys without value are left out."""
    return _encode({"table": {key: value for key, value in sorted(table.items()) if value is not None}})


def encode_data_version(version: DataVersion) -> bytes:
    """DataVersion.encode."""
    return b'{"counter":%d,"stateVersion":%d,"timestamp":%d}' % (
        version.counter,
        version.state_version,
        version.timestamp,
    )


def not_supported(code: int) -> RemotingCommand:
    """The answer to an unsupported request code."""
    return response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported")


def failure(error: Exception) -> RemotingCommand:
    """The answer to a request after an exception: the error's own code and text, or SYSTEM_ERROR and the text."""
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
