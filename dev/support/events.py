# SPDX-License-Identifier: Apache-2.0
"""Short ways to write events, and a state that is driven by them: for tests that spell a history out."""

from __future__ import annotations

from typing import Any

from dev.support.naive import all_changes_of
from nameserver.state_machine.changes import RowChange
from nameserver.state_machine.state import At, BrokerGroup, Outcome, RouteState
from nameserver.state_machine.step import GroupChange, KvChange, apply, step
from schemas.broker import DataVersion, QueueRow, TopicQueueMappingInfo
from schemas.events import (
    Actor,
    AddWritePerm,
    AnyEvent,
    BrokerHeartbeat,
    Channel,
    ChannelClosed,
    Clock,
    DeleteKvConfig,
    DeleteTopic,
    Preserve,
    PreserveEnd,
    PutKvConfig,
    RegisterBroker,
    RegisterTopic,
    RegisterTopicQueue,
    Resume,
    UnregisterBroker,
    WipeWritePerm,
    topic_config_digest,
)

ROW = QueueRow(8, 8, 6, 0)
V0, V1, V2, V3 = (DataVersion(0, 1_700_000_000_000, counter) for counter in range(4))
TIMEOUT_MS = 120_000


def actor(gateway: str = "g1") -> Actor:
    return Actor(gateway=gateway, via="remoting", peer="10.9.9.9:1234")


def topics(*names: str, row: QueueRow = ROW) -> dict[str, QueueRow]:
    return dict.fromkeys(names, row)


def register(
    addr: str = "a0:1",
    broker_id: int = 0,
    *,
    name: str = "b",
    cluster: str = "c",
    table: dict[str, QueueRow] | None = None,
    version: DataVersion = V1,
    connection: str | None = None,
    gateway: str = "g1",
    slim: bool = False,
    **more: Any,
) -> RegisterBroker:
    """A registration with topics T and U unless told otherwise; ``slim`` leaves the topics out, as a gateway may."""
    full = topics("T", "U") if table is None else table
    return RegisterBroker(
        actor=actor(gateway),
        cluster_name=cluster,
        broker_name=name,
        broker_addr=addr,
        broker_id=broker_id,
        data_version=version,
        topic_config_digest=topic_config_digest(full),
        topic_config_table=None if slim else full,
        channel=None if connection is None else Channel(gateway=gateway, connection=connection),
        **more,
    )


def unregister(
    addr: str = "a0:1", broker_id: int | None = 0, *, name: str = "b", cluster: str = "c"
) -> UnregisterBroker:
    return UnregisterBroker(
        actor=actor(), cluster_name=cluster, broker_name=name, broker_addr=addr, broker_id=broker_id
    )


def heartbeat(addr: str = "a0:1", *, name: str = "b", cluster: str = "c", gateway: str = "g1") -> BrokerHeartbeat:
    return BrokerHeartbeat(actor=actor(gateway), cluster_name=cluster, broker_name=name, broker_addr=addr)


def closed(
    addr: str = "a0:1",
    connection: str = "1",
    *,
    name: str = "b",
    cluster: str = "c",
    gateway: str = "g1",
    grace_ms: int = 0,
) -> ChannelClosed:
    return ChannelClosed(
        actor=actor(gateway),
        cluster_name=cluster,
        broker_name=name,
        broker_addr=addr,
        channel=Channel(gateway=gateway, connection=connection),
        grace_ms=grace_ms,
    )


def delete_topic(topic: str, cluster: str | None = None) -> DeleteTopic:
    return DeleteTopic(actor=actor(), topic=topic, cluster_name=cluster)


def register_topic(topic: str, row: QueueRow = ROW, *, name: str = "b") -> RegisterTopic:
    return RegisterTopic(actor=actor(), topic=topic, queue_data=RegisterTopicQueue(name, *row))


def wipe(name: str = "b") -> WipeWritePerm:
    return WipeWritePerm(actor=actor(), broker_name=name)


def add(name: str = "b") -> AddWritePerm:
    return AddWritePerm(actor=actor(), broker_name=name)


def put(namespace: str, key: str, value: str | None = "v") -> PutKvConfig:
    return PutKvConfig(actor=actor(), namespace=namespace, key=key, value=value)


def delete(namespace: str, key: str) -> DeleteKvConfig:
    return DeleteKvConfig(actor=actor(), namespace=namespace, key=key)


def clock(gateway: str = "g1") -> Clock:
    return Clock(actor=actor(gateway))


def resume(gateway: str = "g1", *, after_ms: int | None = None) -> Resume:
    return Resume(actor=actor(gateway), after_ms=after_ms)


def preserve(gateway: str = "g1") -> Preserve:
    return Preserve(actor=actor(gateway), live=20, silent=19, percent=15)


def preserve_end(grace_ms: int = 0, gateway: str = "g1") -> PreserveEnd:
    return PreserveEnd(actor=actor(gateway), grace_ms=grace_ms, reason="REQUESTED")


def mapping(topic: str, bname: str | None = "b", epoch: int = 1) -> TopicQueueMappingInfo:
    return TopicQueueMappingInfo(topic, "__global__", 4, bname, epoch, False, {0: 0})


class Fold:
    """The pure fold, one event after another; offsets count from 1, time stands still unless told."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.state = RouteState()
        self.offset = 0
        self.now_ms = now_ms
        self.changes: list[GroupChange | KvChange] = []

    def __call__(self, event: AnyEvent, *, after_ms: int = 0) -> Outcome:
        """Fold one event, ``after_ms`` after the one before; returns its outcome."""
        self.offset += 1
        self.now_ms += after_ms
        done = step(self.state, event, At(self.offset, self.now_ms))
        apply(self.state, done)
        self.changes = done.changes
        return done.outcome

    def group(self, name: str = "b") -> BrokerGroup:
        """A group, empty when unknown."""
        return self.state.groups.get(name) or BrokerGroup(name)

    def topics(self, name: str = "b") -> dict[str, QueueRow]:
        return dict(self.group(name).topics.rows)

    def perms(self, name: str = "b") -> dict[str, int]:
        return {topic: row.perm for topic, row in self.topics(name).items()}

    def addrs(self, name: str = "b") -> dict[int, str]:
        return dict(self.group(name).broker_addrs)

    def live(self, name: str = "b") -> set[tuple[str, str]]:
        return set(self.group(name).live)

    @property
    def rows(self) -> list[RowChange]:
        """Row changes of the last event."""
        return [row for change in self.changes for row in all_changes_of(change)]
