# SPDX-License-Identifier: Apache-2.0
"""Caller: chooses queues for one sender, and learns from how its sends went.

Source (5.5.0): DefaultMQProducerImpl.sendDefaultImpl, updateFaultItem, MQFaultStrategy.

Choosing a queue: round robin with an index of each caller's own, avoiding a broker if there is another. Pure.

Sources (5.5.0): TopicPublishInfo.selectOneMessageQueue, org.apache.rocketmq.client.common.ThreadLocalIndex,
org.apache.rocketmq.client.latency.MQFaultStrategy.selectOneMessageQueue.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

from clients.route.errors import NoRouteError
from clients.route.latency import FaultTable
from clients.route.queues import MessageQueue, TopicPublishInfo

QueueFilter = Callable[[MessageQueue], bool]

_POSITIVE_MASK: Final = 0x7FFF_FFFF


class SendWhichQueue:
    """One caller's place in the round robin of one topic (ThreadLocalIndex). Callers start at random places."""

    def __init__(self, choice: random.Random) -> None:
        """Nothing is drawn before the first use."""
        self._choice = choice
        self._index: int | None = None

    def increment_and_get(self) -> int:
        """The next number, 0 to 2^31-1."""
        index = self._choice.getrandbits(32) if self._index is None else self._index
        self._index = index + 1
        return self._index & _POSITIVE_MASK

    def reset(self) -> None:
        """Go on at a random place: what a caller does before it sends again."""
        self._index = self._choice.getrandbits(31)


def select_one_message_queue(
    info: TopicPublishInfo, which: SendWhichQueue, *filters: QueueFilter
) -> MessageQueue | None:
    """The next queue that passes every filter, after one round at most; None if none does."""
    queues = info.message_queue_list
    for _ in range(len(queues) if filters else min(1, len(queues))):
        queue = queues[which.increment_and_get() % len(queues)]
        if all(passes(queue) for passes in filters):
            return queue
    return None


def choose_message_queue(
    info: TopicPublishInfo,
    which: SendWhichQueue,
    *,
    last_broker_name: str | None = None,
    reset_index: bool = False,
    faults: FaultTable | None = None,
    now_ms: int = 0,
) -> MessageQueue | None:
    """The queue for a send (MQFaultStrategy.selectOneMessageQueue); None only if there is no queue at all.

    Args:
        info: Where the topic can be written.
        which: The caller's place.
        last_broker_name: The broker that the send before failed on: avoided if there is another.
        reset_index: This is a further attempt. Looked at only together with `faults`, as in RocketMQ.
        faults: With them an available broker is preferred, then one within reach (sendLatencyFaultEnable).
        now_ms: The time, on the clock that the faults were recorded by.
    """

    def another_broker(queue: MessageQueue) -> bool:
        return queue.broker_name != last_broker_name

    def available(queue: MessageQueue) -> bool:
        return faults is None or faults.is_available(queue.broker_name, now_ms)

    def reachable(queue: MessageQueue) -> bool:
        return faults is None or faults.is_reachable(queue.broker_name)

    if faults is None:
        found = select_one_message_queue(info, which, another_broker)
    else:
        if reset_index:
            which.reset()
        found = select_one_message_queue(info, which, available, another_broker) or select_one_message_queue(
            info, which, reachable, another_broker
        )
    return found or select_one_message_queue(info, which)


class Caller:
    """One sender's round robin over the queues of each of its topics. Made by `RouteClient.caller`."""

    def __init__(
        self,
        find: Callable[[str], Awaitable[TopicPublishInfo]],
        choice: random.Random,
        faults: FaultTable | None,
    ) -> None:
        """Starts at a random place in every topic.

        Args:
            find: `RouteClient.try_to_find_topic_publish_info`.
            choice: Where it takes chance from.
            faults: How sends to brokers went, all callers' together; None without ``send_latency_enable``.
        """
        self._find = find
        self._choice = choice
        self._faults = faults
        self._which: dict[str, SendWhichQueue] = {}

    async def select(self, topic: str, *, last_broker_name: str | None = None) -> MessageQueue:
        """The queue for the next message.

        Args:
            topic: Of the message.
            last_broker_name: For a further attempt: the broker that the one before failed on.

        Raises:
            NoRouteError: No queue of the topic can be written.
            ClientError: No NameServer answered.
        """
        info = await self._find(topic)
        which = self._which.setdefault(topic, SendWhichQueue(self._choice))
        queue = choose_message_queue(
            info,
            which,
            last_broker_name=last_broker_name,
            reset_index=last_broker_name is not None,
            faults=self._faults,
            now_ms=_now_ms(),
        )
        if queue is None:
            raise NoRouteError(topic, f"no route info of this topic: {topic}")
        return queue

    def sent(self, queue: MessageQueue, latency_ms: int, *, isolation: bool = False, reachable: bool = True) -> None:
        """Tell how a send went, so that slow and failing brokers are avoided for a while.

        Does nothing unless ``send_latency_enable``.

        Args:
            queue: Where it went.
            latency_ms: How long it took.
            isolation: It failed on the way or was refused by the broker.
            reachable: False keeps the broker out until the detector finds it again. RocketMQ says so after a refusal,
                and after a failure on the way while ``start_detector_enable``.
        """
        if self._faults is not None:
            self._faults.update_fault_item(
                queue.broker_name, latency_ms, isolation=isolation, reachable=reachable, now_ms=_now_ms()
            )


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
