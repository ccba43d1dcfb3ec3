# SPDX-License-Identifier: Apache-2.0
"""The topics of one broker while it runs: the rules of `topics` under a lock, kept in a file, told to the NameServers.

Each change goes the same way::

    lock (3 s for a creation while sending) -> change the table -> write topics.json -> unlock -> register -> answer

so that two senders to the same unknown topic create it once, and whoever is answered finds it at the NameServers that
could be reached. Who holds the registration lock may take the table's, never the other way round.

Sources (5.5.0): org.apache.rocketmq.broker.topic.TopicConfigManager, AbstractSendMessageProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import structlog

from clients.broker.config import BrokerConfig
from clients.broker.persistence import TopicFile
from clients.broker.sending import SendRequest, check_name, check_queue
from clients.broker.topic_config import TopicConfig
from clients.broker.topics import Creation, TopicConfigManager
from schemas.broker import DataVersion
from schemas.topic_names import RETRY_GROUP_TOPIC_PREFIX

log = structlog.get_logger("routelake.broker")

LOCK_TIMEOUT_S: Final = 3.0
"""How long a creation waits for the table (TopicConfigManager.LOCK_TIMEOUT_MILLIS)."""


class BrokerTopics:
    """Changes the topics of one broker.

    Attributes:
        topics: Read them at will; change them through the methods here.
        lock: Held while they change.
    """

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Callable[[], int],
        register_changed: Callable[[Sequence[TopicConfig], DataVersion], Awaitable[object]],
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        """With the built-in topics.

        Args:
            config: Of the broker; without `store_path_root_dir` topics are in memory only.
            now_ms: Milliseconds since the epoch, for versions.
            register_changed: Told the topics that were created or changed, and the version after it.
            lock_timeout_s: See LOCK_TIMEOUT_S.
        """
        self.topics = TopicConfigManager(config, now_ms())
        self.lock = asyncio.Lock()
        self._config = config
        self._now_ms = now_ms
        self._register_changed = register_changed
        self._lock_timeout_s = lock_timeout_s
        self._file = TopicFile(config.topics_file) if config.store_path_root_dir else None

    async def load(self) -> None:
        """Take over what topics.json holds.

        Raises:
            SetupError: It cannot be read.
        """
        if self._file is None:
            return
        loaded = await asyncio.to_thread(self._file.load)
        if loaded.warning:
            log.warning("topics.json is damaged", problem=loaded.warning)
        if loaded.table is not None:
            self.topics.load(loaded.table)
        if loaded.table is None or loaded.warning:
            await self._persist()

    async def for_send(self, request: SendRequest, producer: str) -> TopicConfig:
        """The topic that a message goes to, created if need be (msgCheck).

        Raises:
            RefusedError: The message may not be sent.
        """
        check_name(self._config, self.topics, request.topic)
        found = self.topics.table.get(request.topic)
        if found is None:
            found = await self._create(
                request.topic,
                lambda now_ms: self.topics.create_topic_in_send_message(
                    request.topic,
                    request.default_topic,
                    request.default_topic_queue_nums,
                    request.topic_sys_flag,
                    now_ms,
                ),
            )
        if found is None and request.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            found = await self.needed(request.topic, 1, topic_sys_flag=request.topic_sys_flag)
        return check_queue(request, found, producer)

    async def needed(
        self, topic: str, queue_nums: int, *, is_order: bool = False, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """A topic of the broker's own: %RETRY%group, %DLQ%group, half messages; None if the table stays locked."""
        found = self.topics.table.get(topic)
        if found is not None and found.order == is_order:
            return found
        return await self._create(
            topic,
            lambda now_ms: self.topics.create_topic_in_send_message_back(
                topic, queue_nums, now_ms, is_order=is_order, topic_sys_flag=topic_sys_flag
            ),
        )

    async def update(self, edited: Sequence[TopicConfig]) -> None:
        """Create or replace topics.

        Raises:
            BadRequestError: Attribute edits that do not apply.
        """
        async with self.lock:
            changed = self.topics.update_topic_configs(edited, self._now_ms())
            version = self.topics.data_version
            await self._persist()
        await self._register_changed(changed, version)

    async def mark_ordered(self, order_topics: Iterable[str]) -> None:
        """Mark those that a NameServer's ORDER_TOPIC_CONFIG names. They are registered with the next round."""
        async with self.lock:
            if self.topics.update_order_topics(order_topics, self._now_ms()):
                await self._persist()

    async def delete(self, topic: str) -> None:
        """Forget a topic. NameServers are not told, as in RocketMQ."""
        async with self.lock:
            if not self.topics.delete_topic(topic, self._now_ms()):
                return
            await self._persist()
        log.info("topic deleted", topic=topic)

    async def _create(self, topic: str, create: Callable[[int], Creation]) -> TopicConfig | None:
        """Create under the lock; None when it refuses, or the lock cannot be had in time."""
        try:
            async with asyncio.timeout(self._lock_timeout_s):
                await self.lock.acquire()
        except TimeoutError:
            log.warning("topic not created: the topic table stayed locked", topic=topic, seconds=self._lock_timeout_s)
            return None
        try:
            creation = create(self._now_ms())
            version = self.topics.data_version
            if creation.changed:
                await self._persist()
        finally:
            self.lock.release()
        if creation.config is None:
            log.warning("topic not created", topic=topic, reason=creation.refusal)
        elif creation.created:
            log.info("topic created", topic=topic, queues=creation.config.write_queue_nums)
            await self._register_changed([creation.config], version)
        return creation.config

    async def _persist(self) -> None:
        """Write topics.json, under the lock.

        A failure is logged, as in RocketMQ: the next change writes everything again.
        """
        if self._file is None:
            return
        try:
            await asyncio.to_thread(self._file.persist, self.topics.snapshot())
        except OSError as error:
            log.error("cannot write topics.json", file=str(self._file.path), error=str(error))
