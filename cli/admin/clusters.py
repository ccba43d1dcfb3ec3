# SPDX-License-Identifier: Apache-2.0
"""Lookup of the brokers of a cluster, in stock mqadmin's order. Pure.

Source (5.5.0): org.apache.rocketmq.tools.command.CommandUtil.
"""

from __future__ import annotations

from typing import NamedTuple

from cli.admin.java_hash import hash_order
from schemas.broker import MASTER_ID
from schemas.errors import RoutelakeError
from schemas.route import BrokerData, ClusterInfo


class NoSuchClusterError(RoutelakeError):
    """The NameServer does not know the cluster, or the cluster has no broker for the request."""


class Server(NamedTuple):
    """Destination of a request: ``name`` is a brokerName or "NameServer", ``address`` is host:port."""

    name: str
    address: str


def cluster_broker_names(info: ClusterInfo, cluster: str) -> list[str]:
    """The broker names of a cluster (fetchBrokerNameByClusterName).

    Raises:
        NoSuchClusterError: The cluster does not exist.
    """
    names = info.cluster_addr_table.get(cluster)
    if not names:
        known = ", ".join(sorted(info.cluster_addr_table)) or "none"
        raise NoSuchClusterError(
            f"no cluster {cluster!r}: the NameServer knows {known}. Check the name, and the NameServer of -n."
        )
    return hash_order(names)


def cluster_masters(info: ClusterInfo, cluster: str) -> list[Server]:
    """The masters of a cluster (fetchMasterAddrByClusterName).

    Raises:
        NoSuchClusterError: The cluster does not exist.
    """
    by_address: dict[str, str] = {}
    for name in cluster_broker_names(info, cluster):
        address = _addresses(info, name).get(MASTER_ID)
        if address is not None:
            by_address[address] = name
    return [Server(by_address[address], address) for address in hash_order(by_address)]


def groups_without_master(info: ClusterInfo, cluster: str) -> list[str]:
    """The broker names of a cluster that have no master now. Stock mqadmin skips them without a message."""
    return sorted(name for name in cluster_broker_names(info, cluster) if MASTER_ID not in _addresses(info, name))


def broker_name_of(info: ClusterInfo, address: str) -> str:
    """The broker name that has an address (fetchBrokerNameByAddr).

    Raises:
        NoSuchClusterError: No broker has the address.
    """
    for name in hash_order(info.broker_addr_table):
        if address in _addresses(info, name).values():
            return name
    raise NoSuchClusterError(
        f"no broker has the address {address}. Check that it is registered with the NameServer of -n."
    )


def select_broker_addr(data: BrokerData) -> str | None:
    """The address to read from: the master's, or that of the lowest brokerId.

    Stock mqadmin uses a random slave instead (BrokerData.selectBrokerAddr).
    """
    return data.broker_addrs[min(data.broker_addrs)] if data.broker_addrs else None


def cluster_of(info: ClusterInfo, broker_name: str) -> list[str]:
    """The clusters that have a broker name. The cluster that stock mqadmin finds first comes first."""
    return [name for name in hash_order(info.cluster_addr_table) if broker_name in info.cluster_addr_table[name]]


def _addresses(info: ClusterInfo, name: str) -> dict[int, str]:
    data = info.broker_addr_table.get(name)
    return {} if data is None else data.broker_addrs
