# SPDX-License-Identifier: Apache-2.0
"""Contents of a `RouteView`: rows in memory, and the changes that lead from one commit to the next.

Everything in a view is immutable. Structs are untracked by the garbage collector (``gc=False``). So a full collection
of the serving process does not have to walk a view of 3,000,000 queue rows. There can be no cycle, because rows contain
only strings, numbers and other rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import msgspec

from nameserver.state_machine.state import LiveInfo, LiveKey, RegisteredMapping
from schemas.broker import TopicQueueMappingInfo
from schemas.route_commit import RouteCommit

Row = tuple[int, int, int, int]
"""readQueueNums, writeQueueNums, perm, topicSysFlag: a QueueRow as a plain tuple, which the collector can untrack."""


class TopicQueues(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Rows of a topic: ``rows[i]`` belongs to broker group ``brokers[i]``. Brokers are sorted.

    Equal contents are one object within a view (most topics of a cluster have equal rows). So identity is used as
    equality where that is faster, mainly in the cache of answers.
    """

    brokers: tuple[str, ...]
    rows: tuple[Row, ...]

    def find(self, broker_name: str) -> Row | None:
        """Return the row of one broker group. None without a row."""
        index = bisect_left(self.brokers, broker_name)
        if index < len(self.brokers) and self.brokers[index] == broker_name:
            return self.rows[index]
        return None


class BrokerRow(msgspec.Struct, frozen=True):
    """A row of brokerAddrTable. ``broker_addrs`` is sorted by brokerId."""

    cluster: str
    broker_addrs: dict[int, str]
    zone_name: str | None
    enable_acting_master: bool


class RouteBroker(msgspec.Struct, frozen=True):
    """A broker group for route answers: its row, and the filter servers of its addresses.

    ``filter_servers`` are those that the group itself has registered at (cluster of the row, address).
    """

    name: str
    row: BrokerRow
    filter_servers: dict[str, tuple[str, ...]]


class TopicMapping(msgspec.Struct, frozen=True, eq=False):
    """Static-topic mappings of one topic.

    ``rows`` are {(bname, brokerName): row} as stored. ``by_bname`` has the mapping that an answer shows for each bname:
    the one with the highest registeredOffset.
    """

    rows: dict[tuple[str, str], RegisteredMapping]
    by_bname: dict[str, TopicQueueMappingInfo]


TopicDelta = tuple[str, tuple[str, ...], tuple[Row | None, ...]]
"""Topic, changed broker groups in order, and the new row of each, or None if it was removed."""


class Changes(msgspec.Struct):
    """Changes from one commit to another. A missing key is unchanged. None as value means that the row was removed.

    ``topic_rows`` is read once and may be a generator that decodes on demand. `RouteView.apply` adds its topics to
    ``topics``.
    """

    commit: RouteCommit
    topic_rows: Iterable[TopicDelta] = ()
    brokers: dict[str, BrokerRow | None] = {}
    clusters: dict[tuple[str, str], bool] = {}
    """{(cluster, brokerName): still a member}"""
    live: dict[LiveKey, LiveInfo | None] = {}
    filter_servers: dict[LiveKey, tuple[str, ...] | None] = {}
    mappings: dict[tuple[str, str, str], RegisteredMapping | None] = {}
    """Keys are (brokerName, topic, bname)."""
    kv: dict[tuple[str, str], tuple[str | None] | None] = {}
    """{(namespace, key): (value,)}. A null value is a row, too."""
    topics: list[str] = []
