# SPDX-License-Identifier: Apache-2.0
"""RouteView: the seven state tables at one commit in memory, with the indexes that answers need.

A view never changes. `RouteView.apply` builds the next one separately and shares all unchanged parts. A changed topic
costs a new `TopicQueues`, a changed broker group a new `RouteBroker`, and each touched table one shallow copy of its
outer dict (60 microseconds for 10,000 topics). A reader may keep a view for any time.

Example: in epoch 7, broker-a's row of topic "orders" lost its write bit. `apply` copies the topic dict, puts one new
`TopicQueues` into it (with the old tuple of brokers), and shares everything else. The cached answer of every other
topic stays valid, because its `TopicQueues` and its `RouteBroker`s are still the same objects.

Source: org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager, org.apache.rocketmq.namesrv.kvconfig.KVConfigManager
(5.5.0), reading sides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from itertools import count
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from nameserver.state_machine.state import BrokerKey, LiveInfo, LiveKey
from nameserver.view import apply as advance
from nameserver.view.model import Changes, TopicQueues
from schemas.broker import MASTER_ID, TopicQueueMappingInfo
from schemas.kv import NAMESRV_CONFIG, ORDER_TOPIC_CONFIG, existing, is_reserved
from schemas.route_commit import NO_COMMIT, RouteCommit

_FLAG_UNIT: Final = 1
_FLAG_UNIT_SUB: Final = 2
_serials = count(1)


def no_pause() -> None:
    """Do nothing: the pause for callers that do not share the interpreter."""


class Yielder:
    """Pause for work in small pieces: every ``slice_s`` it sleeps, so that other threads get the interpreter."""

    def __init__(self, slice_s: float = 0.001, rest_s: float = 0.0002) -> None:
        """Start the first slice."""
        self._slice_s, self._rest_s = slice_s, rest_s
        self._end = time.perf_counter() + slice_s

    def __call__(self) -> None:
        """Sleep if the slice is over."""
        if time.perf_counter() >= self._end:
            time.sleep(self._rest_s)
            self._end = time.perf_counter() + self._slice_s


class RegistrationResult(NamedTuple):
    """Header fields of the answer to a non-master's REGISTER_BROKER. Both are absent without a live master."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class SystemTopics(NamedTuple):
    """Answer to GET_SYSTEM_TOPIC_LIST_FROM_NS."""

    topics: tuple[str, ...]
    broker_addr: str | None


class RouteView(msgspec.Struct, frozen=True, eq=False):
    """The tables at one commit. Only `empty` and `apply` build it.

    Attributes:
        commit: Row of routeCommitTable that it shows.
        serial: Number to compare instead of keeping an old view. Views of one line have the same serial if they differ
            only by times of heartbeats. All other views of this process have different serials.
        topics: {topic: rows}. A topic has at least one row.
        groups: {brokerName: group}.
        clusters: {cluster: brokerNames, sorted}.
        kv: {namespace: {key: value or None}}.
        mapping_tables: {topic: static-topic mappings}.
    """

    commit: RouteCommit = NO_COMMIT
    topics: advance.Topics = {}
    groups: advance.Groups = {}
    clusters: advance.Clusters = {}
    kv: advance.KvTables = {}
    mapping_tables: advance.Mappings = {}
    filter_tables: advance.Filters = {}
    _live: advance.LiveRows = {}
    _pool: advance.Pool = msgspec.field(default_factory=advance.Pool)
    serial: int = msgspec.field(default_factory=partial(next, _serials))

    @classmethod
    def empty(cls) -> RouteView:
        """Return the view before the first epoch."""
        return cls()

    # --- the commit ---

    @property
    def epoch(self) -> int:
        """Number of the epoch; 0 before the first commit."""
        return self.commit.epoch

    @property
    def log_offset(self) -> int:
        """Offset up to which, inclusive, the view has all records; -1 before the first commit."""
        return self.commit.log_offset

    @property
    def event_time(self) -> datetime:
        """Event time of `log_offset`."""
        return self.commit.event_time

    @property
    def watermark(self) -> datetime:
        """Time up to which every overdue broker has been expired."""
        return self.commit.watermark

    # --- the next commit ---

    def apply(self, changes: Changes, pause: Callable[[], None] = no_pause) -> RouteView:
        """Return the view after these changes.

        Args:
            changes: Differences from this view's commit to ``changes.commit``.
            pause: Called often, between small pieces of work. It may let other threads run.
        """
        filters, moved = advance.apply_filters(self.filter_tables, changes.filter_servers)
        view = replace(
            self,
            commit=changes.commit,
            topics=advance.apply_topics(self.topics, changes, self._pool, pause),
            groups=advance.apply_groups(self.groups, changes.brokers, filters, moved),
            clusters=advance.apply_clusters(self.clusters, changes.clusters),
            kv=advance.apply_kv(self.kv, changes.kv),
            mapping_tables=advance.apply_mappings(self.mapping_tables, changes.mappings),
            filter_tables=filters,
            _live=advance.apply_live(self._live, changes.live),
        )
        return view if view._looks_like(self) else replace(view, serial=next(_serials))

    def apart(self) -> RouteView:
        """Return the same view as the begin of another line. One thread at a time makes the next view of each line."""
        return replace(self, _pool=self._pool.copy())

    def _looks_like(self, before: RouteView) -> bool:
        return (
            self.topics is before.topics
            and self.groups is before.groups
            and self.clusters is before.clusters
            and self.kv is before.kv
            and self.mapping_tables is before.mapping_tables
            and self.filter_tables is before.filter_tables
        )

    # --- topics ---

    def topics_in(self, cluster: str) -> list[str]:
        """Return getTopicsByCluster in the order of `topics`: topics with a row for any broker group of the cluster."""
        names = frozenset(self.clusters.get(cluster, ()))
        return self._topics_where(lambda rows: not names.isdisjoint(rows.brokers)) if names else []

    def topic_count(self, broker_name: str) -> int:
        """Return the number of topics with a row for a broker group: wipeTopicCount, addTopicCount."""
        return len(self._topics_where(lambda rows: rows.find(broker_name) is not None))

    def topic_counts(self) -> dict[str, int]:
        """Return `topic_count` of every broker group. Takes a second for millions of topics, in any thread."""
        times = Counter(map(id, self.topics.values()))
        counts = dict.fromkeys(self.groups, 0)
        for found in {id(found): found for found in self.topics.values()}.values():
            for broker_name in found.brokers:
                counts[broker_name] = counts.get(broker_name, 0) + times[id(found)]
        return counts

    def unit_topics(self) -> list[str]:
        """Return getUnitTopics. Java reads one arbitrary row, and this method the first by brokerName."""
        return sorted(self._topics_where(lambda rows: bool(rows.rows[0][3] & _FLAG_UNIT)))

    def unit_sub_topics(self) -> list[str]:
        """Return getHasUnitSubTopicList."""
        return sorted(self._topics_where(lambda rows: bool(rows.rows[0][3] & _FLAG_UNIT_SUB)))

    def unit_sub_un_unit_topics(self) -> list[str]:
        """Return getHasUnitSubUnUnitTopicList."""
        return sorted(
            self._topics_where(lambda rows: rows.rows[0][3] & (_FLAG_UNIT | _FLAG_UNIT_SUB) == _FLAG_UNIT_SUB)
        )

    def _topics_where(self, accept: Callable[[TopicQueues], bool]) -> list[str]:
        """Return the names of the topics with accepted rows. Equal rows are checked once."""
        answers: dict[int, bool] = {}
        found = []
        for topic, rows in self.topics.items():
            answer = answers.get(id(rows))
            if answer is None:
                answer = answers[id(rows)] = accept(rows)
            if answer:
                found.append(topic)
        return found

    def mapping(self, topic: str) -> Mapping[str, TopicQueueMappingInfo] | None:
        """Return the static-topic mappings of a topic by bname."""
        found = self.mapping_tables.get(topic)
        return None if found is None else found.by_bname

    # --- brokers ---

    def system_topics(self) -> SystemTopics:
        """Return getSystemTopicList: names of clusters and broker groups, and an address of one broker.

        In RocketMQ a hash map decides which broker and which order. Here both follow the names. So gateways that came
        to the same view in different ways give the same answer.
        """
        names: dict[str, None] = {}
        for cluster, members in sorted(self.clusters.items()):
            names[cluster] = None
            names.update(dict.fromkeys(sorted(members)))
        first = min((name for name, group in self.groups.items() if group.row.broker_addrs), default=None)
        if first is None:
            return SystemTopics(tuple(names), None)
        addrs = self.groups[first].row.broker_addrs
        return SystemTopics(tuple(names), addrs[min(addrs)])

    def broker_member_group(self, broker_name: str) -> Mapping[int, str]:
        """Return getBrokerMemberGroup: address by brokerId. Empty for an unknown group."""
        group = self.groups.get(broker_name)
        return {} if group is None else group.row.broker_addrs

    def live_row(self, broker_name: str, cluster: str, addr: str) -> LiveInfo | None:
        """Return the live row of one address of a broker group."""
        return self._live.get(broker_name, {}).get((cluster, addr))

    def live_rows(self, broker_name: str) -> Mapping[BrokerKey, LiveInfo]:
        """Return {(cluster, addr): row} of a broker group."""
        return self._live.get(broker_name, {})

    def live_names(self) -> frozenset[str]:
        """Return the broker groups with a live row."""
        return frozenset(self._live)

    def all_live_rows(self) -> Iterator[tuple[LiveKey, LiveInfo]]:
        """Return every live row with its key."""
        return (((name, *key), row) for name, rows in self._live.items() for key, row in rows.items())

    def filter_servers(self, cluster: str, addr: str) -> Mapping[str, tuple[str, ...]]:
        """Return {brokerName: filter servers} registered for an address."""
        return self.filter_tables.get((cluster, addr), {})

    def registration_result(self, cluster: str, broker_name: str, broker_id: int) -> RegistrationResult:
        """Return the address of the master for a slave (step 15 of registerBroker)."""
        addr = None if broker_id == MASTER_ID else self.broker_member_group(broker_name).get(MASTER_ID)
        live = None if addr is None else self.live_row(broker_name, cluster, addr)
        return RegistrationResult() if live is None else RegistrationResult(addr, live.ha_server_addr)

    # --- KV ---

    def kv_get(self, namespace: str, key: str) -> str | None:
        """Return an entry as KVConfigManager.getKVConfig does."""
        return None if is_reserved(namespace) else self.kv.get(namespace, {}).get(key)

    def kv_table(self, namespace: str) -> Mapping[str, str | None] | None:
        """Return a namespace, with the value None for deleted keys. Without a change it is the same object."""
        return None if is_reserved(namespace) else self.kv.get(namespace)

    def kv_list(self, namespace: str) -> dict[str, str] | None:
        """Return KVConfigManager.getKVListByNamespace. None for a namespace that has never had a key."""
        return existing(self.kv_table(namespace))

    @property
    def namesrv_config(self) -> Mapping[str, str | None]:
        """Configuration set by UPDATE_NAMESRV_CONFIG."""
        return self.kv.get(NAMESRV_CONFIG, {})

    def order_topic_conf(self, topic: str) -> str | None:
        """Return the order configuration of a topic (step 6 of a route answer, if the switch is on)."""
        return self.kv_get(ORDER_TOPIC_CONFIG, topic)
