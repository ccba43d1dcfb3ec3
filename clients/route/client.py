# SPDX-License-Identifier: Apache-2.0
"""RouteClient: routes of topics, kept up to date, on asyncio.

The first question about a topic fetches its route; from then on the topic is followed. Over remoting, following means
asking again every 30 s, as RocketMQ's client does. Over HTTP it is a long poll, so a change arrives at once.

Sources (5.5.0): MQClientInstance, DefaultMQProducerImpl.tryToFindTopicPublishInfo,
MQAdminImpl.fetchPublishMessageQueues, fetchSubscribeMessageQueues; of namespaces (``MQ_INST_1%orders``,
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
"""How long an update waits for another one of the same topic (MQClientInstance.LOCK_TIMEOUT_MILLIS)."""

_SEPARATOR: Final = "%"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
_INSTANCE_ENDPOINT = re.compile(r"(?:\w+://)?MQ_INST_\w+_\w+\..*", re.ASCII)


class RouteClient:
    """Use it as ``async with RouteClient("10.0.0.1:9876;10.0.0.2:9876") as client``. Lives on one event loop.

    Attributes:
        settings: What it was made with.
        namespace: What is put before every topic.
        faults: How sends to brokers went; used when ``send_latency_enable``.
        choice: Where it takes chance from.
    """

    def __init__(
        self,
        namesrv_addr: str | Sequence[str],
        settings: RouteSettings | None = None,
        *,
        choice: random.Random | None = None,
    ) -> None:
        """Asks nobody yet.

        Args:
            namesrv_addr: NameServers: ``host:9876`` over remoting, ``http://host:8080`` over HTTP; separated by ``;``.
            settings: See `RouteSettings`.
            choice: Makes the client predictable in tests.

        Raises:
            SetupError: An address that cannot be one.
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
        """This client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `close`."""
        await self.close()

    async def close(self) -> None:
        """Follow nothing any more, close every connection."""
        await self._followers.close()
        await self._fetcher.close()

    # --- routes ---

    async def route(self, topic: str) -> TopicRouteData:
        """The topic's route: the one in the cache, else the NameServer's (queryTopicRouteData).

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
        """The topic's route as last heard of, without asking anybody."""
        return self._cache.routes.get(self.with_namespace(topic))

    def forget(self, topic: str) -> None:
        """Drop everything known of a topic and follow it no more."""
        name = self.with_namespace(topic)
        self._followers.forget(name)
        self._cache.forget(name)
        self._locks.pop(name, None)

    async def update(self, topic: str, *, is_default: bool = False) -> bool:
        """Ask for the topic's route now, and follow it (updateTopicRouteInfoFromNameServer).

        Args:
            topic: Which.
            is_default: Take the default topic's route (TBW102) for it, with at most ``default_topic_queue_nums``
                queues a broker: what a producer does for a topic that does not exist yet.

        Returns:
            Whether anything was renewed. False as well when the NameServer does not know the topic: what is known
            stays.

        Raises:
            ClientError: No NameServer answered, or none with more than an error.
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
        """Find the queues to write to; for a topic that does not exist, those where it can be created.

        What is known is used as it is. Else the NameServer is asked for the topic, and if it has no route of it, for
        the default topic TBW102.

        Returns:
            Possibly without a queue: the route has none that can be written, or there is no route (then
            ``have_topic_router_info`` is False).

        Raises:
            ClientError: No NameServer answered.
            OrderConfError: The order configuration cannot be read.
        """
        name = self.with_namespace(topic)
        info = self._cache.publish_info(name)
        if not info.ok:
            with contextlib.suppress(AnswerError):  # as RocketMQ does; it will be raised below if it persists
                await self.update(topic)
            info = self._cache.publish_info(name)
        if info.have_topic_router_info or info.ok:
            return info
        await self.update(topic, is_default=True)
        return self._cache.publish_info(name)

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to write to, without namespace (fetchPublishMessageQueues).

        Raises:
            NoRouteError: The topic has no queue to write to.
            ClientError: No NameServer answered.
        """
        info = await self.try_to_find_topic_publish_info(topic)
        if not info.ok:
            raise NoRouteError(topic, f"no route info of this topic: {topic}")
        return [self._without_namespace(queue) for queue in info.message_queue_list]

    async def subscribe_queues(self, topic: str) -> frozenset[MessageQueue]:
        """The queues to read from, without namespace (fetchSubscribeMessageQueues).

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
        """A sender with a round robin of its own. Make one for each task that sends."""
        faults = self.faults if self.settings.send_latency_enable else None
        return Caller(self.try_to_find_topic_publish_info, self.choice, faults)

    # --- brokers ---

    async def publish_address(self, queue: MessageQueue) -> str:
        """Find the address for messages to a queue: the master, on its VIP channel if that is enabled.

        Raises:
            NoRouteError: The queue's broker has no master at hand.
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
        """Find the address to read a queue from: the member asked for, or another one (findBrokerAddressInSubscribe).

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
        """All brokers of all routes, for the functions of `clients.route.brokers`."""
        return self._cache.brokers

    # --- news ---

    def listen(self, listener: Listener, topic: str | None = None) -> Callable[[], None]:
        """Call a function with every change from now on, on the event loop.

        Args:
            listener: Must not block. What it raises is logged.
            topic: Only this one's.

        Returns:
            Ends it.
        """
        return self._cache.listen(listener, None if topic is None else self.with_namespace(topic))

    async def watch(self, topic: str) -> AsyncIterator[RouteChange]:
        """The topic's route now, and again with every change; ``new`` is None while the topic does not exist.

        Raises:
            ClientError: No NameServer answered at first. Later outages are waited out.
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
        """The NameServer that is asked at present; None before the first answer."""
        return self._fetcher.chosen

    async def update_name_servers(self, namesrv_addr: str | Sequence[str]) -> None:
        """Use another list of NameServers.

        Raises:
            SetupError: An address that cannot be one.
        """
        await self._fetcher.update(namesrv_addresses(namesrv_addr, "namesrv_addr", http=True))

    def with_namespace(self, topic: str) -> str:
        """The topic as NameServers know it."""
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
    """A topic or group of RocketMQ's own: it never carries a namespace."""
    return resource in SYSTEM_TOPICS or resource.startswith((SYSTEM_TOPIC_PREFIX, _SYSTEM_GROUP_PREFIX))


def wrap_namespace(namespace: str, resource: str) -> str:
    """Put the namespace in front, behind a %RETRY% or %DLQ%; a second time changes nothing."""
    if not namespace or not resource or is_system_resource(resource) or is_already_with_namespace(resource, namespace):
        return resource
    prefix, rest = _retry_or_dlq(resource)
    return f"{prefix}{namespace}{_SEPARATOR}{rest}"


def without_namespace(resource: str, namespace: str | None = None) -> str:
    """Take the namespace away: any, or only the one named. An empty one takes nothing."""
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
    """The namespace that an address such as ``MQ_INST_1_abc.mq.example:9876`` stands for; None for other addresses."""
    if not _INSTANCE_ENDPOINT.fullmatch(endpoint):
        return None
    return endpoint[endpoint.rfind("/") + 1 : endpoint.index(".")]


def _retry_or_dlq(resource: str) -> tuple[str, str]:
    for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource
