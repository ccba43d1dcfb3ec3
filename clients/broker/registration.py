# SPDX-License-Identifier: Apache-2.0
"""Requests of a broker to NameServers, and the parsers of their answers. No I/O, no clock.

=========================  ====================================================================================
103 REGISTER_BROKER        the broker and all its topics (`full`), or only changed ones (`incremental`)
217 REGISTER_TOPIC_...     one topic's queues (`register_topic`), with enableSingleTopicRegister
322 QUERY_DATA_VERSION     question whether anything has changed; it counts as a heartbeat too
904 BROKER_HEARTBEAT       heartbeat
104 UNREGISTER_BROKER      end of the registration
=========================  ====================================================================================

If the broker's own permission lacks read or write, its topics are registered without that permission too. As in
RocketMQ, the full form then drops topicSysFlag, order and attributes. The incremental form keeps topicSysFlag.

Sources (5.5.0): org.apache.rocketmq.broker.out.BrokerOuterAPI, org.apache.rocketmq.broker.BrokerController
(registerBrokerAll, registerIncrementBrokerData, registerSingleTopicAll), RegisterBrokerBody.encode.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from clients.broker.config import BrokerConfig
from clients.broker.topic_config import READ_WRITE, TopicConfig, TopicTable, encode_entries
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import encode_data_version
from schemas.broker import DataVersion
from schemas.codes import RequestCode, ResponseCode
from schemas.errors import BadRequestError

_INT = struct.Struct(">i")
_encode = msgspec.json.Encoder().encode
NO_MAPPINGS = b'{"counter":0,"stateVersion":0,"timestamp":%d}'
"""DataVersion of static topic mappings. A broker agent has no such mappings."""


class Registration(msgspec.Struct, frozen=True):
    """One registration, independent of the protocol.

    Attributes:
        data_version: Version of the whole table, even if only a part is sent.
        entries: Members of the topicConfigTable object, without the braces.
        lines: The same topics as text lines, for a compressed body. None for a plain body.
    """

    data_version: DataVersion
    entries: bytes
    lines: list[bytes] | None = None


class RegisterBrokerResult(msgspec.Struct, frozen=True):
    """Answer to a registration: the master's addresses, for a slave, and the topics with an order configuration."""

    master_addr: str | None = None
    ha_server_addr: str | None = None
    order_topics: tuple[str, ...] = ()


# --- which topics, with which permission ---


def full(config: BrokerConfig, table: TopicTable) -> list[Registration]:
    """Return all topics in one registration, or in several with enableSplitRegistration (registerBrokerAll)."""
    topics = _allowed(config, table.topic_config_table.values(), keep_sys_flag=False)
    if not config.enable_split_registration:
        return [_registration(config, topics, table.data_version)]
    parts = [_registration(config, part, table.data_version) for part in _parts(topics, config.split_registration_size)]
    # RocketMQ always sends the rest too, even if it is empty
    if len(table.topic_config_table) % config.split_registration_size == 0:
        parts.append(_registration(config, (), table.data_version))
    return parts


def incremental(config: BrokerConfig, changed: Iterable[TopicConfig], data_version: DataVersion) -> Registration:
    """Return a registration of changed topics only (registerIncrementBrokerData)."""
    return _registration(config, _allowed(config, changed, keep_sys_flag=True), data_version)


def _allowed(config: BrokerConfig, topics: Iterable[TopicConfig], *, keep_sys_flag: bool) -> Iterable[TopicConfig]:
    """Limit the permissions of topics to those of the broker."""
    if not _restricted(config):
        return topics
    return [
        TopicConfig(
            topic_name=topic.topic_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & config.broker_permission,
            topic_sys_flag=topic.topic_sys_flag if keep_sys_flag else 0,
        )
        for topic in topics
    ]


def _restricted(config: BrokerConfig) -> bool:
    return config.broker_permission & READ_WRITE != READ_WRITE


def _parts(topics: Iterable[TopicConfig], size: int) -> Iterator[list[TopicConfig]]:
    rest = iter(topics)
    while part := list(islice(rest, size)):
        yield part


def _registration(config: BrokerConfig, topics: Iterable[TopicConfig], data_version: DataVersion) -> Registration:
    table = {topic.topic_name: topic for topic in topics}
    lines = [_line(topic) for topic in table.values()] if config.compressed_register else None
    return Registration(data_version, encode_entries(table), lines)


def _line(topic: TopicConfig) -> bytes:
    """TopicConfig.encode. The line has neither flags nor order."""
    words = (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} {topic.topic_filter_type} "
    )
    return words.encode() + _encode(topic.attributes)


# --- requests ---


def register_request(config: BrokerConfig, registration: Registration) -> RemotingCommand:
    """REGISTER_BROKER (BrokerOuterAPI.registerBrokerAll).

    The header marks a compressed body. RocketMQ 5.x omits the mark, and then no NameServer can read the body.
    """
    compressed = registration.lines is not None
    body = _compressed_body(registration) if compressed else plain_body(registration.data_version, registration.entries)
    fields = identity(config)
    fields["bodyCrc32"] = str(zlib.crc32(body) & 0x7FFFFFFF)
    fields["compressed"] = "true" if compressed else "false"
    fields["enableActingMaster"] = "true" if config.enable_slave_acting_master else "false"
    fields["haServerAddr"] = config.ha_server_addr
    if config.heartbeat_timeout_ms is not None:
        fields["heartbeatTimeoutMillis"] = str(config.heartbeat_timeout_ms)
    return RemotingCommand(RequestCode.REGISTER_BROKER, fields, body)


def plain_body(data_version: DataVersion, entries: bytes) -> bytes:
    """RegisterBrokerBody.encode, plain."""
    version = encode_data_version(data_version)
    return b"".join(
        (
            b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":',
            version,
            b',"mappingDataVersion":',
            NO_MAPPINGS % data_version.timestamp,
            b',"topicConfigTable":{',
            entries,
            b'},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}}',
        )
    )


def _compressed_body(registration: Registration) -> bytes:
    """RegisterBrokerBody.encode, compressed: version, topic lines, filter servers, mappings, each after its length."""
    blocks = [_block(encode_data_version(registration.data_version)), _INT.pack(len(registration.lines or ()))]
    blocks += [_block(line) for line in registration.lines or ()]
    blocks += [_block(b"[]"), _INT.pack(0)]
    return zlib.compress(b"".join(blocks), 9)


def _block(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def register_topic_request(config: BrokerConfig, topic: TopicConfig) -> RemotingCommand:
    """REGISTER_TOPIC_IN_NAMESRV (BrokerOuterAPI.registerSingleTopicAll)."""
    perm = topic.perm & config.broker_permission if _restricted(config) else topic.perm
    queue_data = {
        "brokerName": config.broker_name,
        "perm": perm,
        "readQueueNums": topic.read_queue_nums,
        "topicSysFlag": topic.topic_sys_flag,
        "writeQueueNums": topic.write_queue_nums,
    }
    body = _encode({"brokerDatas": [], "filterServerTable": {}, "queueDatas": [queue_data]})
    return RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic.topic_name}, body)


def query_data_version_request(config: BrokerConfig, data_version: DataVersion) -> RemotingCommand:
    """QUERY_DATA_VERSION (BrokerOuterAPI.needRegister). Oneway it is a heartbeat (sendHeartbeatViaDataVersion)."""
    return RemotingCommand(RequestCode.QUERY_DATA_VERSION, identity(config), encode_data_version(data_version))


def heartbeat_request(config: BrokerConfig) -> RemotingCommand:
    """BROKER_HEARTBEAT (BrokerOuterAPI.sendHeartbeat), as in RocketMQ without brokerId."""
    fields = identity(config)
    del fields["brokerId"]
    return RemotingCommand(RequestCode.BROKER_HEARTBEAT, fields)


def unregister_request(config: BrokerConfig) -> RemotingCommand:
    """UNREGISTER_BROKER (BrokerOuterAPI.unregisterBroker)."""
    return RemotingCommand(RequestCode.UNREGISTER_BROKER, identity(config))


def identity(config: BrokerConfig) -> dict[str, str]:
    """The four header fields that identify a broker."""
    return {
        "brokerAddr": config.broker_addr,
        "brokerId": str(config.broker_id),
        "brokerName": config.broker_name,
        "clusterName": config.broker_cluster_name,
    }


# --- answers ---


class _KVTable(msgspec.Struct):
    table: dict[str, str | None] = msgspec.field(default_factory=dict)


_kv_table = msgspec.json.Decoder(_KVTable)
_version = msgspec.json.Decoder(DataVersion)


def register_result(answer: RemotingCommand) -> RegisterBrokerResult:
    """Parse a successful answer to REGISTER_BROKER (BrokerOuterAPI.registerBroker).

    Raises:
        BadRequestError: The body is not a KVTable.
    """
    topics: Mapping[str, str | None] = {}
    if answer.body:
        try:
            topics = _kv_table.decode(answer.body).table
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"the answer to REGISTER_BROKER has a body that is no KVTable: {error}") from error
    return RegisterBrokerResult(answer.ext("masterAddr"), answer.ext("haServerAddr"), tuple(topics))


def needs_registration(answer: RemotingCommand, data_version: DataVersion) -> bool:
    """Return True if the answer to QUERY_DATA_VERSION asks for a registration (BrokerOuterAPI.needRegister).

    As in RocketMQ, an answer with an error code does not ask for one.
    """
    if answer.code != ResponseCode.SUCCESS:
        return False
    if answer.body:
        try:
            known = _version.decode(answer.body)
        except (ValueError, RecursionError):
            return True
        if known != data_version:
            return True
    return answer.ext("changed") != "false"
