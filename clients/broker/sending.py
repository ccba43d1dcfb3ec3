# SPDX-License-Identifier: Apache-2.0
"""Checks of a broker before it accepts a message, as far as topics are concerned. No I/O.

There are two groups of checks. Between them the topic is looked up and, if it is unknown, created where allowed::

    broker not writable and topic ordered      16 NO_PERMISSION
    name invalid                               29 INVALID_PARAMETER        `check_name`
    topic is not for messages of clients       16 NO_PERMISSION
    ---------------------------------------------------------------------- look up, create
    still unknown                              17 TOPIC_NOT_EXIST          `check_queue`
    queueId beyond the topic's queues          29 INVALID_PARAMETER

Source (5.5.0): org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor.msgCheck, SendMessageRequestHeaderV2.
"""

from __future__ import annotations

from typing import Final

import msgspec

from clients.broker.config import BrokerConfig
from clients.broker.topic_config import TopicConfig
from clients.broker.topics import FLAG_UNIT, FLAG_UNIT_SUB, TopicConfigManager
from remoting.codec.commands import RefusedError
from remoting.codec.frame import RemotingCommand
from schemas.broker import PERM_WRITE
from schemas.codes import RequestCode, ResponseCode
from schemas.topic_names import NOT_ALLOWED_SEND_TOPICS, RETRY_GROUP_TOPIC_PREFIX, topic_remark

_SHORT_NAMES: Final = {
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "unitMode": "k",
}
"""Short field names of SendMessageRequestHeaderV2."""


class SendRequest(msgspec.Struct, frozen=True):
    """Fields of SEND_MESSAGE that concern its topic."""

    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int = 0
    unit_mode: bool = False

    @property
    def topic_sys_flag(self) -> int:
        """System flag of the topic that this message may create."""
        if not self.unit_mode:
            return 0
        return FLAG_UNIT_SUB if self.topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else FLAG_UNIT


def parse_send_request(command: RemotingCommand) -> SendRequest:
    """Read the header of 10, 310 or 320.

    Raises:
        RefusedError: A field is missing, or is not a number.
    """
    is_short = command.code != RequestCode.SEND_MESSAGE

    def field(name: str) -> str | None:
        return command.ext(_SHORT_NAMES[name] if is_short else name)

    return SendRequest(
        field("topic") or "",
        field("defaultTopic") or "",
        int_field(field("defaultTopicQueueNums"), "defaultTopicQueueNums"),
        int_field(field("queueId"), "queueId"),
        (field("unitMode") or "").lower() == "true",
    )


def int_field(value: str | None, name: str) -> int:
    """Read a number from a request header.

    Raises:
        RefusedError: The field is missing, or is not a number.
    """
    try:
        return int(value or "", 10)
    except ValueError:
        raise RefusedError(
            f"the field {name} is {'missing' if value is None else f'no number: {value[:40]!r}'}"
        ) from None


def check_name(config: BrokerConfig, topics: TopicConfigManager, topic: str) -> None:
    """Check that messages to a topic of this name are allowed.

    Raises:
        RefusedError: They are not allowed.
    """
    if not config.broker_permission & PERM_WRITE and topics.is_order_topic(topic):
        raise RefusedError(
            f"the broker[{config.broker_ip1}] sending message is forbidden", code=ResponseCode.NO_PERMISSION
        )
    remark = topic_remark(topic)
    if remark is not None:
        raise RefusedError(remark, code=ResponseCode.INVALID_PARAMETER)
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise RefusedError(f"Sending message to topic[{topic}] is forbidden.", code=ResponseCode.NO_PERMISSION)


def check_queue(request: SendRequest, found: TopicConfig | None, producer: str) -> TopicConfig:
    """Check that the topic exists, or was created, and has the queue.

    Raises:
        RefusedError: The topic or queue does not exist.
    """
    if found is None:
        raise RefusedError(f"topic[{request.topic}] not exist, apply first please!", code=ResponseCode.TOPIC_NOT_EXIST)
    if request.queue_id >= max(found.write_queue_nums, found.read_queue_nums):
        raise RefusedError(
            f"request queueId[{request.queue_id}] is illegal, {found} Producer: {producer}",
            code=ResponseCode.INVALID_PARAMETER,
        )
    return found
