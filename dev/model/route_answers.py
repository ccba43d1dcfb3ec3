# SPDX-License-Identifier: Apache-2.0
"""RouteInfoManager's reading side, and the zone hook: what GET_ROUTEINFO_BY_TOPIC and the topic lists are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any

from dev.model.bodies import TopicQueueMappingInfo
from dev.model.headers import NullPointer
from dev.model.route_tables import RouteTables
from dev.model.tables import MASTER_ID, PERM_WRITE, BrokerData, QueueData, broker_addr_info

SYNC_BROKER_MEMBER_GROUP_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
FLAG_UNIT = 1
FLAG_UNIT_SUB = 2


@dataclass
class TopicRouteData:
    """org.apache.rocketmq.remoting.protocol.route.TopicRouteData."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str] | None] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str | None, TopicQueueMappingInfo] | None = None
    order_topic_conf: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the object as fastjson sees it."""
        mappings = self.topic_queue_mapping_by_broker
        return {
            "brokerDatas": [broker_data_json(broker_data) for broker_data in self.broker_datas],
            "filterServerTable": dict(self.filter_server_table),
            "orderTopicConf": self.order_topic_conf,
            "queueDatas": [queue_data_json(queue_data) for queue_data in self.queue_datas],
            "topicQueueMappingByBroker": None
            if mappings is None
            else {bname: mapping.to_json() for bname, mapping in mappings.items()},
        }


def broker_data_json(broker_data: BrokerData) -> dict[str, Any]:
    """BrokerData as fastjson sees it."""
    return {
        "brokerAddrs": dict(broker_data.broker_addrs),
        "brokerName": broker_data.broker_name,
        "cluster": broker_data.cluster,
        "enableActingMaster": broker_data.enable_acting_master,
        "zoneName": broker_data.zone_name,
    }


def queue_data_json(queue_data: QueueData) -> dict[str, Any]:
    """QueueData as fastjson sees it."""
    return {
        "brokerName": queue_data.broker_name,
        "perm": queue_data.perm,
        "readQueueNums": queue_data.read_queue_nums,
        "topicSysFlag": queue_data.topic_sys_flag,
        "writeQueueNums": queue_data.write_queue_nums,
    }


def pickup_topic_route_data(tables: RouteTables, topic: Any) -> list[TopicRouteData]:
    """RouteInfoManager.pickupTopicRouteData.

    Returns:
        Nothing when the topic has no route; else every answer that hash order allows. There is more than one only when
        brokers of different clusters share an address and just one of them has filter servers at it: the later wins.
    """
    try:
        rows = tables.topic_queue_table.find(topic)
    except NullPointer:
        return []
    if rows is None:
        return []
    brokers = [data for data in map(tables.broker_addr_table.get, rows) if data is not None]
    if not brokers:
        return []
    allowed: list[TopicRouteData] = []
    # Without filter servers the order decides nothing.
    for order in permutations(brokers) if tables.filter_server_table else [brokers]:
        route = _pickup(tables, topic, rows, list(order))
        if all(route.filter_server_table != other.filter_server_table for other in allowed):
            allowed.append(route)
    return allowed


def _pickup(tables: RouteTables, topic: str, rows: dict[str, QueueData], brokers: list[BrokerData]) -> TopicRouteData:
    """pickupTopicRouteData for one order of the brokers."""
    route = TopicRouteData(queue_datas=list(rows.values()))
    for data in brokers:
        clone = BrokerData(
            data.cluster, data.broker_name, dict(data.broker_addrs), data.zone_name, data.enable_acting_master
        )
        route.broker_datas.append(clone)
        if not tables.filter_server_table:
            continue
        for addr in clone.broker_addrs.values():
            if addr is None:
                continue  # Java throws here; addresses are never null in the histories that carry filter servers
            key = broker_addr_info(clone.cluster, addr)
            route.filter_server_table[addr] = tables.filter_server_table.find(key)
    # A null value is put into the map and left out of the JSON.
    route.filter_server_table = {
        addr: servers for addr, servers in route.filter_server_table.items() if servers is not None
    }
    route.topic_queue_mapping_by_broker = tables.topic_queue_mapping_info_table.get(topic)
    if tables.settings.support_acting_master and not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX):
        _promote_acting_masters(route)
    return route


def _promote_acting_masters(route: TopicRouteData) -> None:
    """The second half of pickupTopicRouteData: the smallest id of a group without master is shown as 0."""
    for broker_data in route.broker_datas:
        addrs = broker_data.broker_addrs
        if not addrs or MASTER_ID in addrs or not broker_data.enable_acting_master:
            continue
        for queue_data in route.queue_datas:
            if queue_data.broker_name == broker_data.broker_name:
                if not queue_data.perm & PERM_WRITE:
                    addrs[MASTER_ID] = addrs.pop(min(addrs))
                break


def filter_by_zone_name(route: TopicRouteData, zone_name: str) -> None:
    """ZoneRouteRPCHook.filterByZoneName."""
    reserved, removed = [], {}
    for broker_data in route.broker_datas:
        zone = broker_data.zone_name
        same_zone = zone is not None and zone.lower() == zone_name.lower()
        if broker_data.broker_addrs.get(MASTER_ID) is None or same_zone:
            reserved.append(broker_data)
        else:
            removed[broker_data.broker_name] = broker_data
    route.broker_datas = reserved
    route.queue_datas = [row for row in route.queue_datas if row.broker_name not in removed]
    for broker_data in removed.values():
        for addr in broker_data.broker_addrs.values():
            if addr is not None:
                route.filter_server_table.pop(addr, None)


def cluster_info_json(tables: RouteTables) -> dict[str, Any]:
    """RouteInfoManager.getAllClusterInfo."""
    return {
        "brokerAddrTable": {name: broker_data_json(data) for name, data in tables.broker_addr_table.items()},
        "clusterAddrTable": {cluster: list(names) for cluster, names in tables.cluster_addr_table.items()},
    }


def topics_by_cluster(tables: RouteTables, cluster: Any) -> list[str]:
    """RouteInfoManager.getTopicsByCluster; an unknown cluster is a swallowed exception and an empty list."""
    names = tables.cluster_addr_table.get(cluster, {})
    return [topic for topic, rows in tables.topic_queue_table.items() if any(name in rows for name in names)]


def system_topics(tables: RouteTables) -> tuple[list[str | None], list[str | None]]:
    """RouteInfoManager.getSystemTopicList.

    Returns:
        The cluster and broker names, and every address that may be named with them.
    """
    topics: dict[str | None, None] = {}
    for cluster, names in tables.cluster_addr_table.items():
        topics[cluster] = None
        for name in list[str | None](names):
            if name is None:
                # TopicList refuses the null, and the swallowed exception ends the list wherever hash order had got to.
                return list(topics), []
            topics[name] = None
    addrs = [addr for data in tables.broker_addr_table.values() for addr in data.broker_addrs.values()]
    return list(topics), addrs


def unit_topic_lists(tables: RouteTables, *, unit: bool | None, unit_sub: bool | None) -> list[list[str]]:
    """getUnitTopics, getHasUnitSubTopicList, getHasUnitSubUnUnitTopicList.

    Java looks at one row of the topic, the first in hash order.

    Args:
        tables: The tables.
        unit: Wanted unit flag; None for any.
        unit_sub: Wanted unit subscription flag; None for any.

    Returns:
        Every list that hash order allows.
    """

    def matches(row: QueueData) -> bool:
        has_unit, has_sub = bool(row.topic_sys_flag & FLAG_UNIT), bool(row.topic_sys_flag & FLAG_UNIT_SUB)
        return (unit is None or has_unit == unit) and (unit_sub is None or has_sub == unit_sub)

    certain: list[str] = []
    open_topics: list[str] = []
    for topic, rows in tables.topic_queue_table.items():
        outcomes = {matches(row) for row in rows.values()}
        if outcomes == {True}:
            certain.append(topic)
        elif len(outcomes) == 2:
            open_topics.append(topic)
    return [
        certain + [topic for topic, chosen in zip(open_topics, choice, strict=True) if chosen]
        for choice in product((False, True), repeat=len(open_topics))
    ]
