# SPDX-License-Identifier: Apache-2.0
"""Parts of the NameServer's six tables: their keys, their values, and ConcurrentHashMap's dislike of null."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from dev.model.bodies import DataVersion
from dev.model.headers import NullPointer

MASTER_ID = 0
PERM_WRITE = 2
PERM_READ = 4
DEFAULT_BROKER_CHANNEL_EXPIRED_TIME = 120_000

K = TypeVar("K")
V = TypeVar("V")


class ConcurrentTable(dict[K, V], Generic[K, V]):
    """java.util.concurrent.ConcurrentHashMap: like a dict, but a null key is an error."""

    def find(self, key: K) -> V | None:
        """`get`."""
        if key is None:
            raise NullPointer
        return self.get(key)

    def remove(self, key: K) -> V | None:
        """`remove`."""
        if key is None:
            raise NullPointer
        return self.pop(key, None)

    def store(self, key: K, value: V) -> V | None:
        """`put`; returns what was there."""
        if key is None:
            raise NullPointer
        before = self.get(key)
        self[key] = value
        return before


class BrokerAddrInfo(NamedTuple):
    """Key of the live and filter server tables."""

    cluster_name: str
    broker_addr: str


def broker_addr_info(cluster_name: str | None, broker_addr: str | None) -> BrokerAddrInfo:
    """BrokerAddrInfo and the hashCode that every use of it begins with."""
    if cluster_name is None or broker_addr is None:
        raise NullPointer
    return BrokerAddrInfo(cluster_name, broker_addr)


def not_null(value: V | None) -> V:
    """A dereference."""
    if value is None:
        raise NullPointer
    return value


def state_version(data_version: DataVersion | None) -> int:
    """DataVersion.getStateVersion."""
    return not_null(data_version).state_version


@dataclass
class QueueData:
    """One broker's row of a topic."""

    broker_name: str | None
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


@dataclass
class BrokerData:
    """One broker group."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str | None] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


@dataclass
class BrokerLiveInfo:
    """One address that registered."""

    last_update_timestamp: int
    heartbeat_timeout_millis: int
    data_version: DataVersion | None
    channel: Any
    ha_server_addr: str | None


class UnRegisterBroker(NamedTuple):
    """UnRegisterBrokerRequestHeader."""

    broker_name: str | None
    broker_addr: str | None
    cluster_name: str | None
    broker_id: int | None


@dataclass(frozen=True)
class Notification:
    """One NOTIFY_MIN_BROKER_ID_CHANGE (905) that goes to a broker, oneway.

    Attributes:
        to: The address it goes to.
        min_broker_id: The smallest id now.
        min_broker_addr: Address of the broker with that id.
        offline_broker_addr: On removal: address of the removed broker.
        ha_broker_addr: On registration: the newcomer's HA address.
    """

    to: str | None
    min_broker_id: int
    min_broker_addr: str | None
    offline_broker_addr: str | None
    ha_broker_addr: str | None


@dataclass
class RegisterBrokerResult:
    """Header fields of the answer to REGISTER_BROKER."""

    ha_server_addr: str | None = None
    master_addr: str | None = None
