# SPDX-License-Identifier: Apache-2.0
"""A cluster of 1,000 brokers and 3,000,000 topics behind one address meets no quota, whatever befalls all of it at once."""

from __future__ import annotations

import hashlib
from typing import Any

from schemas.broker import DataVersion, QueueRow
from schemas.events import Actor, Channel, ChannelClosed, RegisterBroker, encode
from security.admission.quotas import GatewayQuotas
from security.roles import Role

BROKERS, TOPICS = 1_000, 3_000
NAT = Actor("g", "remoting", "10.0.0.1:5")
NAMES = [f"topic-{hashlib.sha256(b'%d' % number).hexdigest()[:10]}" for number in range(TOPICS)]
"""Rather less alike than those of people."""
ROW = QueueRow(8, 8, 6, 0)


class Rows:
    """Of a topic that all brokers have."""

    brokers = tuple(f"broker-{number}" for number in range(BROKERS))

    def find(self, _name: str) -> object:
        return ROW


class View:
    """What quotas ask a view for."""

    def __init__(self) -> None:
        self.groups: dict[str, object] = {}
        self.topics: dict[str, Rows] = {}
        self.mapping_tables: dict[str, object] = {}
        self.kv: dict[str, dict[str, str]] = {}

    def live_rows(self, name: str) -> dict[tuple[str, str], object]:
        return {("c", f"{name}:10911"): None} if name in self.groups else {}


class Cluster:
    """All its brokers, at a gateway without a log."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.quotas = GatewayQuotas(clock=lambda: self.now_s)
        self.view: Any = View()
        event = self.registration("broker-0", NAMES)
        self.payload = encode(event)
        assert len(self.payload) > 10_000

    def registration(self, name: str, topics: list[str]) -> RegisterBroker:
        return RegisterBroker(
            actor=NAT, cluster_name="c", broker_name=name, broker_addr=f"{name}:10911", broker_id=0,
            data_version=DataVersion(0, 0, 1), topic_config_digest="d",
            topic_config_table=dict.fromkeys(topics, ROW),
        )  # fmt: skip

    def register(self, topics: list[str] = NAMES) -> None:
        """All of them, within a minute."""
        event = self.registration("broker-0", topics)
        for name in Rows.brokers:
            self.quotas.request(Role.BROKER, "10.0.0.1", "")
            one = RegisterBroker(**{**fields(event), "broker_name": name, "broker_addr": f"{name}:10911"})
            self.quotas.registration(one, topics, self.payload, self.view)
            self.view.groups[name] = None
            for topic in topics:
                self.view.topics.setdefault(topic, Rows())
            self.now_s += 0.05

    def disconnect(self) -> None:
        for name in Rows.brokers:
            closed = ChannelClosed(
                actor=NAT, cluster_name="c", broker_name=name, broker_addr=f"{name}:10911", channel=Channel("g", "1")
            )
            self.quotas.command(closed, encode(closed), self.view)
        self.view.groups.clear()
        self.view.topics.clear()

    def live(self, seconds: int) -> None:
        """Heartbeats each second, and a registration each half minute that repeats the last one."""
        live: Any = type("Live", (), {"last_update_ms": self.now_s * 1000, "heartbeat_timeout_ms": 120_000})
        for _ in range(seconds):
            for _ in range(BROKERS + BROKERS // 30):
                self.quotas.request(Role.BROKER, "10.0.0.1", "")
                self.quotas.admit_heartbeat(NAT, 250, live, round(self.now_s * 1000))
            self.now_s += 1.0
            live.last_update_ms = self.now_s * 1000 - 29_000


def fields(event: RegisterBroker) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


def test_nobody_is_refused() -> None:
    cluster = Cluster()
    cluster.register()
    cluster.live(100)
    for _ in range(2):
        cluster.disconnect()
        cluster.register()
        cluster.live(10)
    assert not cluster.quotas.refused


def test_a_new_topic_on_all_of_them() -> None:
    cluster = Cluster()
    cluster.register()
    cluster.register([*NAMES, "a-new-one"])
    assert not cluster.quotas.refused
