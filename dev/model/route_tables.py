# SPDX-License-Identifier: Apache-2.0
"""RouteInfoManager's six tables, transliterated: writing side.

Every method does what the Java method of the same name does at that point of its code, in the same order, null pointers
included: where Java swallows an exception half-way, the tables stay half-changed here too. Nothing is optimised.

Where Java depends on hash order, insertion order stands in, and `*_is_unspecified` says that another choice would be
as right.
"""

from __future__ import annotations

from typing import Any

from dev.model.bodies import DataVersion, Registration, TopicConfig, TopicQueueMappingInfo
from dev.model.headers import NullPointer
from dev.model.settings import Settings
from dev.model.tables import (
    DEFAULT_BROKER_CHANNEL_EXPIRED_TIME,
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerAddrInfo,
    BrokerData,
    BrokerLiveInfo,
    ConcurrentTable,
    Notification,
    QueueData,
    RegisterBrokerResult,
    UnRegisterBroker,
    broker_addr_info,
    not_null,
    state_version,
)

__all__ = [
    "BrokerAddrInfo",
    "BrokerData",
    "BrokerLiveInfo",
    "Notification",
    "QueueData",
    "RouteTables",
    "UnRegisterBroker",
]


class RouteTables:
    """org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager."""

    def __init__(self, settings: Settings) -> None:
        """Start empty."""
        self.settings = settings
        self.topic_queue_table: ConcurrentTable[str, dict[str, QueueData]] = ConcurrentTable()
        self.broker_addr_table: ConcurrentTable[str, BrokerData] = ConcurrentTable()
        self.cluster_addr_table: ConcurrentTable[str, dict[str, None]] = ConcurrentTable()
        self.broker_live_table: ConcurrentTable[BrokerAddrInfo, BrokerLiveInfo] = ConcurrentTable()
        self.filter_server_table: ConcurrentTable[BrokerAddrInfo, list[str]] = ConcurrentTable()
        self.topic_queue_mapping_info_table: ConcurrentTable[str, dict[str | None, TopicQueueMappingInfo]] = (
            ConcurrentTable()
        )
        self.notifications: list[Notification] = []

    # --- topics ---

    def register_topic(self, topic: Any, queue_datas: list[QueueData]) -> None:
        """RouteInfoManager.registerTopic."""
        try:
            existing = self.topic_queue_table.find(topic)
            rows = {} if existing is None else existing
            for queue_data in queue_datas:
                name: Any = queue_data.broker_name
                if self.broker_addr_table.find(name) is None:
                    return
                rows[name] = queue_data
            self.topic_queue_table.store(topic, rows)
        except NullPointer:
            return

    def delete_topic(self, topic: Any) -> None:
        """RouteInfoManager.deleteTopic(topic)."""
        try:
            self.topic_queue_table.remove(topic)
        except NullPointer:
            return

    def delete_topic_in_cluster(self, topic: Any, cluster_name: str) -> None:
        """RouteInfoManager.deleteTopic(topic, clusterName)."""
        try:
            broker_names = self.cluster_addr_table.find(cluster_name)
            if not broker_names:
                return
            rows = self.topic_queue_table.find(topic)
            if rows is not None:
                for broker_name in broker_names:
                    rows.pop(broker_name, None)
                if not rows:
                    self.topic_queue_table.remove(topic)
        except NullPointer:
            return

    def operate_write_perm_of_broker(self, broker_name: Any, *, wipe: bool) -> int:
        """RouteInfoManager.operateWritePermOfBroker; returns the number of rows, changed or not."""
        count = 0
        for rows in self.topic_queue_table.values():
            row = rows.get(broker_name)
            if row is None:
                continue
            row.perm = row.perm & ~PERM_WRITE if wipe else PERM_READ | PERM_WRITE
            count += 1
        return count

    # --- registration ---

    def register_broker(
        self,
        cluster_name: Any,
        broker_addr: Any,
        broker_name: Any,
        broker_id: int,
        ha_server_addr: str | None,
        zone_name: str | None,
        timeout_millis: int | None,
        enable_acting_master: bool | None,
        registration: Registration,
        channel: Any,
        now_ms: int,
    ) -> RegisterBrokerResult | None:
        """RouteInfoManager.registerBroker.

        Returns:
            None when refused (the caller answers an error); an empty result when an exception was swallowed.
        """
        result = RegisterBrokerResult()
        try:
            if self._register(
                result,
                cluster_name,
                broker_addr,
                broker_name,
                broker_id,
                ha_server_addr,
                zone_name,
                timeout_millis,
                enable_acting_master,
                registration,
                channel,
                now_ms,
            ):
                return None
        except NullPointer:
            pass
        return result

    def _register(
        self,
        result: RegisterBrokerResult,
        cluster_name: Any,
        broker_addr: Any,
        broker_name: Any,
        broker_id: int,
        ha_server_addr: str | None,
        zone_name: str | None,
        timeout_millis: int | None,
        enable_acting_master: bool | None,
        registration: Registration,
        channel: Any,
        now_ms: int,
    ) -> bool:
        """The body of registerBroker; True when it returns null. Step numbers are those of the reference, 3.2."""
        # 1
        names = self.cluster_addr_table.find(cluster_name)
        if names is None:
            names = {}
            self.cluster_addr_table.store(cluster_name, names)
        names[broker_name] = None  # a HashSet: even a null name
        # 2
        register_first = False
        broker_data = self.broker_addr_table.find(broker_name)
        if broker_data is None:
            register_first = True
            broker_data = BrokerData(cluster_name, broker_name)
            self.broker_addr_table.store(broker_name, broker_data)
        # 3
        is_old_version_broker = enable_acting_master is None
        broker_data.enable_acting_master = bool(enable_acting_master)
        broker_data.zone_name = zone_name
        # 4
        addrs = broker_data.broker_addrs
        prev_min_broker_id = min(addrs) if addrs else 0
        is_min_broker_id_changed = broker_id < prev_min_broker_id
        # 5
        for other_id in [key for key, addr in addrs.items() if broker_addr is not None and addr == broker_addr]:
            if other_id != broker_id:
                del addrs[other_id]
        # 6
        old_broker_addr = addrs.get(broker_id)
        if old_broker_addr is not None and old_broker_addr != broker_addr:
            old_live = self.broker_live_table.find(broker_addr_info(cluster_name, old_broker_addr))
            if old_live is not None and state_version(old_live.data_version) > state_version(registration.data_version):
                self.broker_live_table.remove(broker_addr_info(cluster_name, broker_addr))
                return False
        # 7
        if broker_id not in addrs and len(not_null(registration.topic_config_table)) == 1:
            return True
        # 8
        old_addr = addrs.get(broker_id)
        addrs[broker_id] = broker_addr
        register_first = register_first or not old_addr
        # 9
        is_master = broker_id == MASTER_ID
        is_prime_slave = not is_old_version_broker and not is_master and broker_id == min(addrs)
        if is_master or is_prime_slave:
            self._register_topics(
                registration,
                cluster_name,
                broker_addr,
                broker_data,
                register_first,
                wipe_write=is_prime_slave and broker_data.enable_acting_master,
            )
        # 13
        addr_info = broker_addr_info(cluster_name, broker_addr)
        self.broker_live_table.store(
            addr_info,
            BrokerLiveInfo(
                now_ms,
                DEFAULT_BROKER_CHANNEL_EXPIRED_TIME if timeout_millis is None else timeout_millis,
                registration.data_version,
                channel,
                ha_server_addr,
            ),
        )
        # 14
        if registration.filter_server_list is not None:
            if not registration.filter_server_list:
                self.filter_server_table.remove(addr_info)
            else:
                self.filter_server_table.store(addr_info, list(registration.filter_server_list))
        # 15
        if broker_id != MASTER_ID:
            master_addr = addrs.get(MASTER_ID)
            if master_addr is not None:
                master_live = self.broker_live_table.find(broker_addr_info(cluster_name, master_addr))
                if master_live is not None:
                    result.ha_server_addr = master_live.ha_server_addr
                    result.master_addr = master_addr
        # 16
        if is_min_broker_id_changed and self.settings.notify_min_broker_id_changed:
            self._notify_min_broker_id_changed(addrs, None, ha_server_addr)
        return False

    def _register_topics(
        self,
        registration: Registration,
        cluster_name: Any,
        broker_addr: Any,
        broker_data: BrokerData,
        register_first: bool,
        *,
        wipe_write: bool,
    ) -> None:
        """Steps 10 to 12 of registerBroker."""
        table = registration.topic_config_table
        if table is None:
            return
        mappings = registration.topic_queue_mapping_info_map
        broker_name = broker_data.broker_name
        version = registration.data_version
        # 10
        if self.settings.delete_topic_with_broker_registration and not not_null(mappings):
            for topic in [topic for topic, rows in self.topic_queue_table.items() if broker_name in rows]:
                if topic not in table:
                    rows = self.topic_queue_table[topic]
                    del rows[broker_name]
                    if not rows:
                        del self.topic_queue_table[topic]
        # 11
        for topic_config in table.values():
            if register_first or self.is_topic_config_changed(
                cluster_name, broker_addr, version, broker_name, topic_config.topic_name
            ):
                if wipe_write:
                    topic_config.perm &= ~PERM_WRITE
                self._create_and_update_queue_data(broker_name, topic_config)
        # 12
        if self.is_broker_topic_config_changed(cluster_name, broker_addr, version) or register_first:
            for topic, mapping in not_null(mappings).items():
                self.topic_queue_mapping_info_table.setdefault(topic, {})[mapping.bname] = mapping

    def is_broker_topic_config_changed(
        self, cluster_name: str | None, broker_addr: str | None, data_version: DataVersion | None
    ) -> bool:
        """RouteInfoManager.isBrokerTopicConfigChanged: only equality counts, an older version is a change too."""
        prev = self.query_broker_topic_config(cluster_name, broker_addr)
        return prev is None or prev != data_version

    def is_topic_config_changed(
        self, cluster_name: str, broker_addr: str, data_version: DataVersion | None, broker_name: str, topic: Any
    ) -> bool:
        """RouteInfoManager.isTopicConfigChanged."""
        if self.is_broker_topic_config_changed(cluster_name, broker_addr, data_version):
            return True
        rows = self.topic_queue_table.find(topic)
        return not rows or broker_name not in rows

    def query_broker_topic_config(self, cluster_name: str | None, broker_addr: str | None) -> DataVersion | None:
        """RouteInfoManager.queryBrokerTopicConfig."""
        live = self.broker_live_table.find(broker_addr_info(cluster_name, broker_addr))
        return None if live is None else live.data_version

    def update_broker_info_update_timestamp(
        self, cluster_name: str | None, broker_addr: str | None, now_ms: int
    ) -> None:
        """RouteInfoManager.updateBrokerInfoUpdateTimestamp."""
        live = self.broker_live_table.find(broker_addr_info(cluster_name, broker_addr))
        if live is not None:
            live.last_update_timestamp = now_ms

    def _create_and_update_queue_data(self, broker_name: str, topic_config: TopicConfig) -> None:
        """RouteInfoManager.createAndUpdateQueueData."""
        queue_data = QueueData(
            broker_name,
            topic_config.read_queue_nums,
            topic_config.write_queue_nums,
            topic_config.perm,
            topic_config.topic_sys_flag,
        )
        topic: Any = topic_config.topic_name
        rows = self.topic_queue_table.find(topic)
        if rows is None:
            self.topic_queue_table.store(topic, {broker_name: queue_data})
        else:
            rows[broker_name] = queue_data

    # --- unregistration ---

    def un_register_broker(self, requests: list[UnRegisterBroker]) -> None:
        """RouteInfoManager.unRegisterBroker: one batch of BatchUnregistrationService."""
        removed: set[str] = set()
        reduced: set[str] = set()
        notify: dict[str, tuple[dict[int, str | None], str | None]] = {}
        try:
            for request in requests:
                self._un_register_one(request, removed, reduced, notify)
            self._clean_topic_by_un_register_requests(removed, reduced)
            if notify and self.settings.notify_min_broker_id_changed:
                for broker_name, (addrs, offline) in notify.items():
                    broker_data = self.broker_addr_table.find(broker_name)
                    if broker_data is not None and broker_data.enable_acting_master:
                        self._notify_min_broker_id_changed(addrs, offline, None)
        except NullPointer:
            return

    def _un_register_one(
        self,
        request: UnRegisterBroker,
        removed: set[str],
        reduced: set[str],
        notify: dict[str, tuple[dict[int, str | None], str | None]],
    ) -> None:
        broker_name: Any = request.broker_name
        addr_info = broker_addr_info(request.cluster_name, request.broker_addr)
        self.broker_live_table.remove(addr_info)
        self.filter_server_table.remove(addr_info)
        remove_broker_name = False
        broker_data = self.broker_addr_table.find(broker_name)
        if broker_data is not None:
            addrs = broker_data.broker_addrs
            if addrs and request.broker_id is None:
                raise NullPointer
            is_min_broker_id_changed = bool(addrs) and request.broker_id == min(addrs)
            for broker_id, addr in list(addrs.items()):
                if addr is None:
                    raise NullPointer
                if addr == request.broker_addr:
                    del addrs[broker_id]
            if not addrs:
                self.broker_addr_table.remove(broker_name)
                remove_broker_name = True
            elif is_min_broker_id_changed:
                notify[broker_name] = (addrs, request.broker_addr)
        if remove_broker_name:
            names = self.cluster_addr_table.find(addr_info.cluster_name)
            if names is not None:
                names.pop(broker_name, None)
                if not names:
                    self.cluster_addr_table.remove(addr_info.cluster_name)
            removed.add(broker_name)
        else:
            reduced.add(broker_name)

    def _clean_topic_by_un_register_requests(self, removed: set[str], reduced: set[str]) -> None:
        """RouteInfoManager.cleanTopicByUnRegisterRequests."""
        for topic, rows in list(self.topic_queue_table.items()):
            for broker_name in removed:
                rows.pop(broker_name, None)
            if not rows:
                del self.topic_queue_table[topic]
            for broker_name in reduced:
                row = rows.get(broker_name)
                if row is not None:
                    broker_data = self.broker_addr_table.find(broker_name)
                    if broker_data is None:
                        raise NullPointer
                    if broker_data.enable_acting_master and self._is_no_master_exists(broker_name):
                        row.perm &= ~PERM_WRITE

    def _is_no_master_exists(self, broker_name: str) -> bool:
        """RouteInfoManager.isNoMasterExists."""
        broker_data = self.broker_addr_table.find(broker_name)
        if broker_data is None or not broker_data.broker_addrs:
            return True
        return min(broker_data.broker_addrs) > MASTER_ID

    # --- liveness ---

    def scan_not_active_broker(self, now_ms: int) -> list[Any]:
        """RouteInfoManager.scanNotActiveBroker.

        Returns:
            The channels it closes; closing one is an event of its own.
        """
        channels = []
        for addr_info, live in list(self.broker_live_table.items()):
            if live.last_update_timestamp + live.heartbeat_timeout_millis < now_ms:
                channels.append(live.channel)
                self._on_broker_destroy(addr_info)
        return channels

    def on_channel_destroy(self, channel: Any) -> None:
        """RouteInfoManager.onChannelDestroy(Channel): the first live row bound to it, and only that."""
        if channel is None:
            return
        for addr_info, live in self.broker_live_table.items():
            if live.channel == channel:
                self._on_broker_destroy(addr_info)
                return

    def _on_broker_destroy(self, addr_info: BrokerAddrInfo) -> None:
        """RouteInfoManager.onChannelDestroy(BrokerAddrInfo)."""
        found = self.groups_of(addr_info)
        if found:
            broker_data, broker_id = found[0]
            self.un_register_broker(
                [UnRegisterBroker(broker_data.broker_name, addr_info.broker_addr, addr_info.cluster_name, broker_id)]
            )

    def groups_of(self, addr_info: BrokerAddrInfo) -> list[tuple[BrokerData, int]]:
        """Every answer RouteInfoManager.setupUnRegisterRequest could give; Java takes the first in hash order."""
        return [
            (broker_data, broker_id)
            for broker_data in self.broker_addr_table.values()
            if broker_data.cluster == addr_info.cluster_name
            for broker_id, addr in broker_data.broker_addrs.items()
            if addr == addr_info.broker_addr
        ]

    def close_is_unspecified(self, channel: Any) -> bool:
        """Return whether closing this channel has an effect that depends on hash order."""
        rows = [addr_info for addr_info, live in self.broker_live_table.items() if live.channel == channel]
        return len(rows) > 1 or any(len(self.groups_of(addr_info)) > 1 for addr_info in rows)

    def scan_is_unspecified(self, now_ms: int) -> bool:
        """Return whether a scan at this time has an effect that depends on hash order or on a race."""
        expired = [
            (addr_info, live)
            for addr_info, live in self.broker_live_table.items()
            if live.last_update_timestamp + live.heartbeat_timeout_millis < now_ms
        ]
        return any(
            len(self.groups_of(addr_info)) > 1 or self.close_is_unspecified(live.channel) for addr_info, live in expired
        )

    # --- notification ---

    def _notify_min_broker_id_changed(
        self, addrs: dict[int, str | None], offline_broker_addr: str | None, ha_broker_addr: str | None
    ) -> None:
        """RouteInfoManager.notifyMinBrokerIdChanged and chooseBrokerAddrsToNotify."""
        if not addrs:
            return
        min_broker_id = min(addrs)
        for broker_id, addr in addrs.items():
            if offline_broker_addr is not None or len(addrs) == 1 or broker_id != min_broker_id:
                self.notifications.append(
                    Notification(addr, min_broker_id, addrs[min_broker_id], offline_broker_addr, ha_broker_addr)
                )
