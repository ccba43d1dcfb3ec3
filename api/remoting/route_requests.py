# SPDX-License-Identifier: Apache-2.0
"""GET_ROUTEINFO_BY_TOPIC (105), the request that everything else waits for: recognised without decoding. No I/O.

A client asks for the same topic again and again, and its header differs only in the opaque. So a header is cut at its
opaque, and the two halves are looked up::

    {"code":105,"extFields":{"topic":"orders"},"flag":0,"language":"JAVA","opaque": 43 ,"serialize…","version":513}
    `------------------------------ before --------------------------------------'      `---------- after --------'

The first header of its kind is decoded in full. It is remembered only if it decodes to the same with other digits in
that place and they come out as its opaque; so what is found is what decoding would have found. (Counter-example:
``"extFields":{"opaque":1}``.) The opaque is never turned into a number: the reply carries the same digits. Of a
ROCKETMQ header the opaque is bytes 5 to 9.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import WeakSet

import msgspec

from remoting.codec.commands import read_route_query
from remoting.codec.frame import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, decode_header
from remoting.codec.reply import EncodedReply
from runtime.bounded import BoundedCache
from schemas.codes import RequestCode, SerializeType
from security.signature import ACCESS_KEY

MAX_DIGITS: Final = 9
"""Nine digits always fit into an int32; a longer opaque is decoded each time."""

_MAX_HEADER_BYTES: Final = 512
"""Longer headers are not remembered."""

_MAX_INLINE_BYTES: Final = 4096
"""Longer ones are handled as other requests are, which are counted and bounded."""

_QUERY_BYTES: Final = 250
"""Of a query and its key, beside what they say and the cache's own, measured with tracemalloc."""

_OPAQUE: Final = b'"opaque":'
_ZERO: Final = 48
_JSON: Final = int(SerializeType.JSON)

# To try a header with: neither occurs in the other, and no client starts here.
_PROBES: Final = (b"908172635", b"716253849")


class RouteRequest:
    """What a route request asks for (`remoting.codec.commands.read_route_query`).

    Attributes:
        topic: None where the request names none.
        numeric_keys: The answer has fastjson's dialect.
        zone: Set only where the answer is filtered by it.
        reply: The reply of the moment, if it has been found.
        is_used: Whether it was asked again since somebody last looked for room.
        signed: Its extFields and body, if it names an AccessKey.
        remembered: Where it puts itself when it has a reply; None where it is not remembered itself.
        passed: The generation of accounts that lets it pass, wherever it comes from (`api.remoting.access`).
    """

    __slots__ = (
        *("__weakref__", "_answer", "is_used", "numeric_keys", "passed", "remembered", "reply", "signed", "topic"),
        "zone",
    )

    def __init__(self, command: RemotingCommand, answer: Callable[[RouteRequest], EncodedReply]) -> None:
        """Read a request.

        Args:
            command: It.
            answer: Finds the reply, and sets it where it may be kept until `RouteRequests.forget_replies`.
        """
        self.topic, self.numeric_keys, self.zone = read_route_query(command)
        self.reply: EncodedReply | None = None
        self.is_used = False
        fields = command.ext_fields
        self.signed = (fields, command.body) if fields and ACCESS_KEY in fields else None
        self.passed: object = None
        self.remembered: WeakSet[RouteRequest] | None = None
        self._answer = answer

    def answer(self) -> EncodedReply:
        """See `remoting.codec.request_cache.CachedRequest.answer`."""
        reply = self._answer(self)
        if self.reply is not None and self.remembered is not None:
            self.remembered.add(self)
        return reply


class RouteRequests:
    """The headers of route requests, and what they ask. Shared by the connections of a process.

    Whoever sends any number of headers drives out none that others send meanwhile: only what was not asked since the
    cache last looked at it makes room.

    Attributes:
        code: GET_ROUTEINFO_BY_TOPIC.
    """

    code: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)

    def __init__(
        self,
        answer: Callable[[RouteRequest], EncodedReply],
        max_bytes: int = 32 * 1024 * 1024,
        may_wait: Callable[[RouteRequest], bool] = lambda query: False,
    ) -> None:
        """Remember nothing yet.

        Args:
            answer: Answers a query.
            max_bytes: Of what is remembered.
            may_wait: Whether a query is for `Handler.handle`, as its answer may have to wait for something.
        """
        self._answer = answer
        self._may_wait = may_wait
        self._known: BoundedCache[tuple[bytes, bytes] | bytes, RouteRequest] = BoundedCache(max_bytes)
        self._peek = self._known.peek
        self._with_replies: WeakSet[RouteRequest] = WeakSet()
        """Of those that are known: a view's move costs what was asked since the one before, not what is known."""

    def __len__(self) -> int:
        """How many headers are remembered."""
        return len(self._known)

    def find(self, serialize_type: int, header: bytes) -> tuple[RouteRequest, bytes] | None:
        """See `remoting.codec.request_cache.RequestCache.find`."""
        if serialize_type == _JSON:
            before, _, rest = header.partition(_OPAQUE)
            digits, _, after = rest.partition(b",")
            found = self._peek((before, after))
            if (
                found is None
                or not digits.isdigit()
                or len(digits) > MAX_DIGITS
                or (digits[0] == _ZERO and len(digits) > 1)
            ):
                return None
        else:
            found = self._peek(header[:5] + header[9:])
            if found is None:
                return None
            digits = b"%d" % int.from_bytes(header[5:9], signed=True)
        query = found[0]
        query.is_used = True
        return None if query.reply is None and self._may_wait(query) else (query, digits)

    def learn(self, header: bytes, command: RemotingCommand) -> tuple[RouteRequest, bytes] | None:
        """See `remoting.codec.request_cache.RequestCache.learn`."""
        if command.code != self.code or command.flag & (FLAG_RESPONSE | FLAG_ONEWAY) or len(header) > _MAX_INLINE_BYTES:
            return None
        query = RouteRequest(command, self._answer)
        if len(header) <= _MAX_HEADER_BYTES and not command.body:
            key = _key(header, command)
            if key is not None and self._peek(key) is None:
                copies = 2 if query.signed is None else 4
                if not all(map(str.isascii, (command.ext_fields or {}).values())):
                    copies *= 4  # Python's wide characters
                query.remembered = self._with_replies
                self._with_replies.add(query)
                self._known.put(key, query, _QUERY_BYTES + copies * len(header), _was_not_asked)
        return None if self._may_wait(query) else (query, b"%d" % command.opaque)

    def forget_replies(self) -> None:
        """The view or a setting has changed."""
        for query in self._with_replies:
            query.reply = None
        self._with_replies.clear()


def _was_not_asked(query: RouteRequest) -> bool:
    """Whether nobody asked it since this was last looked at."""
    was_used, query.is_used = query.is_used, False
    return not was_used


def _key(header: bytes, command: RemotingCommand) -> tuple[bytes, bytes] | bytes | None:
    """The header without its opaque; None if that cannot be told apart."""
    if command.serialize_type == SerializeType.ROCKETMQ:
        return header[:5] + header[9:]
    before, _, rest = header.partition(_OPAQUE)
    digits, comma, after = rest.partition(b",")
    if not comma or not digits.removeprefix(b"-").isdigit():
        return None
    for probe in _PROBES:
        found = decode_header(SerializeType.JSON, before + _OPAQUE + probe + comma + after, b"")
        if found != msgspec.structs.replace(command, opaque=int(probe)):
            return None
    return before, after
