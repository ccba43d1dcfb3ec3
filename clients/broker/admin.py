# SPDX-License-Identifier: Apache-2.0
"""Answers of a broker to mqadmin's topic commands, and to the part of message requests that concerns topics.

A broker agent keeps no messages. A valid message creates its topic if that is allowed, and is then refused with
SERVICE_NOT_AVAILABLE. An invalid message is refused with RocketMQ's code and remark.

Sources (5.5.0): org.apache.rocketmq.broker.processor.AdminBrokerProcessor, SendMessageProcessor, ClientManageProcessor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from clients.broker import attributes
from clients.broker.broker_topics import BrokerTopics
from clients.broker.config import BrokerConfig
from clients.broker.registration import NO_MAPPINGS
from clients.broker.sending import int_field, parse_send_request
from clients.broker.topic_config import TopicConfig, decode_topic_list, encode_entries, encode_topic_config
from clients.broker.topics import FLAG_UNIT_SUB, RETRY_QUEUE_NUMS
from remoting.codec.commands import RefusedError
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import encode_data_version, encode_kv_table, encode_topic_list, not_supported, response
from remoting.server.channel import Connection
from schemas.broker import MASTER_ID, PERM_WRITE, DataVersion
from schemas.codes import MAX_INT, V5_5_0, RequestCode, ResponseCode
from schemas.errors import BadRequestError
from schemas.topic_names import RETRY_GROUP_TOPIC_PREFIX, group_remark, topic_remark

_data_version = msgspec.json.Decoder(DataVersion)
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
_ZERO: Final = (
    *("msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow"),
    *("msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning", "msgGetTotalTodayNow"),
    *("dispatchBehindBytes", "pageCacheLockTimeMills", "commitLogMinOffset", "commitLogMaxOffset"),
    *("sendThreadPoolQueueSize", "sendThreadPoolQueueHeadWaitTimeMills"),
    *("pullThreadPoolQueueSize", "pullThreadPoolQueueHeadWaitTimeMills"),
    *("ackThreadPoolQueueSize", "ackThreadPoolQueueHeadWaitTimeMills"),
    *("queryThreadPoolQueueSize", "queryThreadPoolQueueHeadWaitTimeMills"),
    *("timerReadBehind", "timerOffsetBehind", "timerCongestNum", "startAcceptSendRequestTimeStamp"),
)
_ZERO_RATE: Final = ("timerEnqueueTps", "timerDequeueTps", "commitLogDiskRatio")
_ZERO_RATES: Final = ("putTps", "getTotalTps", "getFoundTps", "getMissTps", "getTransferredTps")


class _Subscription(msgspec.Struct, rename="camel"):
    topic: str = ""


class _Consumer(msgspec.Struct, rename="camel"):
    group_name: str = ""
    unit_mode: bool = False
    subscription_data_set: list[_Subscription] = msgspec.field(default_factory=list)


class _Heartbeat(msgspec.Struct, rename="camel"):
    consumer_data_set: list[_Consumer] = msgspec.field(default_factory=list)


_heartbeat = msgspec.json.Decoder(_Heartbeat)


class Broker(Protocol):
    """Data of a broker, without its topics.

    Attributes:
        config: Settings, with the port on which the broker listens.
        started_ms: Start time, in milliseconds since 1970.
    """

    config: BrokerConfig
    started_ms: int

    @property
    def master_addr(self) -> str | None:
        """Address of the master, for a slave."""


class BrokerHandler:
    """Handler of the requests to one broker."""

    def __init__(self, broker: Broker, broker_topics: BrokerTopics) -> None:
        """Create the handler of a broker."""
        self._broker = broker
        self._broker_topics = broker_topics
        self._topics = broker_topics.topics
        self._answers: dict[int, Callable[[RemotingCommand, str], Awaitable[RemotingCommand]]] = {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._update_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._update_topic_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topic_config,
            RequestCode.GET_TOPIC_CONFIG: self._topic_config,
            RequestCode.GET_BROKER_CONFIG: self._broker_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            RequestCode.HEART_BEAT: self._client_heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister_client,
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
        }

    # --- remoting.server.channel.Handler ---

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        """See `Handler.handle`."""
        answer = self._answers.get(command.code)
        return not_supported(command.code) if answer is None else await answer(command, connection.peer)

    def on_connect(self, connection: Connection) -> None:
        """Do nothing."""

    def on_close(self, connection: Connection) -> None:
        """Do nothing."""

    # --- topics ---

    async def _update_topic(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        topic = command.ext("topic") or ""
        self._check_name(topic)
        filter_type = command.ext("topicFilterType") or ""
        if filter_type not in _FILTER_TYPES:
            raise RefusedError(f"topicFilterType = [{filter_type}] value invalid")
        edited = TopicConfig(
            topic_name=topic,
            read_queue_nums=_int(command, "readQueueNums"),
            write_queue_nums=_int(command, "writeQueueNums"),
            perm=_int(command, "perm"),
            topic_filter_type="MULTI_TAG" if filter_type == "MULTI_TAG" else "SINGLE_TAG",
            topic_sys_flag=_int(command, "topicSysFlag") if command.ext("topicSysFlag") else 0,
            order=(command.ext("order") or "").lower() == "true",
            attributes=attributes.parse_edits(command.ext("attributes")),
        )
        self._check_settings(edited)
        if edited != self._topics.table.get(topic):
            await self._broker_topics.update([edited])
        return response()

    async def _update_topic_list(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        """Create or change topics. As in RocketMQ, if one topic is unchanged, nothing is applied."""
        edited = decode_topic_list(command.body)
        for topic in edited:
            self._check_name(topic.topic_name)
            self._check_settings(topic)
            if topic == self._topics.table.get(topic.topic_name):
                return response()
        if edited:
            await self._broker_topics.update(edited)
        return response()

    def _check_name(self, topic: str) -> None:
        """Raise RefusedError if a topic of this name must not be created or changed."""
        _refuse(topic_remark(topic) or self._system_topic_remark(topic))

    def _check_settings(self, topic: TopicConfig) -> None:
        """Raise RefusedError if a topic cannot have these settings. RocketMQ accepts queue numbers below 1."""
        remark = None
        is_mixed = topic.attributes.get(f"+{attributes.MESSAGE_TYPE}") == attributes.MIXED
        if is_mixed and not self._broker.config.enable_mixed_message_type:
            remark = "MIXED message type is not supported."
        elif min(topic.read_queue_nums, topic.write_queue_nums) < 1:
            remark = (
                f"The specified topic: {topic.topic_name}, readQueueNums {topic.read_queue_nums} and writeQueueNums "
                f"{topic.write_queue_nums} must both be at least 1; take a permission away to stop reading or writing"
            )
        _refuse(remark)

    def _system_topic_remark(self, topic: str) -> str | None:
        if self._broker.config.validate_system_topic_when_update_topic and self._topics.is_system_topic(topic):
            return f"The topic[{topic}] is conflict with system topic."
        return None

    async def _delete_topic(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        topic = command.ext("topic") or ""
        _refuse(self._system_topic_remark(topic) if topic.strip() else "The specified topic is blank.")
        await self._broker_topics.delete(topic)
        return response()

    async def _all_topic_config(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        """Answer with all topics, or with a page of splitMetadataSize topics if the request asks for pages."""
        topics, config = self._topics, self._broker.config
        table = topics.table
        asked = [command.ext(name) for name in ("dataVersion", "topicSeq", "maxTopicNum")]
        if config.enable_split_metadata and any(value is not None for value in asked):
            first = _int(command, "topicSeq")
            most = _int(command, "maxTopicNum") if command.ext("maxTopicNum") is not None else MAX_INT
            known = _version_of(asked[0])
            table = topics.sub_table(known, first, min(most, config.split_metadata_size))
        version = topics.data_version
        body = (
            b'{"dataVersion":%b,"mappingDataVersion":%b,"topicConfigTable":{%b},'
            b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}'
        ) % (encode_data_version(version), NO_MAPPINGS % version.timestamp, encode_entries(table))
        return response(ext_fields={"totalTopicNum": str(len(topics.table))}, body=body)

    async def _topic_config(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        topic = command.ext("topic")
        found = self._topics.table.get(topic or "")
        if found is None:
            raise RefusedError(f"No topic in this broker. topic: {topic}", code=ResponseCode.TOPIC_NOT_EXIST)
        return response(body=encode_topic_config(found))

    # --- the broker itself ---

    async def _broker_config(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        version = encode_data_version(DataVersion(0, self._broker.started_ms, 0)).decode()
        return response(ext_fields={"version": version}, body=self._broker.config.properties().encode())

    async def _runtime_info(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        facts = runtime_info(
            is_master=self._broker.config.broker_id == MASTER_ID,
            started_ms=self._broker.started_ms,
            topics=len(self._topics.table),
            master_addr=self._broker.master_addr,
        )
        return response(body=encode_kv_table(facts))

    async def _system_topics(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        return response(body=encode_topic_list(sorted(self._topics.system_topics)))

    # --- clients ---

    async def _client_heartbeat(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        """Create the retry topics of consumer groups. The groups are not stored, because the agent has no messages."""
        try:
            consumers = _heartbeat.decode(command.body).consumer_data_set if command.body else []
        except (ValueError, RecursionError) as error:
            raise BadRequestError(f"the body is no HeartbeatData: {error}") from error
        for consumer in consumers:
            _refuse(group_remark(consumer.group_name))
            await self._broker_topics.needed(
                RETRY_GROUP_TOPIC_PREFIX + consumer.group_name,
                RETRY_QUEUE_NUMS,
                is_order=any(self._topics.is_order_topic(data.topic) for data in consumer.subscription_data_set),
                topic_sys_flag=FLAG_UNIT_SUB if consumer.unit_mode else 0,
            )
        return response()

    async def _unregister_client(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        return response(ext_fields={})

    async def _send(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        topic = await self._broker_topics.for_send(parse_send_request(command), peer)
        raise RefusedError(
            f"topic[{topic.topic_name}] exists, but this is a routelake broker agent: it keeps no messages",
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
        )

    async def _send_back(self, command: RemotingCommand, peer: str) -> RemotingCommand:
        """Create the retry topic, then answer like a broker that does not have the message."""
        if not self._broker.config.broker_permission & PERM_WRITE:
            raise RefusedError(
                f"the broker[{self._broker.config.broker_ip1}] sending message is forbidden",
                code=ResponseCode.NO_PERMISSION,
            )
        group = command.ext("group") or ""
        _refuse(group_remark(group))
        is_unit = (command.ext("unitMode") or "").lower() == "true"
        topic = RETRY_GROUP_TOPIC_PREFIX + group
        found = await self._broker_topics.needed(
            topic, RETRY_QUEUE_NUMS, topic_sys_flag=FLAG_UNIT_SUB if is_unit else 0
        )
        if found is None:
            raise RefusedError(f"topic[{topic}] not exist")
        if not found.perm & PERM_WRITE:
            raise RefusedError(f"the topic[{topic}] sending message is forbidden", code=ResponseCode.NO_PERMISSION)
        raise RefusedError(f"look message by offset failed, {command.ext('offset')}")


def _refuse(remark: str | None) -> None:
    """Raise RefusedError if there is a remark about an invalid value."""
    if remark is not None:
        raise RefusedError(remark, code=ResponseCode.INVALID_PARAMETER)


def _int(command: RemotingCommand, name: str) -> int:
    return int_field(command.ext(name), name)


def _version_of(text: str | None) -> DataVersion | None:
    """Decode a DataVersion. Raises RefusedError if the text is not a DataVersion."""
    if text is None or not text.strip():
        return None
    try:
        return _data_version.decode(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"the field dataVersion is no DataVersion: {error}") from None


def runtime_info(*, is_master: bool, started_ms: int, topics: int, master_addr: str | None) -> dict[str, str]:
    """The answer to GET_BROKER_RUNTIME_INFO. The numbers of messages are zeros, which mqadmin clusterList can print.

    Source (5.5.0): AdminBrokerProcessor.prepareRuntimeInfo.

    Args:
        is_master: Whether the broker is a master, because only a master serves.
        started_ms: Start time of the broker, in milliseconds since 1970.
        topics: Number of topics.
        master_addr: Address of the master, for a slave, if it is known.
    """
    facts = {
        **dict.fromkeys(_ZERO, "0"),
        **dict.fromkeys(_ZERO_RATE, "0.0"),
        **dict.fromkeys(_ZERO_RATES, "0.0 0.0 0.0"),
        "bootTimestamp": str(started_ms),
        "brokerActive": "true" if is_master else "false",
        "brokerVersion": str(V5_5_0),
        "brokerVersionDesc": "V5_5_0",
        "earliestMessageTimeStamp": str(started_ms),
        "topicNumber": str(topics),
    }
    if master_addr is not None:
        facts["masterAddr"] = master_addr
    return facts
