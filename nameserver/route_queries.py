# SPDX-License-Identifier: Apache-2.0
"""Route answers of a view: pure functions from a `RouteView` to the structures of `schemas.route`.

The steps are those of a GET_ROUTEINFO_BY_TOPIC, in this order: rows and brokers, mapping, acting master, order
configuration, zone filter. The zone filter sees acting masters as masters. Switches are parameters. Lists are sorted by
brokerName (RocketMQ leaves them in hash order), so that every gateway gives the same bytes.

Source: RouteInfoManager.pickupTopicRouteData and getAllClusterInfo, ClientRequestProcessor.getRouteInfoByTopic,
ZoneRouteRPCHook.filterByZoneName (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from nameserver.view.model import RouteBroker, Row
from nameserver.view.snapshot import RouteView
from schemas.broker import MASTER_ID, PERM_WRITE
from schemas.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from schemas.topic_names import SYNC_BROKER_MEMBER_GROUP_PREFIX


def pick_up_topic_route(
    view: RouteView, topic: str, *, support_acting_master: bool = False, order_message_enable: bool = False
) -> TopicRouteData | None:
    """Return the route of a topic before the zone filter. None means TOPIC_NOT_EXIST.

    Args:
        view: View to answer from.
        topic: Topic.
        support_acting_master: NamesrvConfig.supportActingMaster.
        order_message_enable: NamesrvConfig.orderMessageEnable.
    """
    rows = view.topics.get(topic)
    if rows is None:
        return None
    groups = [group for group in map(view.groups.get, rows.brokers) if group is not None]
    if not groups:
        return None
    broker_datas = [broker_data(group) for group in groups]
    if support_acting_master and promotes(topic):
        broker_datas = [
            data if is_acting_master(group, rows.find(group.name)) is None else with_acting_master(data)
            for group, data in zip(groups, broker_datas, strict=True)
        ]
    mapping = view.mapping(topic)
    return TopicRouteData(
        broker_datas=broker_datas,
        filter_server_table=filter_server_table(groups),
        order_topic_conf=view.order_topic_conf(topic) if order_message_enable else None,
        queue_datas=[queue_data(name, row) for name, row in zip(rows.brokers, rows.rows, strict=True)],
        topic_queue_mapping_by_broker=None if mapping is None else dict(mapping),
    )


def broker_data(group: RouteBroker) -> BrokerData:
    """Return a group with its true broker ids."""
    row = group.row
    return BrokerData(
        broker_addrs=row.broker_addrs,
        broker_name=group.name,
        cluster=row.cluster,
        enable_acting_master=row.enable_acting_master,
        zone_name=row.zone_name,
    )


def queue_data(broker_name: str, row: Row) -> QueueData:
    """Return a topic's row on one group."""
    read, write, perm, flag = row
    return QueueData(
        broker_name=broker_name, perm=perm, read_queue_nums=read, topic_sys_flag=flag, write_queue_nums=write
    )


def filter_server_table(groups: Iterable[RouteBroker]) -> dict[str, list[str]]:
    """Return the filter servers by address, if all groups at the address agree. Java takes those of the last group."""
    table: dict[str, tuple[str, ...] | None] = {}
    for group in groups:
        for addr in group.row.broker_addrs.values():
            servers = group.filter_servers.get(addr)
            table[addr] = servers if table.get(addr, servers) == servers else None
    return {addr: list(servers) for addr, servers in sorted(table.items()) if servers is not None}


def promotes(topic: str) -> bool:
    """Return True if acting masters are shown in this topic's route. Brokers read their true ids from other topics."""
    return not topic.startswith(SYNC_BROKER_MEMBER_GROUP_PREFIX)


def may_need_acting_master(group: RouteBroker) -> bool:
    """Return True if the group has no master and lets a slave act as master."""
    addrs = group.row.broker_addrs
    return bool(addrs) and MASTER_ID not in addrs and group.row.enable_acting_master


def is_acting_master(group: RouteBroker, row: Row | None) -> int | None:
    """Return the brokerId that a route shows as 0: the smallest, if the topic's row is not writable. Otherwise None."""
    if row is None or row[2] & PERM_WRITE or not may_need_acting_master(group):
        return None
    return min(group.row.broker_addrs)


def with_acting_master(data: BrokerData) -> BrokerData:
    """Return the group as shown if its smallest brokerId acts as master."""
    acting = min(data.broker_addrs)
    addrs = {MASTER_ID if broker_id == acting else broker_id: addr for broker_id, addr in data.broker_addrs.items()}
    return msgspec.structs.replace(data, broker_addrs=dict(sorted(addrs.items())))


def filter_by_zone(route: TopicRouteData, zone_name: str) -> TopicRouteData:
    """Keep the brokers without a master and those of the zone, ignoring case. The result may be empty.

    Call it only if ``__ZONE_MODE`` is true and ``__ZONE_NAME`` is not blank.
    """
    zone = zone_name.lower()
    kept: list[BrokerData] = []
    dropped: list[BrokerData] = []
    for data in route.broker_datas:
        same = data.zone_name is not None and data.zone_name.lower() == zone
        (kept if same or MASTER_ID not in data.broker_addrs else dropped).append(data)
    names = {data.broker_name for data in dropped}
    addrs = {addr for data in dropped for addr in data.broker_addrs.values()}
    return msgspec.structs.replace(
        route,
        broker_datas=kept,
        queue_datas=[row for row in route.queue_datas if row.broker_name not in names],
        filter_server_table={addr: servers for addr, servers in route.filter_server_table.items() if addr not in addrs},
    )


def cluster_info(view: RouteView) -> ClusterInfo:
    """Return every broker group with its true ids, and the members of every cluster."""
    return ClusterInfo(
        broker_addr_table={name: broker_data(group) for name, group in view.groups.items()},
        cluster_addr_table={cluster: list(names) for cluster, names in view.clusters.items()},
    )
