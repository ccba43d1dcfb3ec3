# SPDX-License-Identifier: Apache-2.0
"""Lookup of the address of a brokerName. Pure.

A broker table is {brokerName: {brokerId: address}} from all routes (MQClientInstance.brokerAddrTable).

Sources (5.5.0): MQClientInstance.findBrokerAddressInPublish, InSubscribe, InAdmin, cleanOfflineBroker,
BrokerData.selectBrokerAddr, org.apache.rocketmq.common.MixAll.brokerVIPChannel.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from schemas.broker import MASTER_ID
from schemas.errors import SetupError
from schemas.route import BrokerData, TopicRouteData

VIP_PORT_OFFSET: Final = 2
"""Distance of a broker's "fast" port, for sends only, below its own port."""

BrokerTable = Mapping[str, Mapping[int, str]]


class FindBrokerResult(NamedTuple):
    """An address, and whether it belongs to a slave."""

    broker_addr: str
    slave: bool


def find_broker_address_in_publish(table: BrokerTable, broker_name: str) -> str | None:
    """Return the address of the master."""
    return table.get(broker_name, {}).get(MASTER_ID)


def find_broker_address_in_subscribe(
    table: BrokerTable, broker_name: str, broker_id: int, *, only_this_broker: bool
) -> FindBrokerResult | None:
    """Return the address to read from.

    Args:
        table: The broker table.
        broker_name: Name of the group.
        broker_id: Id of the member. If a slave is missing, the next slave is used.
        only_this_broker: Whether only this member is allowed. If false, any other member may replace it.
    """
    group = table.get(broker_name) or {}
    found = group.get(broker_id)
    slave = broker_id != MASTER_ID
    if found is None and slave:
        found = group.get(broker_id + 1)
    if found is None and not only_this_broker:
        return find_broker_address_in_admin(table, broker_name)
    return None if found is None else FindBrokerResult(found, slave)


def find_broker_address_in_admin(table: BrokerTable, broker_name: str) -> FindBrokerResult | None:
    """Return the address of the member with the lowest brokerId."""
    for broker_id, address in sorted((table.get(broker_name) or {}).items()):
        return FindBrokerResult(address, broker_id != MASTER_ID)
    return None


def select_broker_addr(group: BrokerData, choice: random.Random) -> str | None:
    """Return the master's address, or a random slave's (selectBrokerAddr). None: the group has no members."""
    master = group.broker_addrs.get(MASTER_ID)
    if master is not None:
        return master
    slaves = [address for _, address in sorted(group.broker_addrs.items())]
    return choice.choice(slaves) if slaves else None


def without_offline(table: BrokerTable, routes: Iterable[TopicRouteData]) -> dict[str, dict[int, str]]:
    """Return the broker table with only the addresses that are in a cached route (cleanOfflineBroker)."""
    known = {address for route in routes for group in route.broker_datas for address in group.broker_addrs.values()}
    kept = {
        name: {broker_id: address for broker_id, address in group.items() if address in known}
        for name, group in table.items()
    }
    return {name: group for name, group in kept.items() if group}


def broker_vip_channel(broker_addr: str) -> str:
    """Return the address of a broker's fast port (MixAll.brokerVIPChannel).

    Raises:
        SetupError: The address has no port, or its port is below 3.
    """
    host, _, port = broker_addr.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) <= VIP_PORT_OFFSET:
        raise SetupError(f"the broker at {broker_addr!r} can have no VIP channel: it needs host:port, port 3 or higher")
    return f"{host}:{int(port) - VIP_PORT_OFFSET}"
