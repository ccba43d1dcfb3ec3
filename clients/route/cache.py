# SPDX-License-Identifier: Apache-2.0
"""Cache of routes and of the data derived from them. It takes answers and calls listeners after changes. No I/O.

Each topic has the tag of the last answer. With the tag, the next NameServer can answer "unchanged", or wait for a
change. A topic's publish info and subscribe info are kept only after their first use, and updated with the route.

Sources (5.5.0): MQClientInstance.updateTopicRouteInfoFromNameServer, isNeedUpdateTopicRouteInfo;
TopicRouteData.topicRouteDataChanged, BrokerData.equals, QueueData.equals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import structlog

from clients.route.brokers import without_offline
from clients.route.queues import (
    MessageQueue,
    TopicPublishInfo,
    clamped,
    java_order,
    static_topic_end_points,
    topic_publish_info,
    topic_subscribe_info,
)
from clients.route.transport import RouteAnswer
from schemas.route import QueueData, TopicRouteData


class RouteChange(msgspec.Struct, frozen=True):
    """Change of a route, for listeners. Without ``old`` it is the first route. Without ``new`` the topic was removed.

    As in RocketMQ, a removed route stays in use, so that a NameServer that has just been restarted does no harm.
    """

    topic: str
    old: TopicRouteData | None
    new: TopicRouteData | None


class Applied(NamedTuple):
    """Effect of an answer. ``changed``: tables were updated, as in RocketMQ. ``change``: the change for listeners."""

    changed: bool
    change: RouteChange | None


log = structlog.get_logger("routelake.route")

Listener = Callable[[RouteChange], None]

_NOTHING: Final = Applied(changed=False, change=None)


class RouteCache:
    """Routes by topic, and the data derived from them. Topic names have their namespace here.

    Attributes:
        routes: Routes by topic (topicRouteTable).
        brokers: Addresses by brokerName and brokerId (brokerAddrTable).
        missing: Topics with a route here that the NameServer does not know. The NameServer has removed the topic, or
            the route is that of the default topic.
        heard: Topics for which a NameServer has sent an answer.
    """

    def __init__(self, default_topic_queue_nums: int) -> None:
        """Create an empty cache.

        Args:
            default_topic_queue_nums: Number of queues per broker for a topic that does not exist yet.
        """
        self.routes: dict[str, TopicRouteData] = {}
        self.brokers: dict[str, dict[int, str]] = {}
        self.missing: set[str] = set()
        self.heard: set[str] = set()
        self._default_topic_queue_nums = default_topic_queue_nums
        self._publish: dict[str, TopicPublishInfo] = {}
        self._subscribe: dict[str, frozenset[MessageQueue] | None] = {}
        self._end_points: dict[str, dict[MessageQueue, str]] = {}
        self._tags: dict[str, str] = {}
        self._listeners: list[tuple[str | None, Listener]] = []

    # --- data derived from the routes ---

    def publish_info(self, topic: str) -> TopicPublishInfo:
        """Return the queues to write to, kept from the first request on. Without a route, the info is empty.

        Raises:
            OrderConfError: The route's order configuration cannot be read.
        """
        if topic not in self._publish:
            route = self.current(topic)
            self._publish[topic] = TopicPublishInfo() if route is None else topic_publish_info(topic, route)
        return self._publish[topic]

    def subscribe_info(self, topic: str) -> frozenset[MessageQueue] | None:
        """Return the queues to read from, kept from the first request on, or None without a route."""
        if topic not in self._subscribe:
            route = self.current(topic)
            self._subscribe[topic] = None if route is None else topic_subscribe_info(topic, route)
        return self._subscribe[topic]

    def broker_name(self, queue: MessageQueue) -> str | None:
        """Return the brokerName of a queue (getBrokerNameFromMessageQueue). None: a static topic lacks the queue."""
        end_points = self._end_points.get(queue.topic)
        return end_points.get(queue) if end_points else queue.broker_name

    def needs_update(self, topic: str) -> bool:
        """Return True if requested data of the topic's route is still missing (isNeedUpdateTopicRouteInfo)."""
        publish = self._publish.get(topic)
        lacks_publish = publish is not None and not publish.ok
        return lacks_publish or (topic in self._subscribe and self._subscribe[topic] is None)

    def current(self, topic: str) -> TopicRouteData | None:
        """Return the route that the NameServer has now, or None."""
        return None if topic in self.missing else self.routes.get(topic)

    def tag(self, topic: str) -> str | None:
        """Return the tag of the last answer for a topic."""
        return self._tags.get(topic)

    # --- answers ---

    def take(self, topic: str, answer: RouteAnswer | None) -> Applied:
        """Apply a NameServer's answer for a topic. None means that the tag is still valid.

        Raises:
            OrderConfError: Publish info is kept for the topic, and its order configuration cannot be read. Nothing was
                changed.
        """
        self.heard.add(topic)
        if answer is None:
            known = self.current(topic)
            if known is None or not self.needs_update(topic):
                return _NOTHING
            answer = RouteAnswer(known, self._tags.get(topic))
        applied = self._gone(topic) if answer.route is None else self._apply(topic, answer.route)
        self._tags.pop(topic, None)
        if answer.tag is not None:
            self._tags[topic] = answer.tag
        self._notify(applied.change)
        return applied

    def take_default(self, topic: str, answer: RouteAnswer | None) -> Applied:
        """Apply the default topic's route, with a limited number of queues, to a topic that does not exist yet.

        The topic keeps the tag of its absence. With this tag, a NameServer can report the creation of the topic.

        Raises:
            OrderConfError: See `take`.
        """
        if answer is None or answer.route is None:
            return _NOTHING
        applied = self._apply(topic, clamped(answer.route, self._default_topic_queue_nums), is_default=True)
        self._notify(applied.change)
        return applied

    def forget(self, topic: str) -> None:
        """Drop all data of a topic."""
        for known in (self.routes, self._publish, self._subscribe, self._end_points, self._tags):
            known.pop(topic, None)
        self.missing.discard(topic)
        self.heard.discard(topic)

    def clean_offline_brokers(self) -> None:
        """Drop addresses that are in no route any more (cleanOfflineBroker)."""
        self.brokers = without_offline(self.brokers, self.routes.values())

    def _apply(self, topic: str, route: TopicRouteData, *, is_default: bool = False) -> Applied:
        """Apply a route. ``is_default``: the route is that of the default topic. Raises OrderConfError."""
        old = self.routes.get(topic)
        is_new = topic_route_data_changed(old, route)
        renews = is_new or self.needs_update(topic)
        publish = topic_publish_info(topic, route) if renews and topic in self._publish else None
        is_back = topic in self.missing and not is_default
        news = RouteChange(topic, old, route) if is_new or is_back else None
        (self.missing.add if is_default else self.missing.discard)(topic)
        if not renews:
            return Applied(changed=False, change=news)
        if publish is not None:
            self._publish[topic] = publish
        if topic in self._subscribe:
            self._subscribe[topic] = topic_subscribe_info(topic, route)
        for group in route.broker_datas:
            self.brokers[group.broker_name] = dict(group.broker_addrs)
        self._end_points[topic] = static_topic_end_points(topic, route)
        self.routes[topic] = route
        return Applied(changed=True, change=news)

    def _gone(self, topic: str) -> Applied:
        """Note that the NameServer does not know the topic. The known route stays. The first time is a change."""
        if topic not in self.routes or topic in self.missing:
            return _NOTHING
        self.missing.add(topic)
        return Applied(changed=False, change=RouteChange(topic, self.routes[topic], None))

    # --- listeners ---

    def listen(self, listener: Listener, topic: str | None) -> Callable[[], None]:
        """Call a function after every change, or after those of one topic. Returns a function that ends this."""
        entry = (topic, listener)
        self._listeners.append(entry)

        def end() -> None:
            self._listeners[:] = [known for known in self._listeners if known is not entry]

        return end

    def _notify(self, change: RouteChange | None) -> None:
        if change is None:
            return
        for topic, listener in list(self._listeners):
            if topic in (None, change.topic):
                try:
                    listener(change)
                except Exception:
                    log.exception("route change callback failed", topic=change.topic)


def topic_route_data_changed(old: TopicRouteData | None, new: TopicRouteData) -> bool:
    """Return True if clients have to notice the change.

    The order of rows and groups does not count, and neither do a group's cluster, zone and acting-master flag.
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
