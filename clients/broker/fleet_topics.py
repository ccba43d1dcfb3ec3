# SPDX-License-Identifier: Apache-2.0
"""The topics of a fleet: encoded once, shared by all brokers, and copied only where a broker's topics change. No I/O.

A registration of 10,000 topics is about 2 MB of JSON. Three hundred tables of that size would take 600 MB, and minutes
to encode. Here a broker has only its version, its built-in topics, and the few chunks with changed topics::

    shared   [ chunk 0 ][ chunk 1 ][ chunk 2 ] ...      100 topics each, one bytes object for the whole fleet
    broker                [ own 1 ]                     only after one of its topics 100 to 199 has changed
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from clients.broker.config import BrokerConfig
from clients.broker.registration import Registration
from clients.broker.topic_config import TopicConfig, encode_entries, next_version
from clients.broker.topics import built_in_topics
from schemas.broker import DataVersion

CHUNK_TOPICS: Final = 100
QUEUE_NUMS: Final = (4, 8, 16)
"""Numbers of queues of the topics, chosen at random."""


class SharedTopics:
    """The topics that every broker of a fleet starts with.

    Attributes:
        topics: Topics in order. The name of a topic has its index.
        chunks: JSON members of the topicConfigTable, in parts of CHUNK_TOPICS topics.
    """

    def __init__(self, count: int, seed: int) -> None:
        """Create the topics.

        Args:
            count: Number of topics.
            seed: Seed of their queue numbers.
        """
        choose = random.Random(seed)  # noqa: S311 (a workload, no secret)
        self.topics: list[TopicConfig] = []
        for index in range(count):
            queues = choose.choice(QUEUE_NUMS)
            name = f"topic-{index:05d}"
            self.topics.append(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues))
        self.chunks = [
            encode_entries({topic.topic_name: topic for topic in self.topics[start : start + CHUNK_TOPICS]})
            for start in range(0, count, CHUNK_TOPICS)
        ]


class FleetBroker:
    """One broker's view of the shared topics.

    Attributes:
        config: Settings of the broker, such as name and address.
        data_version: Version that advances with every change.
        registered: Whether at least one NameServer has accepted the broker.
    """

    def __init__(self, config: BrokerConfig, shared: SharedTopics, now_ms: int) -> None:
        """Create a broker with the shared topics and its own built-in topics."""
        self.config = config
        self.data_version = DataVersion(0, now_ms, 0)
        self.registered = False
        self._shared = shared
        self._built_in = encode_entries({topic.topic_name: topic for topic in built_in_topics(config)})
        self._changed: dict[int, TopicConfig] = {}
        self._own_chunks: dict[int, bytes] = {}

    @property
    def topic_count(self) -> int:
        """Number of topics that the member registers."""
        return len(self._shared.topics) + len(built_in_topics(self.config))

    def topic(self, index: int) -> TopicConfig:
        """Return one topic of the broker."""
        return self._changed.get(index) or self._shared.topics[index]

    def change(self, index: int, now_ms: int) -> Registration:
        """Add a queue to a topic, or reset it to one queue. Returns the registration of the change."""
        before = self.topic(index)
        queues = before.write_queue_nums % QUEUE_NUMS[-1] + 1
        after = msgspec.structs.replace(before, read_queue_nums=queues, write_queue_nums=queues)
        self._changed[index] = after
        self.data_version = next_version(self.data_version, now_ms)
        chunk = index // CHUNK_TOPICS
        start = chunk * CHUNK_TOPICS
        end = min(start + CHUNK_TOPICS, len(self._shared.topics))
        topics = [self.topic(position) for position in range(start, end)]
        self._own_chunks[chunk] = encode_entries({topic.topic_name: topic for topic in topics})
        return Registration(self.data_version, encode_entries({after.topic_name: after}))

    def full(self) -> Registration:
        """Return the registration of all topics."""
        own = self._own_chunks
        chunks = [own.get(number, chunk) for number, chunk in enumerate(self._shared.chunks)]
        return Registration(self.data_version, b",".join([self._built_in, *chunks]))


def fleet_configs(brokers: int, clusters: int, settings: BrokerConfig) -> list[BrokerConfig]:
    """Return the brokers of a fleet: each has its own name, cluster and address, and otherwise these settings.

    The addresses are in 10.0.0.0/8, and no process listens there.
    """
    return [
        msgspec.structs.replace(
            settings,
            broker_name=f"broker-{index:04d}",
            broker_cluster_name=f"cluster-{index % clusters:02d}",
            broker_ip1=f"10.{index // 62_500}.{index // 250 % 250}.{index % 250 + 1}",
        )
        for index in range(brokers)
    ]
