# SPDX-License-Identifier: Apache-2.0
"""Contents of a `RouteView`: rows in memory, and the changes that lead from one commit to the next.

Everything here is immutable once it is in a view. Structs are untracked by the garbage collector (``gc=False``): a
view of 3,000,000 queue rows must not make each full collection of the serving process walk them. No cycle can arise,
since rows hold only strings, numbers and other rows.
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
    """A topic's rows: ``rows[i]`` belongs to broker group ``brokers[i]``; brokers are sorted.

    Equal contents are one object within a view (most topics of a cluster look alike), so identity stands for equality
    wherever it pays, in the cache of answers above all.
    """

    brokers: tuple[str, ...]
    rows: tuple[Row, ...]

    def find(self, broker_name: str) -> Row | None:
        """The row of one broker group."""
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
    """A broker group as route answers need it: its row, and the filter servers of its addresses.

    ``filter_servers`` is what the group itself has registered at (cluster of the row, address).
    """

    name: str
    row: BrokerRow
    filter_servers: dict[str, tuple[str, ...]]


class TopicMapping(msgspec.Struct, frozen=True, eq=False):
    """Static-topic mappings of one topic.

    ``rows`` are {(bname, brokerName): row} as stored; ``by_bname`` is what an answer shows: of equal bnames the one
    with the highest registeredOffset.
    """

    rows: dict[tuple[str, str], RegisteredMapping]
    by_bname: dict[str, TopicQueueMappingInfo]


TopicDelta = tuple[str, tuple[str, ...], tuple[Row | None, ...]]
"""topic, changed broker groups in order, and for each its new row, or None if it went."""


class Changes(msgspec.Struct):
    """From one commit to another. A missing key is unchanged; None as value means the row went.

    ``topic_rows`` is read once and may be a generator that decodes as it goes.
    """

    commit: RouteCommit
    topic_rows: Iterable[TopicDelta] = ()
    brokers: dict[str, BrokerRow | None] = {}
    clusters: dict[tuple[str, str], bool] = {}
    """{(cluster, brokerName): still a member}"""
    live: dict[LiveKey, LiveInfo | None] = {}
    filter_servers: dict[LiveKey, tuple[str, ...] | None] = {}
    mappings: dict[tuple[str, str, str], RegisteredMapping | None] = {}
    """Keyed brokerName, topic, bname."""
    kv: dict[tuple[str, str], tuple[str | None] | None] = {}
    """{(namespace, key): (value,)}; a null value is a row, too."""
