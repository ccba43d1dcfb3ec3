# SPDX-License-Identifier: Apache-2.0
"""Caller: choice of queues for one sender, which uses the results of its sends.

Source (5.5.0): DefaultMQProducerImpl.sendDefaultImpl, updateFaultItem, MQFaultStrategy.

Queues are chosen by round robin, with a separate index for each caller. A broker can be avoided if there is another.
The choice is pure.

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
    """One caller's position in the round robin of one topic (ThreadLocalIndex). Callers start at random positions."""

    def __init__(self, choice: random.Random) -> None:
        """Create an index. The first use chooses its start."""
        self._choice = choice
        self._index: int | None = None

    def increment_and_get(self) -> int:
        """Return the next number, from 0 to 2^31-1."""
        index = self._choice.getrandbits(32) if self._index is None else self._index
        self._index = index + 1
        return self._index & _POSITIVE_MASK

    def reset(self) -> None:
        """Continue at a random position, as a caller does before a further attempt."""
        self._index = self._choice.getrandbits(31)


def select_one_message_queue(
    info: TopicPublishInfo, which: SendWhichQueue, *filters: QueueFilter
) -> MessageQueue | None:
    """Return the next queue that passes every filter, within one round, or None."""
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
    """Return the queue for a send (MQFaultStrategy.selectOneMessageQueue), or None if there is no queue at all.

    Args:
        info: Queues to which the topic can be written.
        which: Position of the caller.
        last_broker_name: Broker of the last failed attempt. It is avoided if there is another broker.
        reset_index: Whether this is a further attempt. As in RocketMQ, used only together with `faults`.
        faults: Results of sends. If set, an available broker is preferred, then a reachable one
            (sendLatencyFaultEnable).
        now_ms: Current time in milliseconds, on the clock of the faults.
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
    """Round robin of one sender over the queues of each topic. `RouteClient.caller` creates it."""

    def __init__(
        self,
        find: Callable[[str], Awaitable[TopicPublishInfo]],
        choice: random.Random,
        faults: FaultTable | None,
    ) -> None:
        """Create a caller that starts at a random position in every topic.

        Args:
            find: `RouteClient.try_to_find_topic_publish_info`.
            choice: Source of randomness.
            faults: Results of the sends of all callers, or None without ``send_latency_enable``.
        """
        self._find = find
        self._choice = choice
        self._faults = faults
        self._which: dict[str, SendWhichQueue] = {}

    async def select(self, topic: str, *, last_broker_name: str | None = None) -> MessageQueue:
        """Return the queue for the next message.

        Args:
            topic: Topic of the message.
            last_broker_name: Broker of the last failed attempt, if this is a further attempt.

        Raises:
            NoRouteError: No queue of the topic is writable.
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
        """Report the result of a send, so that slow and failing brokers are avoided for some time.

        Without ``send_latency_enable`` this does nothing.

        Args:
            queue: Queue of the send.
            latency_ms: Duration of the send, in milliseconds.
            isolation: Whether the connection failed or the broker refused the message.
            reachable: Whether the broker is reachable. False excludes it until the detector reaches it again. RocketMQ
                reports False after a refusal, and with ``start_detector_enable`` after a failed connection.
        """
        if self._faults is not None:
            self._faults.update_fault_item(
                queue.broker_name, latency_ms, isolation=isolation, reachable=reachable, now_ms=_now_ms()
            )


def _now_ms() -> int:
    return round(asyncio.get_running_loop().time() * 1000)
