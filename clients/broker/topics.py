# SPDX-License-Identifier: Apache-2.0
"""The topics of one broker: the built-in topics, and the rules for creation, change and deletion. No I/O, no clock.

Every change advances the DataVersion. `TopicConfigManager` returns the changed topics, and the caller stores and
registers them. A send to an unknown topic creates it by these rules::

    topic known? ── yes ──► that one
         │ no
    default topic known? ── no ──► nothing
         │ yes
    is it TBW102, with autoCreateTopicEnable off? ── yes ──► TBW102 loses its inherit bit for good
         │
    does it have the inherit bit? ── no ──► nothing
         │ yes
    queues = min(the client's, the default topic's write queues), at least 0; perm = the default's without inherit

RocketMQ does all of this under a lock. Here the caller holds the lock (`clients.broker.broker_topics`).

Source (5.5.0): org.apache.rocketmq.broker.topic.TopicConfigManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from clients.broker import attributes
from clients.broker.config import BrokerConfig
from clients.broker.topic_config import READ_WRITE, TopicConfig, TopicTable, next_version
from schemas import topic_names
from schemas.broker import PERM_INHERIT, DataVersion

SCHEDULE_TOPIC_QUEUE_NUM: Final = 18
BENCHMARK_TOPIC_QUEUE_NUM: Final = 1024
RETRY_QUEUE_NUMS: Final = 1
"""Default number of queues in a retry topic (SubscriptionGroupConfig.retryQueueNums)."""

FLAG_UNIT: Final = 1
FLAG_UNIT_SUB: Final = 2


class Creation(NamedTuple):
    """Result of a request to create a topic.

    Attributes:
        config: The topic, or None if it was refused.
        changed: Whether the table changed and must be stored.
        created: Whether the topic is new and must be registered.
        refusal: Reason of the refusal, for the log.
    """

    config: TopicConfig | None
    changed: bool = False
    created: bool = False
    refusal: str = ""


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that every broker has (TopicConfigManager.init), in RocketMQ's order."""
    cluster, name = config.broker_cluster_name, config.broker_name
    inherit = PERM_INHERIT | READ_WRITE
    topics = [_topic(topic_names.RMQ_SYS_SELF_TEST_TOPIC, 1)]
    if config.auto_create_topic_enable:
        topics.append(_topic(topic_names.AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, inherit))
    topics += [
        _topic(topic_names.RMQ_SYS_BENCHMARK_TOPIC, BENCHMARK_TOPIC_QUEUE_NUM),
        _topic(cluster, 16, inherit if config.cluster_topic_enable else PERM_INHERIT),
        _topic(name, 1, inherit if config.broker_topic_enable else PERM_INHERIT),
        _topic(topic_names.RMQ_SYS_OFFSET_MOVED_EVENT, 1),
        _topic(topic_names.RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUM),
    ]
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name, 1))
    topics += [
        _topic(f"{cluster}_REPLY_TOPIC", 1),
        _topic(f"rmq_sys_REVIVE_LOG_{cluster}", config.revive_queue_num),
        _topic(topic_names.SYNC_BROKER_MEMBER_GROUP_PREFIX + name, 1, PERM_INHERIT),
        _topic(topic_names.RMQ_SYS_TRANS_HALF_TOPIC, 1),
        _topic(topic_names.RMQ_SYS_TRANS_OP_HALF_TOPIC, 1),
        _topic(topic_names.RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC, 1),
        _topic(topic_names.RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC, 1),
    ]
    if config.timer_wheel_enable:
        topics.append(_topic("rmq_sys_wheel_timer", 1))
    return topics


def _topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


class TopicConfigManager:
    """The topic table of one broker and its version.

    Attributes:
        table: Topics by name. Entries are replaced, never changed in place.
        data_version: Version that advances with every change.
        system_topics: RocketMQ's system topics and this broker's built-in topics.
    """

    def __init__(self, config: BrokerConfig, now_ms: int) -> None:
        """Start with the built-in topics."""
        self._config = config
        built_in = built_in_topics(config)
        self.table: dict[str, TopicConfig] = {topic.topic_name: topic for topic in built_in}
        self.data_version = DataVersion(0, now_ms, 0)
        self.system_topics = topic_names.SYSTEM_TOPICS.union(self.table)

    def load(self, stored: TopicTable) -> None:
        """Load the content of topics.json. Its entries replace built-in topics, and its version the new version."""
        self.table.update(stored.topic_config_table)
        self.data_version = stored.data_version

    def snapshot(self) -> TopicTable:
        """Return a copy of the current table with its version."""
        return TopicTable(self.data_version, dict(self.table))

    def is_system_topic(self, topic: str) -> bool:
        """TopicValidator.isSystemTopic."""
        return topic in self.system_topics or topic.startswith(topic_names.SYSTEM_TOPIC_PREFIX)

    def is_order_topic(self, topic: str) -> bool:
        """Return True if a topic is known and ordered."""
        found = self.table.get(topic)
        return found is not None and found.order

    # --- creation ---

    def create_topic_in_send_message(
        self, topic: str, default_topic: str, client_queue_nums: int, topic_sys_flag: int, now_ms: int
    ) -> Creation:
        """Find or create the topic of a producer's message (createTopicInSendMessageMethod).

        Args:
            topic: Topic name that has passed `topic_names.topic_remark`.
            default_topic: Default topic of the request. It is TBW102 unless the producer sets another.
            client_queue_nums: The producer's defaultTopicQueueNums.
            topic_sys_flag: System flag of a new topic.
            now_ms: Current time, in milliseconds since 1970.
        """
        found = self.table.get(topic)
        if found is not None:
            return Creation(found)
        default = self.table.get(default_topic)
        if default is None:
            return Creation(None, refusal=f"the default topic[{default_topic}] not exist")
        if default_topic == topic_names.AUTO_CREATE_TOPIC_KEY_TOPIC and not self._config.auto_create_topic_enable:
            default = self.table[default_topic] = msgspec.structs.replace(default, perm=READ_WRITE)
        if not default.perm & PERM_INHERIT:
            return Creation(None, refusal=f"the default topic[{default_topic}] has no perm [{default.perm}]")
        queues = max(0, min(client_queue_nums, default.write_queue_nums))
        return self._put_new(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=default.perm & ~PERM_INHERIT,
                topic_sys_flag=topic_sys_flag,
                topic_filter_type=default.topic_filter_type,
            ),
            now_ms,
        )

    def create_topic_in_send_message_back(
        self,
        topic: str,
        queue_nums: int,
        now_ms: int,
        *,
        is_order: bool = False,
        topic_sys_flag: int = 0,
    ) -> Creation:
        """Find or create %RETRY%group, %DLQ%group or the half topic (createTopicInSendMessageBackMethod).

        An existing topic is kept, but its order flag is corrected. RocketMQ fails here if the topic has attributes.
        """
        found = self.table.get(topic)
        if found is None:
            config = _topic(topic, queue_nums)
            return self._put_new(msgspec.structs.replace(config, order=is_order, topic_sys_flag=topic_sys_flag), now_ms)
        if found.order == is_order:
            return Creation(found)
        found = msgspec.structs.replace(found, order=is_order)
        self._put(found, now_ms)
        return Creation(found, changed=True)

    # --- change ---

    def update_topic_configs(self, edited: Iterable[TopicConfig], now_ms: int) -> list[TopicConfig]:
        """Create topics or replace their settings, all or none (updateTopicConfig, updateTopicConfigList).

        Args:
            edited: Topics with edits in `attributes` (`attributes.parse_edits`). Without edits, attributes are kept.
            now_ms: Current time, in milliseconds since 1970.

        Returns:
            The topics after the change. The version advances once for each topic.

        Raises:
            BadRequestError: An edit does not apply.
        """
        changed: list[TopicConfig] = []
        pending: dict[str, TopicConfig] = {}
        for config in edited:
            found = pending.get(config.topic_name) or self.table.get(config.topic_name)
            current = None if found is None else found.attributes
            final = msgspec.structs.replace(config, attributes=attributes.alter(current, config.attributes))
            pending[config.topic_name] = final
            changed.append(final)
        for config in changed:
            self._put(config, now_ms)
        return changed

    def update_order_topics(self, topics: Iterable[str], now_ms: int) -> bool:
        """Mark known topics as ordered, as the NameServer's ORDER_TOPIC_CONFIG names them (updateOrderTopicConfig).

        Returns:
            Whether any topic changed. The flag is never cleared, as in RocketMQ 5.x (4.x clears it).
        """
        unmarked = [found for topic in topics if (found := self.table.get(topic)) is not None and not found.order]
        for found in unmarked:
            self.table[found.topic_name] = msgspec.structs.replace(found, order=True)
        if unmarked:
            self.data_version = next_version(self.data_version, now_ms)
        return bool(unmarked)

    def delete_topic(self, topic: str, now_ms: int) -> bool:
        """Delete a topic (deleteTopicConfig). The NameServers keep its row until a 216 or a wipe.

        Returns:
            Whether the topic existed.
        """
        if self.table.pop(topic, None) is None:
            return False
        self.data_version = next_version(self.data_version, now_ms)
        return True

    def sub_table(self, data_version: DataVersion | None, first: int, most: int) -> dict[str, TopicConfig]:
        """Return a page of the table in the order of names (subTopicConfigTable).

        Args:
            data_version: Version of the requester's earlier pages. If it is not the current version, the first page is
                returned.
            first: Position of the first topic.
            most: Maximum number of topics.
        """
        start = first if data_version == self.data_version else 0
        return {name: self.table[name] for name in sorted(self.table)[start : start + most]}

    def _put_new(self, config: TopicConfig, now_ms: int) -> Creation:
        return Creation(self._put(config, now_ms), changed=True, created=True)

    def _put(self, config: TopicConfig, now_ms: int) -> TopicConfig:
        self.table[config.topic_name] = config
        self.data_version = next_version(self.data_version, now_ms)
        return config
