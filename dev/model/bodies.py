# SPDX-License-Identifier: Apache-2.0
"""Registration bodies: DataVersion, TopicConfig, TopicQueueMappingInfo, and RegisterBrokerBody in its three forms."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Any

from dev.model.headers import JavaError, NullPointer
from dev.model.wire import parse_fastjson

V3_0_11 = 37
V5_0_0 = 413
HIGHER_VERSION = 612

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


@dataclass(frozen=True)
class DataVersion:
    """org.apache.rocketmq.remoting.protocol.DataVersion; equality needs all three."""

    state_version: int = 0
    timestamp: int = 0
    counter: int | None = 0

    def to_json(self) -> dict[str, Any]:
        """Return the object as fastjson sees it."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}


@dataclass
class TopicConfig:
    """org.apache.rocketmq.common.TopicConfig, as far as the NameServer reads it."""

    topic_name: str | None = None
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_sys_flag: int = 0


@dataclass
class TopicQueueMappingInfo:
    """org.apache.rocketmq.remoting.protocol.statictopic.TopicQueueMappingInfo."""

    topic: str | None = None
    scope: str | None = "__global__"
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the object as fastjson sees it."""
        return {
            "bname": self.bname,
            "currIdMap": dict(self.curr_id_map),
            "dirty": self.dirty,
            "epoch": self.epoch,
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total_queues,
        }


@dataclass
class Registration:
    """Contents of the body of REGISTER_BROKER. A JSON null stays null, for Java to stumble over.

    Attributes:
        topic_config_table: topicConfigSerializeWrapper.topicConfigTable.
        data_version: topicConfigSerializeWrapper.dataVersion.
        topic_queue_mapping_info_map: Empty in the oldest form.
        filter_server_list: None in the oldest form, which leaves the table untouched.
    """

    topic_config_table: dict[str, TopicConfig] | None
    data_version: DataVersion | None
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] | None
    filter_server_list: list[str] | None


def parse_json(body: bytes) -> Any:
    """JSON as fastjson reads it, which is a little more lenient; anything else is an error of the handler."""
    try:
        return parse_fastjson(body.decode("utf-8"))[0]
    except ValueError as error:
        raise JavaError(str(error)) from error


def parse_object(body: bytes) -> dict[str, Any]:
    """JSON.parseObject into a class.

    Raises:
        JavaError: The value is null, or no object.
    """
    value = parse_json(body)
    if value is None:
        raise NullPointer
    if not isinstance(value, dict):
        raise JavaError("not an object")
    return value


def parse_data_version(value: Any, now_ms: int) -> DataVersion:
    """DataVersion.decode; an absent timestamp is the time of creation, an absent counter 0."""
    return DataVersion(value.get("stateVersion", 0), value.get("timestamp", now_ms), value.get("counter", 0))


def decode_registration(body: bytes, version: int, compressed: bool, now_ms: int) -> Registration:
    """DefaultRequestProcessor.extractRegisterBrokerBodyFromRequest and extractRegisterTopicConfigFromRequest.

    Args:
        body: Body as sent.
        version: Version of the request. It decides the form: from V3_0_11 the RegisterBrokerBody envelope, before it
            the bare topic table; from V5_0_0 the compressed form ends with the queue mappings.
        compressed: The header field of that name.
        now_ms: Time for DataVersions that the body leaves out.

    Raises:
        JavaError: Negative version, or a body that cannot be decoded.
    """
    if version < 0:
        raise JavaError("ArrayIndexOutOfBoundsException")
    version = min(version, HIGHER_VERSION)
    if not body:
        # With an old version the filter servers stay null.
        return Registration({}, DataVersion(0, 0, 0), {}, [] if version >= V3_0_11 else None)
    if version < V3_0_11:
        table, data_version = _topic_table(parse_object(body), now_ms)
        return Registration(table, data_version, {}, None)
    if compressed:
        return _inflate(body, version, now_ms)
    envelope = parse_object(body)
    wrapper = envelope.get("topicConfigSerializeWrapper", {})
    table, data_version = _topic_table(wrapper, now_ms)
    infos = wrapper.get("topicQueueMappingInfoMap", {})
    mappings = None if infos is None else {topic: parse_mapping(value) for topic, value in infos.items()}
    return Registration(table, data_version, mappings, envelope.get("filterServerList", []))


def _topic_table(wrapper: Any, now_ms: int) -> tuple[dict[str, TopicConfig] | None, DataVersion | None]:
    """TopicConfigSerializeWrapper: topicConfigTable and dataVersion."""
    configs, version = wrapper.get("topicConfigTable", {}), wrapper.get("dataVersion", {})
    table = None if configs is None else {name: _topic_config(value) for name, value in configs.items()}
    return table, None if version is None else parse_data_version(version, now_ms)


def _topic_config(value: Any) -> TopicConfig:
    default = TopicConfig()
    return TopicConfig(
        value.get("topicName"),
        value.get("readQueueNums", default.read_queue_nums),
        value.get("writeQueueNums", default.write_queue_nums),
        value.get("perm", default.perm),
        value.get("topicSysFlag", default.topic_sys_flag),
    )


def parse_mapping(value: Any) -> TopicQueueMappingInfo:
    """TopicQueueMappingInfo.decode."""
    default = TopicQueueMappingInfo()
    return TopicQueueMappingInfo(
        value.get("topic"),
        value.get("scope", default.scope),
        value.get("totalQueues", default.total_queues),
        value.get("bname"),
        value.get("epoch", default.epoch),
        value.get("dirty", default.dirty),
        {int(key): number for key, number in value.get("currIdMap", {}).items()},
    )


def _inflate(body: bytes, version: int, now_ms: int) -> Registration:
    """RegisterBrokerBody.decode of the compressed form."""
    try:
        data = zlib.decompressobj().decompress(body)
    except zlib.error as error:
        raise JavaError(str(error)) from error
    at = 0

    def read_int() -> int:
        nonlocal at
        if at + 4 > len(data):
            raise JavaError("End of compressed data has reached")
        at += 4
        return int(struct.unpack_from(">i", data, at - 4)[0])

    def read_block() -> bytes:
        nonlocal at
        length = read_int()
        if length < 0 or at + length > len(data):
            raise JavaError("End of compressed data has reached")
        at += length
        return data[at - length : at]

    data_version = parse_data_version(parse_object(read_block()), now_ms)
    table = {}
    for _ in range(read_int()):
        topic_config = _topic_line(read_block().decode("utf-8"))
        if topic_config.topic_name is None:
            raise NullPointer
        table[topic_config.topic_name] = topic_config
    filter_servers = parse_json(read_block())
    mappings = {}
    if version >= V5_0_0:
        for _ in range(read_int()):
            mapping = parse_mapping(parse_object(read_block()))
            if mapping.topic is None:
                raise NullPointer
            mappings[mapping.topic] = mapping
    return Registration(table, data_version, mappings, filter_servers)


def _topic_line(line: str) -> TopicConfig:
    """TopicConfig.decode: fewer than five tokens leave every field at its default, the name null."""
    tokens = line.split(" ")
    if len(tokens) < 5:
        return TopicConfig()
    if tokens[4] not in _FILTER_TYPES:
        raise JavaError(f"IllegalArgumentException: {tokens[4]}")
    try:
        return TopicConfig(tokens[0], int(tokens[1]), int(tokens[2]), int(tokens[3]))
    except ValueError as error:
        raise JavaError(str(error)) from error
