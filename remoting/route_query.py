# SPDX-License-Identifier: Apache-2.0
"""GET_ROUTEINFO_BY_TOPIC (105), the request that everything else waits for: recognised without parsing. No I/O.

A client asks for the same topic again and again, and its header differs only in the opaque. So a header is cut at its
opaque, and the two halves are looked up::

    {"code":105,"extFields":{"topic":"orders"},"flag":0,"language":"JAVA","opaque": 43 ,"serialize…","version":513}
    `------------------------------ before --------------------------------------'      `---------- after --------'

The first header of its kind is decoded in full. It is remembered only if it decodes to the same with other digits in
that place and they come out as its opaque; so what a lookup finds is what decoding would have found. (Counter-example:
``"extFields":{"opaque":1}``.) The opaque is never turned into a number: a JSON reply carries the same digits.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader, ClientRequestProcessor,
org.apache.rocketmq.namesrv.route.ZoneRouteRPCHook.
"""

from __future__ import annotations

from typing import Final

import msgspec

from remoting.frame import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand, decode_header
from schemas.codes import V4_9_4, RequestCode, SerializeType

OPAQUE_KEY: Final = b'"opaque":'
MAX_DIGITS: Final = 9
"""Nine digits always fit into an int32; a longer opaque takes the long way."""

MAX_REMEMBERED_BYTES: Final = 512
"""Longer headers are not remembered."""

ZONE_NAME: Final = "__ZONE_NAME"
ZONE_MODE: Final = "__ZONE_MODE"

_QUERY_BYTES: Final = 750
_FRAME_BYTES: Final = 360
"""What an entry takes beside its header, measured with tracemalloc."""

# To try a header with: neither occurs in the other, and no client starts here.
_PROBES: Final = (b"908172635", b"716253849")


class RouteQuery(msgspec.Struct, frozen=True, eq=False):
    """One kind of route request: everything but the opaque. The same kind is the same object, so it can be a key.

    ``numeric_keys`` is the JSON dialect of the answer; ``zone_name`` is set only where the zone filter applies.
    """

    topic: str | None
    numeric_keys: bool
    zone_name: str | None
    serialize_type: SerializeType
    example: RemotingCommand
    is_kept: bool = False
    """Whether the same kind will be this object again."""

    @property
    def version(self) -> int:
        """Ordinal of the peer's release."""
        return self.example.version

    def command(self, digits: bytes) -> RemotingCommand:
        """The request in full.

        Args:
            digits: Its opaque.
        """
        return msgspec.structs.replace(self.example, opaque=int(digits))


RouteRequest = tuple[RouteQuery, bytes]
"""A kind of route request and the digits of its opaque."""


def is_true(text: str | None) -> bool:
    """Boolean.parseBoolean."""
    return text is not None and text.lower() == "true"


def route_query(command: RemotingCommand, *, is_kept: bool = False) -> RouteQuery:
    """What a route request asks for (ClientRequestProcessor.getRouteInfoByTopic, ZoneRouteRPCHook.doAfterResponse).

    A zone-filtered answer is decoded and encoded again by the hook, in fastjson's default dialect.
    """
    zone_name = command.ext(ZONE_NAME)
    if not is_true(command.ext(ZONE_MODE)) or zone_name is None or not zone_name.strip():
        zone_name = None
    standard = command.version >= V4_9_4 or is_true(command.ext("acceptStandardJsonOnly"))
    return RouteQuery(
        command.ext("topic"),
        zone_name is not None or not standard,
        zone_name,
        command.serialize_type,
        command,
        is_kept,
    )


class RouteQueryCache:
    """Headers of route requests seen so far. Shared by the connections of a process.

    `json` is before -> after -> query, `binary` the same for ROCKETMQ headers, whose opaque is bytes 5 to 9.
    `frames` is the same for whole frames with a JSON header: before, from the first byte on -> after -> (query, size).
    Of each header in `json` it holds no more than one frame for each number of digits.

    There are two generations of each. When the young one is full it becomes the old one, and the old one is forgotten;
    what is asked for again comes over from the old one with its next decoding. So finding costs what a dict costs, and
    who invents any number of headers drives out no other's that is in use.
    """

    def __init__(self, max_bytes: int = 32 * 1024 * 1024, max_header_bytes: int = MAX_REMEMBERED_BYTES) -> None:
        """Start empty.

        Args:
            max_bytes: Of one generation, about.
            max_header_bytes: Longer headers are not remembered.
        """
        self.json: dict[bytes, dict[bytes, RouteQuery]] = {}
        self.binary: dict[bytes, dict[bytes, RouteQuery]] = {}
        self.frames: dict[bytes, dict[bytes, tuple[RouteQuery, int]]] = {}
        self._old_json: dict[bytes, dict[bytes, RouteQuery]] = {}
        self._old_binary: dict[bytes, dict[bytes, RouteQuery]] = {}
        self._max_bytes = max_bytes
        self._max_header_bytes = max_header_bytes
        self._bytes = 0

    def __len__(self) -> int:
        """How many are remembered, in both generations."""
        tables = (self.json, self.binary, self._old_json, self._old_binary)
        return sum(len(kinds) for table in tables for kinds in table.values())

    def find_binary(self, header: bytes) -> RouteRequest | None:
        """A route request with a ROCKETMQ header, if one of its kind is remembered."""
        query = self.binary.get(header[:5], _NOTHING).get(header[9:])
        return None if query is None else (query, b"%d" % int.from_bytes(header[5:9], signed=True))

    def learn(self, header: bytes, command: RemotingCommand) -> RouteQuery | None:
        """Remember the kind of a request that was just decoded from this header.

        Returns:
            The query, or None when the request is no route request to be answered.
        """
        if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC or command.flag & (FLAG_RESPONSE | FLAG_ONEWAY):
            return None
        if len(header) > self._max_header_bytes or command.body:
            return route_query(command)
        if command.serialize_type == SerializeType.ROCKETMQ:
            before, after = header[:5], header[9:]
            query = self._old_binary.get(before, _NOTHING).get(after) or route_query(command, is_kept=True)
            self._make_room(_QUERY_BYTES + 2 * len(header))
            self.binary.setdefault(before, {})[after] = query
            return query
        before, _, rest = header.partition(OPAQUE_KEY)
        digits, comma, after = rest.partition(b",")
        if not comma or not digits.removeprefix(b"-").isdigit():
            return route_query(command)
        known = self.json.get(before, _NOTHING).get(after)
        if known is not None:
            return known
        known = self._old_json.get(before, _NOTHING).get(after)
        if known is None:
            if not all(_decodes_to(before + OPAQUE_KEY + probe + comma + after, command, probe) for probe in _PROBES):
                return route_query(command)
            known = route_query(command, is_kept=True)
        self._make_room(_QUERY_BYTES + 2 * len(header))
        self.json.setdefault(before, {})[after] = known
        return known

    def learn_frame(self, frame: bytes, query: RouteQuery) -> None:
        """Remember a whole frame whose header is remembered already."""
        before, _, rest = frame.partition(OPAQUE_KEY)
        after = rest.partition(b",")[2]
        if after not in self.frames.get(before, ()):
            self._make_room(_FRAME_BYTES + len(frame))
        self.frames.setdefault(before, {})[after] = query, len(frame)

    def _make_room(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bytes > self._max_bytes:
            self._old_json, self._old_binary = self.json, self.binary
            self.json, self.binary, self.frames = {}, {}, {}
            self._bytes = size_bytes


_NOTHING: Final[dict[bytes, RouteQuery]] = {}


def _decodes_to(header: bytes, command: RemotingCommand, opaque: bytes) -> bool:
    """Whether a header is that command with this opaque."""
    found = decode_header(SerializeType.JSON, header, b"")
    return found == msgspec.structs.replace(command, opaque=int(opaque))
