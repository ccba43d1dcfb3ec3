# SPDX-License-Identifier: Apache-2.0
"""GET_ROUTEINFO_BY_TOPIC (105), the most frequent request of clients, recognized without decoding. No I/O.

A client asks for the same topic again and again, and its header differs only in the opaque. So a header is cut at its
opaque, and the two halves are looked up::

    {"code":105,"extFields":{"topic":"orders"},"flag":0,"language":"JAVA","opaque": 43 ,"serialize…","version":513}
    `------------------------------ before --------------------------------------'      `---------- after --------'

The first header of its kind is decoded in full. It is remembered only under one condition: with other digits in place
of the opaque, it decodes to the same request with these digits as opaque. So a look-up finds what decoding would find.
(Counter-example: ``"extFields":{"opaque":1}``.) The opaque is never turned into a number: the reply has the same
digits. In a ROCKETMQ header the opaque is bytes 5 to 9.

A JSON header is also remembered as a form, which has a second gap for the topic. It is remembered only if headers with
other topics in that gap decode to the same request, except for the topic. So a request of a known client needs no
decoding, for any topic. Unknown topics are not remembered, because their number has no limit.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Final, NamedTuple
from weakref import WeakSet

import msgspec

from remoting.codec.commands import read_route_query
from remoting.codec.frame import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, decode_header, fields_problem
from remoting.codec.reply import EncodedReply, Reply, is_plain
from runtime.bounded import BoundedCache
from schemas.codes import RequestCode, SerializeType
from schemas.errors import ProtocolError
from schemas.limits import MAX_NAME_BYTES
from security.signature import ACCESS_KEY

MAX_DIGITS: Final = 9
"""Maximum number of digits. Nine always fit into an int32. A longer opaque is decoded each time."""

_MAX_HEADER_BYTES: Final = 512
"""Maximum size of a header that is remembered, in bytes."""

_MAX_INLINE_BYTES: Final = 4096
"""Maximum size of a header that is answered at once, in bytes. Longer ones are handled as other requests, which are
counted and bounded."""

_QUERY_BYTES: Final = 250
"""Memory of a query and its key without their contents and the cache's own, in bytes, measured with tracemalloc."""

_FORMS_BYTES: Final = 256 * 1024
"""Size for some 300 forms, in bytes. A version of a client has one or two."""

_FORM_BYTES: Final = 200
"""Memory of a form and its key without the key's text, in bytes."""

RECENT_S: Final = 3.0
"""Time that a client has to send a message, in seconds."""

_UNKNOWN_BYTES: Final = 1024 * 1024
"""Size for some 2,000 topics, in bytes."""

_OPAQUE: Final = b'"opaque":'
_TOPIC: Final = b'"topic":"'
_ZERO: Final = 48
_JSON: Final = int(SerializeType.JSON)

# Probes for a header. None occurs in another one, and no client starts with them.
_PROBES: Final = (b"908172635", b"716253849")
_TOPIC_PROBES: Final = ("%RETRY%908172635", "716253849")

Key = tuple[bytes, bytes] | bytes
"""Header without its opaque."""


class Form(NamedTuple):
    """Common part of requests that differ only in topic and opaque (`remoting.codec.commands.read_route_query`).

    Attributes:
        answer: Finds the reply, and keeps it in the request if it may be kept until `RouteRequests.forget_replies`.
        remember: Called with a request that has a reply to keep.
        numeric_keys: Whether the answer has fastjson's dialect.
        zone: Zone, only if the answer is filtered by it.
        signed: extFields and body, if they name an AccessKey.
    """

    answer: Callable[[RouteRequest], Reply]
    remember: Callable[[RouteRequest], None]
    numeric_keys: bool = False
    zone: str | None = None
    signed: tuple[dict[str, str], bytes] | None = None


class RouteRequest(msgspec.Struct, eq=False, weakref=True):
    """A route request.

    Attributes:
        form: Request without the topic.
        topic: Topic. None if the request names none.
        plain: Encoded topic, if its characters are known to be plain (`remoting.codec.reply.is_plain`).
        reply: The current reply, if it has been found.
        is_used: Whether it was repeated since the cache last looked for room.
        key: Key in `RouteRequests`. None if it is not there.
        passed: Generation of accounts that admits it from any address (`api.remoting.access`).
    """

    form: Form
    topic: str | None
    plain: bytes | None = None
    key: Key | None = None
    reply: EncodedReply | None = None
    is_used: bool = False
    passed: object = None

    def answer(self) -> Reply:
        """See `remoting.codec.connection.CachedRequest.answer`."""
        form = self.form
        reply = form.answer(self)
        if self.reply is not None:
            form.remember(self)
        return reply


class RouteRequests:
    """Cache of the headers of route requests, and their queries. Shared by the connections of a process.

    A peer that sends any number of headers cannot evict the headers of others that are in use. Only headers that were
    not repeated since the cache last looked at them are evicted.

    Attributes:
        code: GET_ROUTEINFO_BY_TOPIC.
    """

    code: Final = int(RequestCode.GET_ROUTEINFO_BY_TOPIC)

    def __init__(
        self,
        answer: Callable[[RouteRequest], Reply],
        max_bytes: int = 32 * 1024 * 1024,
        may_wait: Callable[[RouteRequest], bool] = lambda query: False,
    ) -> None:
        """Create an empty cache.

        Args:
            answer: Function that answers a query.
            max_bytes: Maximum size of the cache.
            may_wait: Returns whether a query is for `Handler.handle`, because its answer may have to wait.
        """
        self._answer = answer
        self._may_wait = may_wait
        self._known: BoundedCache[Key, RouteRequest] = BoundedCache(max_bytes)
        self._peek = self._known.peek
        self._forms: BoundedCache[tuple[bytes, bytes, bytes], Form] = BoundedCache(_FORMS_BYTES)
        self._peek_form = self._forms.peek
        self._with_replies: WeakSet[RouteRequest] = WeakSet()
        """Cached requests with replies. So a new view costs the requests since the last view, not all cached ones."""

    def __len__(self) -> int:
        """Return the number of cached headers."""
        return len(self._known)

    def find(self, serialize_type: int, header: bytes) -> tuple[RouteRequest, bytes] | None:
        """See `remoting.codec.connection.RequestCache.find`."""
        if serialize_type == _JSON:
            before, _, rest = header.partition(_OPAQUE)
            digits, _, after = rest.partition(b",")
            if not digits.isdigit() or len(digits) > MAX_DIGITS or (digits[0] == _ZERO and len(digits) > 1):
                return None
            key = before, after
            found = self._peek(key)
            if found is None:
                query = self._of_known_form(key)
                return None if query is None or self._may_wait(query) else (query, digits)
        else:
            found = self._peek(header[:5] + header[9:])
            if found is None:
                return None
            digits = b"%d" % int.from_bytes(header[5:9], signed=True)
        query = found[0]
        if not query.is_used:
            query.is_used = True
        return None if query.reply is None and self._may_wait(query) else (query, digits)

    def learn(self, header: bytes, command: RemotingCommand) -> tuple[RouteRequest, bytes] | None:
        """See `remoting.codec.connection.RequestCache.learn`."""
        if command.code != self.code or command.flag & (FLAG_RESPONSE | FLAG_ONEWAY) or len(header) > _MAX_INLINE_BYTES:
            return None
        if fields_problem(command) is not None:
            return None
        query = self.read(command)
        if len(header) <= _MAX_HEADER_BYTES and not command.body:
            key = query.key = _key(header, command)
            if key is not None and self._peek(key) is None:
                self._remember(query)
                if isinstance(key, tuple) and query.form.signed is None:
                    self._learn_form(key, query.form, command)
        return None if self._may_wait(query) else (query, b"%d" % command.opaque)

    def read(self, command: RemotingCommand) -> RouteRequest:
        """Read a request without remembering it."""
        fields = command.ext_fields
        topic, numeric_keys, zone = read_route_query(command)
        signed = (fields, command.body) if fields and ACCESS_KEY in fields else None
        return RouteRequest(Form(self._answer, self._remember, numeric_keys, zone, signed), topic)

    def _of_known_form(self, key: tuple[bytes, bytes]) -> RouteRequest | None:
        """Return the request of a header with these halves, if it differs from a known header only by its topic."""
        before, after = key
        head, _, rest = before.partition(_TOPIC)
        topic, _, tail = rest.partition(b'"')
        found = self._peek_form((head, tail, after))
        if found is None or not topic or len(topic) > MAX_NAME_BYTES or not is_plain(topic):
            return None
        return RouteRequest(found[0], topic.decode(), topic, key)

    def _learn_form(self, key: tuple[bytes, bytes], form: Form, command: RemotingCommand) -> None:
        """Remember a header's text around its topic, if other topics in that place decode to the same request."""
        before, after = key
        head, found, rest = before.partition(_TOPIC)
        tail = rest.partition(b'"')[2]
        if not found:
            return
        for opaque, topic in zip(_PROBES, _TOPIC_PROBES, strict=True):
            header = b"".join((head, _TOPIC, topic.encode(), b'"', tail, _OPAQUE, opaque, b",", after))
            fields = {**(command.ext_fields or {}), "topic": topic}
            like = msgspec.structs.replace(command, opaque=int(opaque), ext_fields=fields)
            try:
                if decode_header(SerializeType.JSON, header, b"") != like:
                    return
            except ProtocolError:  # the topic ends the text that it is part of
                return
        self._forms.put((head, tail, after), form, _FORM_BYTES + len(head) + len(tail) + len(after))

    def _remember(self, query: RouteRequest) -> None:
        """Find the request by its header from now on, and drop its reply when the view moves."""
        self._with_replies.add(query)
        query.plain = None  # the reply contains it
        key = query.key
        if key is not None and self._peek(key) is None:
            signed = query.form.signed
            copies = 2 if signed is None else 4
            if not (query.topic or "").isascii() or (signed and not all(map(str.isascii, signed[0].values()))):
                copies *= 4  # Python's wide characters
            length = len(key) if isinstance(key, bytes) else len(key[0]) + len(key[1])
            self._known.put(key, query, _QUERY_BYTES + copies * length, _was_not_asked)

    def forget_replies(self) -> None:
        """Drop all replies, because the view or a setting has changed."""
        for query in self._with_replies:
            query.reply = None
        self._with_replies.clear()


def _was_not_asked(query: RouteRequest) -> bool:
    """Return whether a query was not repeated since the last check. Reset its mark."""
    was_used, query.is_used = query.is_used, False
    return not was_used


def _key(header: bytes, command: RemotingCommand) -> Key | None:
    """Return the header without its opaque. None if the opaque cannot be found with certainty."""
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


class UnknownTopics:
    """Unknown topics that clients asked for, with the time, to find topics that may be about to be created.

    A producer asks for a topic before it sends the message that creates the topic. If clients ask for an unknown topic
    twice in a short time, it may be about to appear: the broker has answered the message, and its registration follows.
    The topic with the oldest request is forgotten first. No I/O, no clock.
    """

    def __init__(self) -> None:
        self._asked: BoundedCache[str, float] = BoundedCache(_UNKNOWN_BYTES)

    def was_asked(self, topic: str, now_s: float) -> bool:
        """Return whether clients asked for a topic within the last `RECENT_S`. Remember this request.

        Args:
            topic: Topic that does not exist, but may be created (`remoting.codec.names.may_exist`).
            now_s: Current time of a clock that only goes forward, in seconds.
        """
        before_s = self._asked.get(topic)
        self._asked.put(topic, now_s, getsizeof(topic))
        return before_s is not None and now_s - before_s < RECENT_S
