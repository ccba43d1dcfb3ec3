# SPDX-License-Identifier: Apache-2.0
"""RouteClient: routes of topics, kept up to date, on asyncio.

The first request for a topic fetches its route. From then on the client follows the topic. Over remoting, the client
asks again every 30 s, as RocketMQ's client does. Over HTTP it uses a long poll, so a change arrives immediately.

Sources (5.5.0): MQClientInstance, DefaultMQProducerImpl.tryToFindTopicPublishInfo,
MQAdminImpl.fetchPublishMessageQueues, fetchSubscribeMessageQueues. Sources for namespaces (``MQ_INST_1%orders``,
``%RETRY%MQ_INST_1%group``): NamespaceUtil, NameServerAddressUtils, MixAll.isSysConsumerGroup.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Final, Self

import structlog

from clients.addresses import namesrv_addresses
from clients.route import brokers as find
from clients.route.cache import Listener, RouteCache, RouteChange
from clients.route.caller import Caller
from clients.route.errors import NoRouteError
from clients.route.fetcher import RouteFetcher
from clients.route.follow import Followers
from clients.route.latency import FaultTable
from clients.route.queues import MessageQueue, TopicPublishInfo
from clients.route.settings import RouteSettings
from remoting.errors import AnswerError
from schemas.route import TopicRouteData
from schemas.topic_names import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

log = structlog.get_logger("routelake.route")

LOCK_TIMEOUT_S: Final = 3.0
"""Maximum wait of an update for another one of the topic, in seconds (MQClientInstance.LOCK_TIMEOUT_MILLIS)."""

_SEPARATOR: Final = "%"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://)?MQ_INST_\w+_\w+\..*", re.ASCII)


class RouteClient:
    """Route client for one event loop: ``async with RouteClient("10.0.0.1:9876;10.0.0.2:9876") as client``.

    Attributes:
        settings: Settings of the client.
        namespace: Prefix of every topic.
        faults: Results of sends, used with ``send_latency_enable``.
        choice: Source of randomness.
    """

    def __init__(
        self,
        namesrv_addr: str | Sequence[str],
        settings: RouteSettings | None = None,
        *,
        choice: random.Random | None = None,
    ) -> None:
        """Create a client. It sends no request yet.

        Args:
            namesrv_addr: NameServers, separated by ``;``: ``host:9876`` for remoting, ``http://host:8080`` for HTTP.
            settings: See `RouteSettings`.
            choice: Source of randomness, for tests.

        Raises:
            SetupError: An address is not valid.
        """
        self.settings = settings or RouteSettings()
        self.choice = choice or random.Random()  # noqa: S311 (spreads load; no secret)
        addresses = namesrv_addresses(namesrv_addr, "namesrv_addr", http=True)
        self.namespace = self.settings.namespace
        if self.namespace is None:
            self.namespace = next(filter(None, map(instance_of_endpoint, addresses)), "")
        self.faults = FaultTable()
        self._cache = RouteCache(self.settings.default_topic_queue_nums)
        self._locks: dict[str, asyncio.Lock] = {}
        self._fetcher = RouteFetcher(addresses, self.settings, self.choice, self._now_s)
        self._followers = Followers(self._cache, self._fetcher, self.faults, self.settings, self.choice)

    async def __aenter__(self) -> Self:
        """Return this client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `close`."""
        await self.close()

    async def close(self) -> None:
        """Stop following topics, and close every connection."""
        await self._followers.close()
        await self._fetcher.close()

    # --- routes ---

    async def route(self, topic: str) -> TopicRouteData:
        """Return the topic's route from the cache, or else from the NameServer (queryTopicRouteData).

        Raises:
            NoRouteError: The NameServer does not know the topic.
            ClientError: No NameServer answered.
        """
        name = self.with_namespace(topic)
        if name not in self._cache.routes:
            await self.update(topic)
        found = self._cache.routes.get(name)
        if found is None:
            raise NoRouteError(topic, f"no route info of this topic: {name}")
        return found

    def cached_route(self, topic: str) -> TopicRouteData | None:
        """Return the topic's route from the cache, without a request."""
        return self._cache.routes.get(self.with_namespace(topic))

    def forget(self, topic: str) -> None:
        """Drop all data of a topic, and stop following it."""
        name = self.with_namespace(topic)
        self._followers.forget(name)
        self._cache.forget(name)
        self._locks.pop(name, None)

    async def update(self, topic: str, *, is_default: bool = False) -> bool:
        """Ask for the topic's route now, and follow the topic (updateTopicRouteInfoFromNameServer).

        Args:
            topic: Name of the topic.
            is_default: Whether to use the default topic's route (TBW102), with at most ``default_topic_queue_nums``
                queues for each broker. A producer does this for a topic that does not exist yet.

        Returns:
            Whether any data was updated. False also if the NameServer does not know the topic. Then known data stays.

        Raises:
            ClientError: No NameServer answered, or all answers were errors.
            OrderConfError: The order configuration cannot be read.
        """
        name = self.with_namespace(topic)
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with asyncio.timeout(LOCK_TIMEOUT_S):
                await lock.acquire()
        except TimeoutError:
            log.warning("route not updated: another update of this topic still runs", topic=name)
            return False
        try:
            if is_default:
                answer = await self._fetcher.fetch(AUTO_CREATE_TOPIC_KEY_TOPIC)
                return self._cache.take_default(name, answer).changed
            answer = await self._fetcher.fetch(name, tag=self._cache.tag(name))
            return self._cache.take(name, answer).changed
        finally:
            lock.release()
            self._followers.follow(name)

    # --- queues ---

    async def try_to_find_topic_publish_info(self, topic: str) -> TopicPublishInfo:
        """Find the queues to write to. For a topic that does not exist, find the queues where it can be created.

        Known queues are used as they are. Otherwise the NameServer is asked for the topic. If it has no route of the
        topic, it is asked for the default topic TBW102.

        Returns:
            The queues. The result has no queue if the route has no writable queue, or if there is no route. In the
            latter case ``have_topic_router_info`` is False.

        Raises:
            ClientError: No NameServer answered.
            OrderConfError: The order configuration cannot be read.
        """
        name = self.with_namespace(topic)
        info = self._cache.publish_info(name)
        if not info.ok:
            with contextlib.suppress(AnswerError):  # as in RocketMQ; a lasting error is raised below
                await self.update(topic)
            info = self._cache.publish_info(name)
        if info.have_topic_router_info or info.ok:
            return info
        await self.update(topic, is_default=True)
        return self._cache.publish_info(name)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues to write to, without namespace (fetchPublishMessageQueues).

        Raises:
            NoRouteError: The topic has no queue to write to.
            ClientError: No NameServer answered.
        """
        info = await self.try_to_find_topic_publish_info(topic)
        if not info.ok:
            raise NoRouteError(topic, f"no route info of this topic: {topic}")
        return [self._without_namespace(queue) for queue in info.message_queue_list]

    async def subscribe_queues(self, topic: str) -> frozenset[MessageQueue]:
        """Return the queues to read from, without namespace (fetchSubscribeMessageQueues).

        Raises:
            NoRouteError: The topic has no queue to write to.
            ClientError: No NameServer answered.
        """
        name = self.with_namespace(topic)
        if self._cache.subscribe_info(name) is None:
            await self.update(topic)
        found = self._cache.subscribe_info(name)
        if not found:
            raise NoRouteError(topic, f"no queue of {name} can be read, or no route info of this topic")
        return frozenset(map(self._without_namespace, found))

    def caller(self) -> Caller:
        """Create a caller with its own round robin. Each task that sends needs its own caller."""
        faults = self.faults if self.settings.send_latency_enable else None
        return Caller(self.try_to_find_topic_publish_info, self.choice, faults)

    # --- brokers ---

    async def publish_address(self, queue: MessageQueue) -> str:
        """Find the address for messages to a queue: the master, on its VIP channel if that is enabled.

        Raises:
            NoRouteError: The queue's broker has no master in the route.
            ClientError: No NameServer answered.
        """
        address = self._master_of(queue)
        if address is None:
            await self.try_to_find_topic_publish_info(queue.topic)
            address = self._master_of(queue)
        if address is None:
            raise NoRouteError(queue.topic, f"the broker {queue.broker_name} has no master at hand")
        return find.broker_vip_channel(address) if self.settings.vip_channel_enabled else address

    async def subscribe_address(
        self, queue: MessageQueue, broker_id: int = 0, *, only_this_broker: bool = False
    ) -> find.FindBrokerResult:
        """Find the address to read a queue from: this member's or another one's (findBrokerAddressInSubscribe).

        Raises:
            NoRouteError: The queue's broker has no such member.
            ClientError: No NameServer answered.
        """
        found = self._member_of(queue, broker_id, only_this_broker=only_this_broker)
        if found is None:
            await self.update(queue.topic)
            found = self._member_of(queue, broker_id, only_this_broker=only_this_broker)
        if found is None:
            raise NoRouteError(queue.topic, f"the broker {queue.broker_name} has no address to read from")
        return found

    @property
    def broker_table(self) -> find.BrokerTable:
        """Return all brokers of all routes, for the functions of `clients.route.brokers`."""
        return self._cache.brokers

    # --- changes ---

    def listen(self, listener: Listener, topic: str | None = None) -> Callable[[], None]:
        """Call a function after every change from now on, on the event loop.

        Args:
            listener: The function. It must not block. Its exceptions are logged.
            topic: Topic of the changes. None: all topics.

        Returns:
            A function that removes the listener.
        """
        return self._cache.listen(listener, None if topic is None else self.with_namespace(topic))

    async def watch(self, topic: str) -> AsyncIterator[RouteChange]:
        """Yield the topic's current route, then every change. While the topic does not exist, ``new`` is missing.

        Raises:
            ClientError: No NameServer answered at first. Later failures are retried.
        """
        changes: asyncio.Queue[RouteChange] = asyncio.Queue()
        end = self.listen(changes.put_nowait, topic)
        try:
            await self.update(topic)
            if changes.empty():
                name = self.with_namespace(topic)
                changes.put_nowait(RouteChange(name, None, self._cache.current(name)))
            while True:
                yield await changes.get()
        finally:
            end()

    # --- NameServers ---

    @property
    def name_server(self) -> str | None:
        """The NameServer that is asked at present, or None before the first answer."""
        return self._fetcher.chosen

    async def update_name_servers(self, namesrv_addr: str | Sequence[str]) -> None:
        """Use another list of NameServers.

        Raises:
            SetupError: An address is not valid.
        """
        await self._fetcher.update(namesrv_addresses(namesrv_addr, "namesrv_addr", http=True))

    def with_namespace(self, topic: str) -> str:
        """Return the topic's name at the NameServers, with the namespace."""
        return wrap_namespace(self.namespace or "", topic)

    def _without_namespace(self, queue: MessageQueue) -> MessageQueue:
        topic = without_namespace(queue.topic, self.namespace) if self.namespace else queue.topic
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def _held(self, queue: MessageQueue) -> str | None:
        return self._cache.broker_name(
            MessageQueue(self.with_namespace(queue.topic), queue.broker_name, queue.queue_id)
        )

    def _master_of(self, queue: MessageQueue) -> str | None:
        broker_name = self._held(queue)
        return None if broker_name is None else find.find_broker_address_in_publish(self._cache.brokers, broker_name)

    def _member_of(
        self, queue: MessageQueue, broker_id: int, *, only_this_broker: bool
    ) -> find.FindBrokerResult | None:
        broker_name = self._held(queue)
        if broker_name is None:
            return None
        return find.find_broker_address_in_subscribe(
            self._cache.brokers, broker_name, broker_id, only_this_broker=only_this_broker
        )

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def is_system_resource(resource: str) -> bool:
    """Return True for RocketMQ's own topics and groups, which never have a namespace."""
    return resource in SYSTEM_TOPICS or resource.startswith((SYSTEM_TOPIC_PREFIX, _SYSTEM_GROUP_PREFIX))


def wrap_namespace(namespace: str, resource: str) -> str:
    """Add the namespace as a prefix, or after %RETRY% or %DLQ%. A second call changes nothing."""
    if not namespace or not resource or is_system_resource(resource) or is_already_with_namespace(resource, namespace):
        return resource
    prefix, rest = _retry_or_dlq(resource)
    return f"{prefix}{namespace}{_SEPARATOR}{rest}"


def without_namespace(resource: str, namespace: str | None = None) -> str:
    """Remove any namespace, or only the given one. An empty namespace removes nothing."""
    if namespace is not None and not is_already_with_namespace(resource, namespace):
        return resource
    if is_system_resource(resource):
        return resource
    prefix, rest = _retry_or_dlq(resource)
    index = rest.find(_SEPARATOR)
    return prefix + rest[index + 1 :] if index > 0 else resource


def is_already_with_namespace(resource: str, namespace: str) -> bool:
    """Return True if the resource begins with this namespace."""
    if not namespace or not resource or is_system_resource(resource):
        return False
    return _retry_or_dlq(resource)[1].startswith(namespace + _SEPARATOR)


def instance_of_endpoint(endpoint: str) -> str | None:
    """Return the namespace in an address such as ``MQ_INST_1_abc.mq.example:9876``, or None."""
    if not _INSTANCE_ENDPOINT.fullmatch(endpoint):
        return None
    return endpoint[endpoint.rfind("/") + 1 : endpoint.index(".")]


def _retry_or_dlq(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource
