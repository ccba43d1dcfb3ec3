# SPDX-License-Identifier: Apache-2.0
"""Conversion of a route to the queues to write to and to read from. Pure.

A queue to write to needs a writable row and a master, which is brokerId 0 in ``brokerAddrs``. A NameServer also gives
id 0 to an acting master, but then it removes the write permission. A queue to read from needs only a readable row. If
there is an order configuration, its list replaces the first rule, without a check. A static topic replaces both rules
by its logical queues. They have a mock brokerName, and the real brokerName as their end point.

Sources (5.5.0): org.apache.rocketmq.client.impl.factory.MQClientInstance (topicRouteData2TopicPublishInfo,
topicRouteData2TopicSubscribeInfo), org.apache.rocketmq.remoting.rpc.ClientMetadata
(topicRouteData2EndpointsForStaticTopic), org.apache.rocketmq.client.impl.producer.TopicPublishInfo,
TopicQueueMappingUtils.getMockBrokerName.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from clients.route.errors import OrderConfError
from schemas.broker import MASTER_ID, PERM_READ, PERM_WRITE, TopicQueueMappingInfo
from schemas.codes import MAX_INT, MIN_INT
from schemas.route import QueueData, TopicRouteData

LOGICAL_QUEUE_MOCK_BROKER_PREFIX: Final = "__syslo__"
LOGICAL_QUEUE_MOCK_BROKER_NAME_NOT_EXIST: Final = "__syslo__none__"
"""End point of a logical queue without a broker."""
METADATA_SCOPE_GLOBAL: Final = "__global__"

_JAVA_INT = re.compile(r"[+-]?\d+")


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue. The order is that of MessageQueue.compareTo."""

    topic: str
    broker_name: str
    queue_id: int


class TopicPublishInfo(msgspec.Struct, frozen=True):
    """Queues to which a topic's messages can be sent.

    Attributes:
        message_queue_list: The queues, in the order of the round robin.
        order_topic: Whether the queues come from an order configuration.
        have_topic_router_info: Whether a NameServer answered with a route, even without a queue.
        topic_route_data: The route.
    """

    message_queue_list: tuple[MessageQueue, ...] = ()
    order_topic: bool = False
    have_topic_router_info: bool = False
    topic_route_data: TopicRouteData | None = None

    @property
    def ok(self) -> bool:
        """Return True if there is a queue."""
        return bool(self.message_queue_list)

    def write_queue_nums(self, broker_name: str) -> int:
        """Return the number of write queues in the broker's row, or -1 without a row (getWriteQueueNumsByBroker)."""
        rows = () if self.topic_route_data is None else self.topic_route_data.queue_datas
        return next((row.write_queue_nums for row in rows if row.broker_name == broker_name), -1)


def topic_publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """Derive the queues to write to from a route (topicRouteData2TopicPublishInfo).

    Raises:
        OrderConfError: The order configuration cannot be read.
    """
    queues: tuple[MessageQueue, ...]
    if route.order_topic_conf:
        queues = _ordered_queues(topic, route.order_topic_conf)
    elif route.order_topic_conf is None and route.topic_queue_mapping_by_broker:
        queues = tuple(sorted(static_topic_end_points(topic, route), key=lambda queue: queue.queue_id))
    else:
        masters = _has_master(route)
        queues = tuple(
            MessageQueue(topic, row.broker_name, queue_id)
            for row in sorted(route.queue_datas, key=lambda row: java_order(row.broker_name))
            if row.perm & PERM_WRITE and masters.get(row.broker_name)
            for queue_id in range(row.write_queue_nums)
        )
    return TopicPublishInfo(queues, bool(route.order_topic_conf), have_topic_router_info=True, topic_route_data=route)


def topic_subscribe_info(topic: str, route: TopicRouteData) -> frozenset[MessageQueue]:
    """Derive the queues to read from a route (topicRouteData2TopicSubscribeInfo)."""
    if route.topic_queue_mapping_by_broker:
        return frozenset(static_topic_end_points(topic, route))
    return frozenset(
        MessageQueue(topic, row.broker_name, queue_id)
        for row in route.queue_datas
        if row.perm & PERM_READ
        for queue_id in range(row.read_queue_nums)
    )


def clamped(route: TopicRouteData, default_topic_queue_nums: int) -> TopicRouteData:
    """Return the default topic's route for a new topic: no row has more queues than the producer asks for.

    Both numbers become ``min(default_topic_queue_nums, readQueueNums)``. The row's own number of write queues is not
    used (updateTopicRouteInfoFromNameServer).
    """

    def row(data: QueueData) -> QueueData:
        nums = min(default_topic_queue_nums, data.read_queue_nums)
        return msgspec.structs.replace(data, read_queue_nums=nums, write_queue_nums=nums)

    return msgspec.structs.replace(route, queue_datas=[row(data) for data in route.queue_datas])


def static_topic_end_points(topic: str, route: TopicRouteData) -> dict[MessageQueue, str]:
    """Return the logical queues of a static topic in order, each with the brokerName that holds it.

    The mapping with the highest epoch counts. If two brokers claim a queue in the same epoch, RocketMQ's answer depends
    on the order of a HashMap. Here the last name counts.
    """
    scopes: dict[str, list[TopicQueueMappingInfo]] = {}
    mappings: Mapping[str, TopicQueueMappingInfo] = route.topic_queue_mapping_by_broker or {}
    for _, info in sorted(mappings.items()):
        scopes.setdefault(METADATA_SCOPE_GLOBAL if info.scope is None else info.scope, []).append(info)
    found: dict[MessageQueue, str] = {}
    for scope, infos in sorted(scopes.items()):
        holder: dict[int, TopicQueueMappingInfo] = {}
        for info in infos:
            for queue_id in info.curr_id_map or ():
                if queue_id not in holder or holder[queue_id].epoch <= info.epoch:
                    holder[queue_id] = info
        name = mock_broker_name(scope)
        for queue_id in range(max((info.total_queues for info in infos if info.epoch >= -1), default=0)):
            by = holder[queue_id].bname if queue_id in holder else None
            found[MessageQueue(topic, name, queue_id)] = by or LOGICAL_QUEUE_MOCK_BROKER_NAME_NOT_EXIST
    return found


def mock_broker_name(scope: str) -> str:
    """Placeholder brokerName in the logical queues of a scope (TopicQueueMappingUtils.getMockBrokerName)."""
    return LOGICAL_QUEUE_MOCK_BROKER_PREFIX + (scope[2:] if scope == METADATA_SCOPE_GLOBAL else scope)


def java_order(name: str) -> bytes:
    """Return a sort key for the order of String.compareTo, by UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


def _has_master(route: TopicRouteData) -> dict[str, bool]:
    """Return for each brokerName whether it has a master. If two groups have one name, the first counts."""
    found: dict[str, bool] = {}
    for data in route.broker_datas:
        found.setdefault(data.broker_name, MASTER_ID in data.broker_addrs)
    return found


def _ordered_queues(topic: str, order_topic_conf: str) -> tuple[MessageQueue, ...]:
    # Java's split drops empty strings at the end, and only there.
    queues = []
    for broker in _java_split(order_topic_conf, ";"):
        item = _java_split(broker, ":") or [""]
        if len(item) < 2 or not _JAVA_INT.fullmatch(item[1]) or not MIN_INT <= int(item[1]) <= MAX_INT:
            raise OrderConfError(
                f"the order configuration of {topic} cannot be read: {broker!r} is not brokerName:queues",
                topic=topic,
                order_topic_conf=order_topic_conf,
            )
        queues += [MessageQueue(topic, item[0], queue_id) for queue_id in range(int(item[1]))]
    return tuple(queues)


def _java_split(text: str, separator: str) -> list[str]:
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts
