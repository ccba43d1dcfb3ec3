# SPDX-License-Identifier: Apache-2.0
"""RouteView: the seven state tables at one commit in memory, with the indexes that answers need.

A view never changes. `RouteView.apply` builds the next one aside and shares whatever stayed the same: a changed topic
costs a new `TopicQueues`, a changed broker group a new `RouteBroker`, and each touched table one shallow copy of its
outer dict (60 microseconds for 10,000 topics). Whoever holds a view can go on reading it for as long as they like.

Worked example. Epoch 7 says that broker-a's row of topic "orders" lost its write bit: `apply` copies the topic dict,
puts one new `TopicQueues` into it (its tuple of brokers is the old one), and shares everything else; the cached answer
of every other topic stays valid, because its `TopicQueues` and its `RouteBroker`s are still the same objects.

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
    """For callers that share the interpreter with nobody."""


class Yielder:
    """Called between small pieces of work: every ``slice_s`` it sleeps, so that other threads get the interpreter."""

    def __init__(self, slice_s: float = 0.001, rest_s: float = 0.0002) -> None:
        """Start the first slice now."""
        self._slice_s, self._rest_s = slice_s, rest_s
        self._end = time.perf_counter() + slice_s

    def __call__(self) -> None:
        """Sleep if the slice is over."""
        if time.perf_counter() >= self._end:
            time.sleep(self._rest_s)
            self._end = time.perf_counter() + self._slice_s


class RegistrationResult(NamedTuple):
    """Header fields of the answer to a non-master's REGISTER_BROKER; both absent without a live master."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class SystemTopics(NamedTuple):
    """Answer to GET_SYSTEM_TOPIC_LIST_FROM_NS."""

    topics: tuple[str, ...]
    broker_addr: str | None


class RouteView(msgspec.Struct, frozen=True, eq=False):
    """The tables at one commit. Built by `empty` and `apply` only.

    Attributes:
        commit: The routeCommitTable row it shows.
        serial: Compare it instead of holding on to an old view. It is the same for views of one line between which
            nothing has changed but times of heartbeats, and different for all others of this process.
        topics: {topic: rows}. Never holds a topic without rows.
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
        """The view before the first epoch."""
        return cls()

    # --- the commit ---

    @property
    def epoch(self) -> int:
        """0 before the first commit."""
        return self.commit.epoch

    @property
    def log_offset(self) -> int:
        """Everything up to and including it is in; -1 before the first commit."""
        return self.commit.log_offset

    @property
    def event_time(self) -> datetime:
        """Event time of `log_offset`."""
        return self.commit.event_time

    @property
    def watermark(self) -> datetime:
        """Every broker silent at this time has been expired."""
        return self.commit.watermark

    # --- the next commit ---

    def apply(self, changes: Changes, pause: Callable[[], None] = no_pause) -> RouteView:
        """The view after these changes.

        Args:
            changes: Differences from this view's commit to ``changes.commit``.
            pause: Called often, between small pieces of work; may let other threads run.
        """
        filters, moved = advance.apply_filters(self.filter_tables, changes.filter_servers)
        view = replace(
            self,
            commit=changes.commit,
            topics=advance.apply_topics(self.topics, changes.topic_rows, self._pool, pause),
            groups=advance.apply_groups(self.groups, changes.brokers, filters, moved),
            clusters=advance.apply_clusters(self.clusters, changes.clusters),
            kv=advance.apply_kv(self.kv, changes.kv),
            mapping_tables=advance.apply_mappings(self.mapping_tables, changes.mappings),
            filter_tables=filters,
            _live=advance.apply_live(self._live, changes.live),
        )
        return view if view._looks_like(self) else replace(view, serial=next(_serials))

    def apart(self) -> RouteView:
        """The same view, where another line begins: of each line one thread at a time makes the next view."""
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

    def topic_names(self) -> list[str]:
        """getAllTopicList, sorted: the order of `topics` depends on how a gateway came to this view."""
        return sorted(self.topics)

    def topics_in(self, cluster: str) -> list[str]:
        """getTopicsByCluster, in the order of `topics`: those with a row for any broker group of the cluster."""
        names = frozenset(self.clusters.get(cluster, ()))
        return self._topics_where(lambda rows: not names.isdisjoint(rows.brokers)) if names else []

    def topic_count(self, broker_name: str) -> int:
        """Number of topics that have a row for a broker group: wipeTopicCount, addTopicCount."""
        return len(self._topics_where(lambda rows: rows.find(broker_name) is not None))

    def topic_counts(self) -> dict[str, int]:
        """`topic_count` of every broker group. Takes a second for millions of topics, in any thread."""
        times = Counter(map(id, self.topics.values()))
        counts = dict.fromkeys(self.groups, 0)
        for found in {id(found): found for found in self.topics.values()}.values():
            for broker_name in found.brokers:
                counts[broker_name] = counts.get(broker_name, 0) + times[id(found)]
        return counts

    def unit_topics(self) -> list[str]:
        """getUnitTopics. Java looks at one arbitrary row; here it is the first by brokerName."""
        return sorted(self._topics_where(lambda rows: bool(rows.rows[0][3] & _FLAG_UNIT)))

    def unit_sub_topics(self) -> list[str]:
        """getHasUnitSubTopicList."""
        return sorted(self._topics_where(lambda rows: bool(rows.rows[0][3] & _FLAG_UNIT_SUB)))

    def unit_sub_un_unit_topics(self) -> list[str]:
        """getHasUnitSubUnUnitTopicList."""
        return sorted(
            self._topics_where(lambda rows: rows.rows[0][3] & (_FLAG_UNIT | _FLAG_UNIT_SUB) == _FLAG_UNIT_SUB)
        )

    def _topics_where(self, accept: Callable[[TopicQueues], bool]) -> list[str]:
        """Names of the topics whose rows are accepted; asks once for equal rows."""
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
        """Static-topic mappings of a topic by bname."""
        found = self.mapping_tables.get(topic)
        return None if found is None else found.by_bname

    # --- brokers ---

    def system_topics(self) -> SystemTopics:
        """getSystemTopicList: names of clusters and broker groups, and an address of some broker.

        Which broker and which order is up to a hash map in RocketMQ. Here both follow the names, so that gateways that
        came to the same view in different ways answer the same.
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
        """getBrokerMemberGroup: brokerId to address; empty for an unknown group."""
        group = self.groups.get(broker_name)
        return {} if group is None else group.row.broker_addrs

    def live_row(self, broker_name: str, cluster: str, addr: str) -> LiveInfo | None:
        """The live row of one address of a broker group."""
        return self._live.get(broker_name, {}).get((cluster, addr))

    def live_rows(self, broker_name: str) -> Mapping[BrokerKey, LiveInfo]:
        """{(cluster, addr): row} of a broker group."""
        return self._live.get(broker_name, {})

    def live_names(self) -> frozenset[str]:
        """Broker groups with a live row."""
        return frozenset(self._live)

    def all_live_rows(self) -> Iterator[tuple[LiveKey, LiveInfo]]:
        """Every live row with its key."""
        return (((name, *key), row) for name, rows in self._live.items() for key, row in rows.items())

    def filter_servers(self, cluster: str, addr: str) -> Mapping[str, tuple[str, ...]]:
        """{brokerName: filter servers} registered for an address."""
        return self.filter_tables.get((cluster, addr), {})

    def registration_result(self, cluster: str, broker_name: str, broker_id: int) -> RegistrationResult:
        """Step 15 of registerBroker: where a slave finds its master."""
        addr = None if broker_id == MASTER_ID else self.broker_member_group(broker_name).get(MASTER_ID)
        live = None if addr is None else self.live_row(broker_name, cluster, addr)
        return RegistrationResult() if live is None else RegistrationResult(addr, live.ha_server_addr)

    # --- KV ---

    def kv_get(self, namespace: str, key: str) -> str | None:
        """KVConfigManager.getKVConfig."""
        return None if is_reserved(namespace) else self.kv.get(namespace, {}).get(key)

    def kv_table(self, namespace: str) -> Mapping[str, str | None] | None:
        """A namespace with its deleted keys, whose value is None; the same object while nothing in it changes."""
        return None if is_reserved(namespace) else self.kv.get(namespace)

    def kv_list(self, namespace: str) -> dict[str, str] | None:
        """KVConfigManager.getKVListByNamespace; None for a namespace that was never put into."""
        return existing(self.kv_table(namespace))

    @property
    def namesrv_config(self) -> Mapping[str, str | None]:
        """Configuration set by UPDATE_NAMESRV_CONFIG."""
        return self.kv.get(NAMESRV_CONFIG, {})

    def order_topic_conf(self, topic: str) -> str | None:
        """Order configuration of a topic (step 6 of a route answer, where the switch allows it)."""
        return self.kv_get(ORDER_TOPIC_CONFIG, topic)
