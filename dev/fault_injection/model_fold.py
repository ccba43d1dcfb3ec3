# SPDX-License-Identifier: Apache-2.0
"""The log, folded by the model of RocketMQ's NameServer instead of the product's rules.

Events are read from the log. Their effects are in `dev.model.deliberate`; here are only those that a NameServer does
not have, because it has no log: time that no gateway was there (RESUME), a registration that went down without its
topics, one connection per gateway. Every brokerName has addresses of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from dev.model.bodies import DataVersion, Registration, TopicConfig
from dev.model.deliberate import DeliberateModel
from dev.model.settings import Settings
from dev.model.tables import MASTER_ID, BrokerAddrInfo, BrokerLiveInfo, QueueData, UnRegisterBroker
from schemas.broker import QueueRow
from schemas.events import (
    AccessRefused,
    AddWritePerm,
    AnyEvent,
    BrokerHeartbeat,
    ChannelClosed,
    Clock,
    DeleteKvConfig,
    DeleteTopic,
    Preserve,
    PreserveEnd,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    Resume,
    UnregisterBroker,
    WipeWritePerm,
    topic_config_digest,
)

Key = tuple[str, ...]
"""Subject of an answer: `Operation.subject` less the cluster, such as ("route", "topic-a")."""

TOPICS: Key = ("topics",)
CLUSTERS: Key = ("clusters",)


class ModelFold:
    """Everything known after the events so far.

    Attributes:
        model: the NameServer.
        now_ms: the greatest event time.
        expired: (brokerName, address, deadline in ms) of everybody who expired, with the time at which it was noticed.
        refused: whether the last event was a registration with the brokerId of an address with a higher stateVersion.
        lacking: whether it was one without topics that says something that is not known: it must come again, with them.
    """

    def __init__(self) -> None:
        self.model = DeliberateModel(Settings())
        self.now_ms = 0
        self.expired: list[tuple[str, str, int, int]] = []
        self.refused = self.lacking = False
        self._before_ms = 0
        self._topics: dict[BrokerAddrInfo, dict[str, QueueRow]] = {}
        """Last registration of each broker, with its topics."""
        self._names: dict[BrokerAddrInfo, str] = {}
        self._heard: dict[BrokerAddrInfo, dict[str, tuple[str, int]]] = {}
        """gateway -> connection a broker registered over, and when it was last heard there."""

    def take(self, event: AnyEvent, time_ms: int) -> set[Key]:
        """Apply one event.

        Returns:
            Subjects of the answers that may have changed.
        """
        self._before_ms, self.now_ms = self.now_ms, max(self.now_ms, time_ms)
        self.refused = self.lacking = False
        self.model.tables.notifications.clear()
        match event:
            case PutKvConfig():
                self.model.kv.put(event.namespace, event.key, event.value)
                return {("kv", event.key, event.namespace), ("kv-list", event.namespace)}
            case DeleteKvConfig():
                self.model.kv.delete(event.namespace, event.key)
                return {("kv", event.key, event.namespace), ("kv-list", event.namespace)}
            case Clock() | Resume() | DeleteTopic():
                names = list(self._groups())
            case RegisterTopic():
                names = [event.queue_data.broker_name]
            case AccessRefused():
                return set()
            case Preserve() | PreserveEnd():
                raise NotImplementedError("torture runs without self-preservation")
            case _:
                names = [event.broker_name]
        before, versions = {name: self._shown(name) for name in names}, self._versions(names)
        if isinstance(event, Resume):
            self._resume(event)
        else:
            self._expire(self.now_ms, None if isinstance(event, Clock | DeleteTopic) else names)
            self._apply(event)
        versions_now = self._versions(names)
        told = {
            ("version", addr)
            for addr in versions.keys() | versions_now.keys()
            if versions.get(addr) != versions_now.get(addr)
        }
        return self._changed(before) | told

    def without(self, brokers: Collection[tuple[str, int]]) -> ModelFold:
        """A copy in which these have expired: (address, deadline in ms)."""
        expired, self.expired = self.expired, []  # which grows with the log
        try:
            other = copy.deepcopy(self)
        finally:
            self.expired = expired
        for key, live in list(other.model.tables.broker_live_table.items()):
            if (key.broker_addr, _deadline_ms(live)) in brokers:
                other._remove(key)
        return other

    def overdue(self, time_ms: int) -> bool:
        """Return True if a broker's deadline has passed at a time."""
        return any(_deadline_ms(live) < time_ms for live in self.model.tables.broker_live_table.values())

    # --- events ---

    def _apply(self, event: AnyEvent) -> None:
        tables = self.model.tables
        match event:
            case RegisterBroker():
                self._register(event)
            case UnregisterBroker():
                tables.un_register_broker(
                    [UnRegisterBroker(event.broker_name, event.broker_addr, event.cluster_name, event.broker_id)]
                )
            case BrokerHeartbeat():
                key = BrokerAddrInfo(event.cluster_name, event.broker_addr)
                tables.update_broker_info_update_timestamp(event.cluster_name, event.broker_addr, self.now_ms)
                heard = self._heard.get(key, {})
                if event.actor.gateway in heard:
                    heard[event.actor.gateway] = (heard[event.actor.gateway][0], self.now_ms)
            case ChannelClosed():
                self._close(event)
            case DeleteTopic():
                if event.cluster_name:
                    tables.delete_topic_in_cluster(event.topic, event.cluster_name)
                else:
                    tables.delete_topic(event.topic)
            case RegisterTopic():
                row = event.queue_data
                data = QueueData(
                    row.broker_name, row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag
                )
                tables.register_topic(event.topic, [data])
            case WipeWritePerm():
                tables.operate_write_perm_of_broker(event.broker_name, wipe=True)
            case AddWritePerm():
                tables.operate_write_perm_of_broker(event.broker_name, wipe=False)

    def _register(self, event: RegisterBroker) -> None:
        key = BrokerAddrInfo(event.cluster_name, event.broker_addr)
        self._names[key] = event.broker_name
        live = self.model.tables.broker_live_table.get(key)
        version = event.data_version
        said = DataVersion(version.state_version, version.timestamp, version.counter)
        if event.topic_config_table is not None:
            topics = {
                name: TopicConfig(name, row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag)
                for name, row in event.topic_config_table.items()
            }
            self._topics[key], kept = event.topic_config_table, None
        else:
            # It repeats what is known, or is refused and comes again with its topics: either way it brings none.
            self.lacking = self._lacks(event, key)
            data = self.model.tables.broker_addr_table.get(event.broker_name)
            if self.lacking and (live is None or data is None or event.broker_id not in data.broker_addrs):
                return
            topics = {}
            kept = live.data_version if live is not None and self._counts(event) else None
        servers = event.filter_server_list
        result = self.model.tables.register_broker(
            event.cluster_name,
            event.broker_addr,
            event.broker_name,
            event.broker_id,
            event.ha_server_addr,
            event.zone_name,
            event.heartbeat_timeout_millis,
            event.enable_acting_master,
            Registration(dict(topics), said, {}, None if servers is None else list(servers)),
            None,
            self.now_ms,
        )
        now = self.model.tables.broker_live_table.get(key)
        if kept is not None and now is not None:
            now.data_version = kept  # a broker with unknown topics is a change when it brings them
        self.lacking = self.lacking and key in self.model.tables.broker_live_table
        self.refused = key not in self.model.tables.broker_live_table
        heard = self._heard.setdefault(key, {}) if live is not None else {}
        if result is not None and now is not None:
            _forget_silent(heard, now.heartbeat_timeout_millis, self.now_ms)
            if event.channel is not None:
                heard[event.channel.gateway] = (event.channel.connection, self.now_ms)
            self._heard[key] = heard

    def _lacks(self, event: RegisterBroker, key: BrokerAddrInfo) -> bool:
        live, data = (
            self.model.tables.broker_live_table.get(key),
            self.model.tables.broker_addr_table.get(event.broker_name),
        )
        if data is not None and self._is_outdated(event, data.broker_addrs.get(event.broker_id)):
            return False  # refused, with topics as without
        if data is None or event.broker_id not in data.broker_addrs:
            return True
        if not self._counts(event):
            return False
        if live is None:
            return True
        said = event.data_version
        rows = self.model.tables.topic_queue_table
        topics = self._topics.get(key, {})
        return (
            live.data_version != DataVersion(said.state_version, said.timestamp, said.counter)
            or event.topic_config_digest != topic_config_digest(topics)
            or any(event.broker_name not in rows.get(topic, {}) for topic in topics)
        )

    def _is_outdated(self, event: RegisterBroker, holder: str | None) -> bool:
        """Return whether another address has the id with a higher stateVersion."""
        if holder is None or holder == event.broker_addr:
            return False
        other = self.model.tables.broker_live_table.get(BrokerAddrInfo(event.cluster_name, holder))
        if other is None or other.data_version is None:
            return False
        return other.data_version.state_version > event.data_version.state_version

    def data_version(self, key: BrokerAddrInfo) -> dict[str, int] | None:
        """Return the answer of QUERY_DATA_VERSION for a broker; None for one that is not there."""
        live = self.model.tables.broker_live_table.get(key)
        if live is None or live.data_version is None:
            return None
        return live.data_version.to_json()

    def _counts(self, event: RegisterBroker) -> bool:
        """Return whether this broker's topics are its group's: it is the master, or the smallest slave without one."""
        addrs = self.model.tables.broker_addr_table[event.broker_name].broker_addrs
        others = [number for number, addr in addrs.items() if addr != event.broker_addr]  # it has one id
        return event.broker_id == MASTER_ID or (
            event.enable_acting_master is not None and event.broker_id == min([*others, event.broker_id])
        )

    def _close(self, event: ChannelClosed) -> None:
        key = BrokerAddrInfo(event.cluster_name, event.broker_addr)
        live = self.model.tables.broker_live_table.get(key)
        heard = self._heard.get(key, {})
        bound = heard.get(event.channel.gateway)
        if live is None or bound is None or bound[0] != event.channel.connection:
            return
        del heard[event.channel.gateway]
        _forget_silent(heard, live.heartbeat_timeout_millis, self.now_ms)
        if not heard:
            self.model._unregister(key)

    def _resume(self, event: Resume) -> None:
        if event.after_ms is not None and self.now_ms <= event.after_ms:
            return
        self._expire(self._before_ms, None)
        gap_ms = self.now_ms - self._before_ms
        for live in self.model.tables.broker_live_table.values():
            live.last_update_timestamp += gap_ms
        for heard in self._heard.values():
            for gateway, (connection, heard_ms) in heard.items():
                heard[gateway] = (connection, heard_ms + gap_ms)

    def _expire(self, now_ms: int, names: list[str] | None) -> None:
        """Expire the brokers past their deadline, of these groups or of all."""
        table = self.model.tables.broker_live_table
        due = sorted(
            (_deadline_ms(live), key)
            for key, live in table.items()
            if _deadline_ms(live) < now_ms and (names is None or self._names[key] in names)
        )
        for deadline_ms, key in due:
            if key not in table:
                continue
            self.expired.append((self._names[key], key.broker_addr, deadline_ms, now_ms))
            self._remove(key)

    def _remove(self, key: BrokerAddrInfo) -> None:
        if not self.model._unregister(key):
            self.model.tables.broker_live_table.pop(key, None)
            self.model.tables.filter_server_table.pop(key, None)

    # --- what may show ---

    def _groups(self) -> set[str]:
        return {*self.model.tables.broker_addr_table, *self._names.values()}

    def _versions(self, names: Collection[str]) -> dict[str, dict[str, int] | None]:
        table = self.model.tables.broker_live_table
        return {key.broker_addr: self.data_version(key) for key in table if self._names[key] in names}

    def _shown(self, name: str) -> tuple[Any, dict[str, tuple[int, ...]]]:
        tables = self.model.tables
        data = tables.broker_addr_table.get(name)
        group = None
        if data is not None:
            group = data.cluster, dict(data.broker_addrs), data.zone_name, data.enable_acting_master
        rows: dict[str, tuple[int, ...]] = {}
        for topic, held in tables.topic_queue_table.items():
            row = held.get(name)
            if row is not None:
                rows[topic] = (row.read_queue_nums, row.write_queue_nums, row.perm, row.topic_sys_flag)
        return group, rows

    def _changed(self, before: dict[str, tuple[Any, dict[str, tuple[int, ...]]]]) -> set[Key]:
        changed: set[Key] = set()
        for name, (group, rows) in before.items():
            group_now, rows_now = self._shown(name)
            if group == group_now and rows == rows_now:
                continue
            changed |= {TOPICS, CLUSTERS, ("members", name)}
            changed |= {("route", topic) for topic in {*rows, *rows_now}}
        return changed


def _forget_silent(heard: dict[str, tuple[str, int]], timeout_ms: int, now_ms: int) -> None:
    """Forget the gateways that did not hear a broker within its timeout."""
    for gateway, (_, heard_ms) in list(heard.items()):
        if heard_ms + timeout_ms < now_ms:
            del heard[gateway]


def _deadline_ms(live: BrokerLiveInfo) -> int:
    return live.last_update_timestamp + max(1, live.heartbeat_timeout_millis)
