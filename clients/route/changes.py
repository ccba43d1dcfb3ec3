# SPDX-License-Identifier: Apache-2.0
"""Comparison of a route with the previous one. Pure.

Sources (5.5.0): org.apache.rocketmq.remoting.protocol.route.TopicRouteData.topicRouteDataChanged, BrokerData.equals,
QueueData.equals.
"""

from __future__ import annotations

import msgspec

from clients.route.queues import java_order
from schemas.route import QueueData, TopicRouteData


class RouteChange(msgspec.Struct, frozen=True):
    """Change of a route, passed to callbacks. Without ``old``: the first route. Without ``new``: the topic is gone.

    A route that is gone stays in use (as in RocketMQ), so that a NameServer which has just been restarted does no harm.
    """

    topic: str
    old: TopicRouteData | None
    new: TopicRouteData | None


def topic_route_data_changed(old: TopicRouteData | None, new: TopicRouteData) -> bool:
    """Return True if clients have to notice the change.

    The order of rows and groups is of no importance, nor are a group's cluster, zone and acting-master flag.
    """
    return old is None or _compared(old) != _compared(new)


def _compared(route: TopicRouteData) -> tuple[object, ...]:
    groups = [(data.broker_name, data.broker_addrs) for data in route.broker_datas]
    return (
        sorted(groups, key=lambda group: java_order(group[0])),
        sorted(route.queue_datas, key=_row_order),
        route.order_topic_conf,
        route.filter_server_table,
        route.topic_queue_mapping_by_broker,
    )


def _row_order(row: QueueData) -> bytes:
    return java_order(row.broker_name)
