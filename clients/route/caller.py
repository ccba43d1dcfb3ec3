# SPDX-License-Identifier: Apache-2.0
"""Caller: chooses queues for one sender, and learns from how its sends went.

Source (5.5.0): DefaultMQProducerImpl.sendDefaultImpl, updateFaultItem, MQFaultStrategy.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from clients.route.errors import NoRouteError
from clients.route.latency import FaultTable
from clients.route.queues import MessageQueue, TopicPublishInfo
from clients.route.selection import SendWhichQueue, choose_message_queue


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
