# SPDX-License-Identifier: Apache-2.0
"""The body of REGISTER_BROKER in its four forms. No I/O, no clock.

==================================  ==========================================================================
request                             body
==================================  ==========================================================================
version < 3.0.11                    TopicConfigSerializeWrapper: ``{"dataVersion":…,"topicConfigTable":…}``
plain                               RegisterBrokerBody: ``{"filterServerList":[…],"topicConfigSerializeWrapper":…}``
``compressed=true``                 one zlib stream, see `_decode_compressed`
none                                no topics, DataVersion all zero
==================================  ==========================================================================

A stock broker sends its whole table every 30 s. So the plain form is decoded directly into typed values. Only a body
that does not fit is decoded more tolerantly. Absent fields get Java's defaults (queue numbers 16, perm 6).

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody, TopicConfigSerializeWrapper,
TopicConfigAndMappingSerializeWrapper, org.apache.rocketmq.common.TopicConfig, DefaultRequestProcessor.
"""

from __future__ import annotations

import re
import struct
import zlib
from contextlib import suppress
from typing import Annotated, Final, Generic, TypeVar

import msgspec

from remoting.codec.names import check_key, check_name, check_names
from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo
from schemas.codes import HIGHER_VERSION, MAX_INT, MAX_LONG, MIN_INT, MIN_LONG, V3_0_11, V5_0_0
from schemas.errors import BadRequestError, TooLargeError
from schemas.events import RegisterTopicQueue
from schemas.limits import MAX_FILTER_SERVERS, MAX_MAPPINGS, MAX_TOPIC_QUEUES, MAX_TOPICS
from schemas.rocketmq_json import quote_id_maps

T = TypeVar("T")

MAX_DATA_VERSION_BYTES: Final = 1024
"""Maximum size of a DataVersion in JSON, in bytes. It has three numbers, and stock peers send some 70 bytes."""
_MAPPING_FIELDS: Final = 7
"""Number of fields of a TopicQueueMappingInfo, with its map of queue ids."""
MAX_ROUTE_BYTES: Final = 256 * 1024
"""Maximum size of the body of REGISTER_TOPIC_IN_NAMESRV, in bytes. `MAX_TOPIC_QUEUES` entries have some 100 kB."""

_MOST_FOR_ONE: Final = 1032
"""Maximum number of bytes that zlib can inflate from one byte."""

DEFAULT_INFLATED_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Maximum inflated size, in bytes. 100,000 topics with names of maximum length inflate to about 19 MB."""

_SCOPE_GLOBAL: Final = "__global__"
_FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})
_INTEGER = re.compile(r"[+-]?[0-9]{1,11}", re.ASCII)

_Int = Annotated[int, msgspec.Meta(ge=MIN_INT, le=MAX_INT)]
_Long = Annotated[int, msgspec.Meta(ge=MIN_LONG, le=MAX_LONG)]


class Registration(msgspec.Struct):
    """Decoded body of a registration. Without ``filter_server_list`` (None), the filter servers stay as they are."""

    data_version: DataVersion
    topic_config_table: dict[str, QueueRow]
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo]
    filter_server_list: list[str] | None


class _TopicConfig(msgspec.Struct, rename="camel", gc=False):
    topic_name: str | None = None
    read_queue_nums: _Int = 16
    write_queue_nums: _Int = 16
    perm: _Int = 6
    topic_sys_flag: _Int = 0


class _DataVersion(msgspec.Struct, rename="camel"):
    state_version: _Long = 0
    timestamp: _Long | None = None
    counter: _Long | None = 0


class _Mapping(msgspec.Struct, rename="camel"):
    topic: str | None = None
    scope: str | None = _SCOPE_GLOBAL
    total_queues: _Int = 0
    bname: str | None = None
    epoch: _Long = 0
    dirty: bool = False
    curr_id_map: dict[_Int, _Int] | None = msgspec.field(default_factory=dict)


class _Wrapper(msgspec.Struct, rename="camel"):
    data_version: _DataVersion = msgspec.field(default_factory=_DataVersion)
    topic_config_table: dict[str, _TopicConfig] = msgspec.field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, _Mapping] | None = None


class _Body(msgspec.Struct, rename="camel"):
    topic_config_serialize_wrapper: _Wrapper = msgspec.field(default_factory=_Wrapper)
    filter_server_list: list[str] | None = msgspec.field(default_factory=list)


class _QueueData(msgspec.Struct, rename="camel"):
    broker_name: str | None = None
    perm: _Int = 0
    read_queue_nums: _Int = 0
    topic_sys_flag: _Int = 0
    write_queue_nums: _Int = 0


class _Route(msgspec.Struct, rename="camel"):
    queue_datas: list[_QueueData] | None = None


class _Dialects(Generic[T]):
    """Decoders of one type, from strict to tolerant."""

    def __init__(self, kind: type[T]) -> None:
        self._strict = msgspec.json.Decoder(kind)
        self._lax = msgspec.json.Decoder(kind, strict=False)

    def decode(self, data: bytes, what: str) -> T:
        """Decode standard JSON of the right types. If that fails, try both dialects, with numbers that may be text.

        Raises:
            BadRequestError: No decoder accepts the data.
        """
        try:
            return self._strict.decode(data)
        except (ValueError, RecursionError):
            pass
        try:
            return self._lax.decode(quote_id_maps(data, MAX_MAPPINGS))
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"Failed to decode {what}: {error}", what=what) from error


_body = _Dialects(_Body)
_wrapper = _Dialects(_Wrapper)
_data_version = _Dialects(_DataVersion)
_mapping = _Dialects(_Mapping)
_route = _Dialects(_Route)


def decode_registration(
    body: bytes,
    version: int,
    *,
    compressed: bool = False,
    now_ms: int = 0,
    inflated_limit_bytes: int = DEFAULT_INFLATED_LIMIT_BYTES,
) -> Registration:
    """DefaultRequestProcessor.extractRegisterBrokerBodyFromRequest and extractRegisterTopicConfigFromRequest.

    Args:
        body: The body as sent, empty without a body.
        version: Version of the request. It decides the form of the body.
        compressed: Whether the body is compressed, by the header field of that name.
        now_ms: Time for a DataVersion without timestamp, in milliseconds.
        inflated_limit_bytes: Maximum size of a compressed body after inflation, in bytes.

    Raises:
        BadRequestError: The version is negative, the body cannot be decoded, or a name or number cannot be stored.
    """
    if version < 0:
        raise BadRequestError(f"version {version} is not a release of RocketMQ", version=version)
    version = min(version, HIGHER_VERSION)
    if not body:
        return Registration(DataVersion(), {}, {}, [] if version >= V3_0_11 else None)
    if version < V3_0_11:
        wrapper = _wrapper.decode(body, "TopicConfigSerializeWrapper")
        return Registration(_version(wrapper.data_version, now_ms), _rows(wrapper.topic_config_table), {}, None)
    if compressed:
        return _decode_compressed(_inflate(body, inflated_limit_bytes), version, now_ms)
    envelope = _body.decode(body, "RegisterBrokerBody")
    wrapper = envelope.topic_config_serialize_wrapper
    return Registration(
        _version(wrapper.data_version, now_ms),
        _rows(wrapper.topic_config_table),
        _mappings(wrapper.topic_queue_mapping_info_map or {}),
        _filter_servers(envelope.filter_server_list),
    )


def decode_data_version(body: bytes, now_ms: int = 0) -> DataVersion | None:
    """Decode the body of QUERY_DATA_VERSION. No body becomes None, which equals no version (DataVersion.decode).

    Raises:
        BadRequestError: The body is not a DataVersion.
    """
    return _decode_version(body, now_ms) if body else None


def _decode_version(data: bytes, now_ms: int) -> DataVersion:
    if len(data) > MAX_DATA_VERSION_BYTES:
        raise BadRequestError(f"a DataVersion of {len(data)} bytes: at most {MAX_DATA_VERSION_BYTES} are accepted")
    return _version(_data_version.decode(data, "DataVersion"), now_ms)


def decode_topic_queues(body: bytes) -> list[RegisterTopicQueue]:
    """Decode the queueDatas of REGISTER_TOPIC_IN_NAMESRV. An absent brokerName becomes "", which no broker has.

    Raises:
        BadRequestError: The body is not a TopicRouteData.
    """
    if not body:
        return []
    if len(body) > MAX_ROUTE_BYTES:
        raise BadRequestError(f"a TopicRouteData of {len(body)} bytes: at most {MAX_ROUTE_BYTES} are accepted")
    route = _route.decode(body, "TopicRouteData")
    _check_count("queueDatas", len(route.queue_datas or ()), MAX_TOPIC_QUEUES)
    return [
        RegisterTopicQueue(
            row.broker_name or "", row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag
        )
        for row in route.queue_datas or []
    ]


def _version(found: _DataVersion, now_ms: int) -> DataVersion:
    timestamp = now_ms if found.timestamp is None else found.timestamp
    return DataVersion(found.state_version, timestamp, found.counter or 0)


def _rows(table: dict[str, _TopicConfig]) -> dict[str, QueueRow]:
    """Return the rows by the topicName in each entry, as RocketMQ stores them. The key of the map is ignored."""
    _check_count("topics", len(table), MAX_TOPICS)
    shared: dict[tuple[int, int, int, int], QueueRow] = {}  # most topics of a broker have equal rows
    rows = {}
    for config in table.values():
        numbers = (config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)
        row = shared.get(numbers)
        if row is None:
            row = shared[numbers] = QueueRow(*numbers)
        rows[config.topic_name] = row
    if None in rows:
        raise BadRequestError("topicConfigTable holds an entry without topicName", field="topicName")
    named: dict[str, QueueRow] = rows  # type: ignore[assignment]
    check_names("topicName", named.keys())
    return named


def _mappings(table: dict[str, _Mapping]) -> dict[str, TopicQueueMappingInfo]:
    queue_ids = sum(len(info.curr_id_map or ()) for info in table.values())
    _check_count("topic queue mappings and queue ids in them", len(table) + queue_ids, MAX_MAPPINGS)
    return {topic: _mapping_info(topic, info) for topic, info in table.items()}


def _check_count(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise BadRequestError(f"a request with {count} {what}: at most {limit} are accepted", count=count, limit=limit)


def _mapping_info(topic: str, info: _Mapping) -> TopicQueueMappingInfo:
    check_name("topicQueueMappingInfoMap", topic)
    if info.bname is None:
        raise BadRequestError(f"the topic queue mapping of {topic!r} has no bname", field="bname")
    return TopicQueueMappingInfo(
        None if info.topic is None else check_name("topic", info.topic),
        None if info.scope is None else check_name("scope", info.scope),
        info.total_queues,
        check_key("bname", info.bname),
        info.epoch,
        info.dirty,
        info.curr_id_map,
    )


def _filter_servers(servers: list[str] | None) -> list[str] | None:
    if servers:
        _check_count("filter servers", len(servers), MAX_FILTER_SERVERS)
        check_names("filterServerList", servers)
    return servers


# --- the compressed form ---


def inflates_beyond(body: bytes, size_bytes: int) -> bool:
    """Return whether a compressed body inflates to more than ``size_bytes``. Inflate no more than that."""
    if len(body) * _MOST_FOR_ONE <= size_bytes:
        return False
    try:
        return len(zlib.decompressobj().decompress(body, size_bytes + 1)) > size_bytes
    except zlib.error:
        return False  # the decoder reports the error


def inflated_bytes(body: bytes, limit_bytes: int) -> int:
    """Return the inflated size of a compressed body, or the limit if that is less. Keep none of the data."""
    inflater, size = zlib.decompressobj(), 0
    with suppress(zlib.error):
        while body and size < limit_bytes:
            size += len(inflater.decompress(body, 256 * 1024))
            body = inflater.unconsumed_tail
    return min(size, limit_bytes)


def _inflate(body: bytes, limit_bytes: int) -> bytes:
    """Inflate one zlib stream, up to the limit. Bytes after the stream are ignored."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, limit_bytes)
        if inflater.unconsumed_tail and not inflater.eof and inflater.decompress(inflater.unconsumed_tail, 1):
            message = f"RegisterBrokerBody inflates to more than {limit_bytes} bytes"
            raise TooLargeError(message, limit_bytes=limit_bytes)
    except zlib.error as error:
        raise BadRequestError(f"Failed to decode RegisterBrokerBody: {error}") from error
    return data


class _Blocks:
    """Reader of int32 numbers and of blocks with an int32 length. It never reads past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        """Read the number of blocks that follow. Each block has at least four bytes."""
        count = self._int()
        if not 0 <= count <= (len(self._data) - self._at) // 4:
            raise BadRequestError(f"Failed to decode RegisterBrokerBody: a count of {count} where there is no room")
        return count

    def block(self) -> bytes:
        """Read the next block."""
        length = self._int()
        start, end = self._at, self._at + length
        if length < 0 or end > len(self._data):
            raise BadRequestError(f"Failed to decode RegisterBrokerBody: {length} bytes announced, fewer there")
        self._at = end
        return self._data[start:end]

    def _int(self) -> int:
        try:
            (value,) = struct.unpack_from(">i", self._data, self._at)
        except struct.error as error:
            raise BadRequestError("Failed to decode RegisterBrokerBody: it ends too early") from error
        self._at += 4
        return int(value)


def _decode_compressed(data: bytes, version: int, now_ms: int) -> Registration:
    """RegisterBrokerBody.decode, compressed form. A block is an int32 length and that many bytes.

    The order is: DataVersion, int32 and that many topic lines, filter servers, and from 5.0.0 on int32 and that many
    mappings.
    """
    blocks = _Blocks(data)
    data_version = _decode_version(blocks.block(), now_ms)
    shared: dict[str, QueueRow] = {}
    topics = blocks.count()
    _check_count("topics", topics, MAX_TOPICS)
    rows = dict(_topic_line(blocks.block(), shared) for _ in range(topics))
    check_names("topicName", rows.keys())
    filter_servers = _filter_server_block(blocks.block())
    mappings: dict[str, _Mapping] = {}
    if version >= V5_0_0:
        count = blocks.count()
        _check_count("topic queue mappings", count, MAX_MAPPINGS)
        numbers = 0
        for _ in range(count):
            block = blocks.block()
            # The colons are counted before decoding, because the JSON may repeat a key many times.
            numbers += max(0, block.count(b":") - _MAPPING_FIELDS)
            _check_count("queue ids in topic queue mappings", numbers, MAX_MAPPINGS)
            info = _mapping.decode(block, "TopicQueueMappingInfo")
            if info.topic is None:
                raise BadRequestError("Failed to decode RegisterBrokerBody: a topic queue mapping without topic")
            mappings[info.topic] = info
    return Registration(data_version, rows, _mappings(mappings), filter_servers)


def _topic_line(line: bytes, shared: dict[str, QueueRow]) -> tuple[str, QueueRow]:
    """Decode ``name readQueueNums writeQueueNums perm filterType attributes`` (TopicConfig.decode), no flags, no order.

    Args:
        line: The line as sent.
        shared: Rows of earlier lines, by the text after the name. Most lines share this text.
    """
    name, _, rest = line.decode("utf-8", "replace").partition(" ")
    row = shared.get(rest)
    if row is None:
        words = rest.split(" ")
        if len(words) < 4 or words[3] not in _FILTER_TYPES:
            raise BadRequestError(f"Failed to decode RegisterBrokerBody: no topic line: {line[:80]!r}")
        row = shared[rest] = QueueRow(_int(words[0]), _int(words[1]), _int(words[2]), 0)
    return name, row


def _int(word: str) -> int:
    """Integer.parseInt."""
    if _INTEGER.fullmatch(word) and MIN_INT <= (number := int(word)) <= MAX_INT:
        return number
    raise BadRequestError(f"Failed to decode RegisterBrokerBody: {word[:40]!r} is not an integer")


def _filter_server_block(block: bytes) -> list[str] | None:
    """Decode a JSON array, or null for no list. Invalid JSON counts as an empty array, as in RocketMQ."""
    try:
        servers = msgspec.json.decode(block, type=list[str] | None)
    except (ValueError, RecursionError):
        return []
    return _filter_servers(servers)
