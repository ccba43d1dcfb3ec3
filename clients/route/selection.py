# SPDX-License-Identifier: Apache-2.0
"""Choosing a queue: round robin with an index of each caller's own, avoiding a broker if there is another. Pure.

Sources (5.5.0): TopicPublishInfo.selectOneMessageQueue, org.apache.rocketmq.client.common.ThreadLocalIndex,
org.apache.rocketmq.client.latency.MQFaultStrategy.selectOneMessageQueue.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

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
