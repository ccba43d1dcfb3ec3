# SPDX-License-Identifier: Apache-2.0
"""Two masters and a slave with enableSlaveActingMaster, as a NameServer shows them while one group fails over.

`play` knows nothing of who listens at the address. Each broker registers an address at which a proxy records what it is
sent before it passes it on, so that a NameServer's NOTIFY_MIN_BROKER_ID_CHANGE is seen as the broker sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request, canonical
from dev.peers.java import wait_until
from dev.support.recorder import Recorder
from dev.support.rocketmq import StockBroker
from tests.e2e.scenario import Patience, admin, route

CLUSTER, A, B = "failover-cluster", "group-a", "group-b"
TOPIC = "failover-orders"

NAMESRV_PROPERTIES = {
    "supportActingMaster": "true",
    "notifyMinBrokerIdChanged": "true",
    "scanNotActiveBrokerInterval": "1000",
}

TIMEOUT_MS = 10_000
"""A heartbeat comes every second; a busy machine's pauses do not reach this."""

_ACTING = {
    "enableSlaveActingMaster": "true",
    "brokerHeartbeatInterval": "1000",
    "brokerNotActiveTimeoutMillis": str(TIMEOUT_MS),
    "bindAddress": "127.0.0.1",
    "brokerIP1": "127.0.0.2",
}

_READS = (
    Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, version=513),
    Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, version=399),
    Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}, version=513),
    Request(codes.GET_BROKER_CLUSTER_INFO, {}),
    Request(codes.GET_BROKER_MEMBER_GROUP, {"clusterName": CLUSTER, "brokerName": A}),
    Request(codes.GET_TOPICS_BY_CLUSTER, {"cluster": CLUSTER}),
)


@dataclass
class Played:
    """What was seen, with every address replaced by the name of its broker.

    Attributes:
        answers: step -> canonical answers to `_READS`.
        notifications: (broker, extFields) of each request 905, in the order of arrival.
    """

    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notifications: list[tuple[str, dict[str, str]]] = field(default_factory=list)


class Cluster:
    """The three brokers; `with` is for their end, each is started when its time has come."""

    def __init__(self, namesrv_addr: str, stack: ExitStack) -> None:
        self._namesrv_addr, self._stack = namesrv_addr, stack
        self._recorder = stack.enter_context(Recorder())
        self._names: dict[str, str] = {}
        self.played = Played()

    def start(self, group: str, broker_id: int) -> StockBroker:
        """Start one broker; returns when it runs, which is about when it registers."""
        broker = StockBroker(self._namesrv_addr, CLUSTER, group, broker_id, _ACTING)
        name, address = f"{group}/{broker_id}", f"127.0.0.2:{broker.port}"
        self._names[address] = name
        self._recorder.proxy(name, broker.address, address)
        return self._stack.enter_context(broker)

    def members(self, group: str) -> dict[str, str]:
        """brokerAddrs of a group in the topic's route, addresses by name."""
        found = route(self._namesrv_addr, TOPIC) or route(self._namesrv_addr, "TBW102") or {"brokerDatas": []}
        rows = [data for data in found["brokerDatas"] if data["brokerName"] == group]
        return {str(key): self._names[addr] for key, addr in rows[0]["brokerAddrs"].items()} if rows else {}

    def shows(self, step: str, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until a step has taken effect, and note what the NameServer answers then."""
        wait_until(condition, seconds, step)
        self.played.answers[step] = [self._named(request) for request in _READS]

    def take_notifications(self, at_least: int, seconds: float) -> None:
        """Note the requests 905: as many as there must be, and those that come within a second after the last."""
        found = self.played.notifications
        deadline = time.monotonic() + seconds
        quiet_since = time.monotonic()
        while time.monotonic() < deadline and (len(found) < at_least or time.monotonic() < quiet_since + 1):
            for request in self._recorder.take():
                if request.code == codes.NOTIFY_MIN_BROKER_ID_CHANGE and request.oneway:
                    ext = {key: self._names.get(value, value) for key, value in request.ext_fields.items()}
                    found.append((request.server, {key: self._without_port(value) for key, value in ext.items()}))
                    quiet_since = time.monotonic()
            time.sleep(0.05)

    def _named(self, request: Request) -> dict[str, Any]:
        host, _, port = self._namesrv_addr.rpartition(":")
        with RemotingClient(host, int(port)) as client:
            answer = client.call(request)
        text = answer.body.decode()
        for address, name in self._names.items():
            text = text.replace(f'"{address}"', f'"{name}"')
        return canonical(request, type(answer)(answer.code, answer.ext, text.encode(), answer.remark))

    @staticmethod
    def _without_port(value: str) -> str:
        """An HA address is no registered address: its host is enough."""
        return value.partition(":")[0] if value.startswith("127.0.0.1:") else value


def play(namesrv_addr: str, patience: Patience, *, notifications: int = 0) -> Played:
    """Master, slave and second master start; the first group loses its master, gets it back, hears nothing of it for a
    while, and is lost altogether.

    Args:
        namesrv_addr: host:port of the NameServer to prove, which has NAMESRV_PROPERTIES.
        patience: How long effects may take.
        notifications: How many to wait for at the end.
    """
    with ExitStack() as stack:
        cluster = Cluster(namesrv_addr, stack)

        def perms() -> dict[str, int]:
            found = route(namesrv_addr, TOPIC) or {"queueDatas": []}
            return {row["brokerName"]: row["perm"] for row in found["queueDatas"]}

        both = {"0": f"{A}/0", "1": f"{A}/1"}
        master = cluster.start(A, 0)
        cluster.shows("a master alone", lambda: cluster.members(A) == {"0": f"{A}/0"}, patience.registration)
        slave = cluster.start(A, 1)
        cluster.shows("its slave", lambda: cluster.members(A) == both, patience.registration)
        cluster.start(B, 0)
        cluster.shows("a second master", lambda: cluster.members(B) == {"0": f"{B}/0"}, patience.registration)
        admin(namesrv_addr, "updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")
        cluster.shows("a topic on both", lambda: perms() == {A: 6, B: 6}, patience.write)
        master.sigkill()
        cluster.shows("the slave acts as master", lambda: cluster.members(A) == {"0": f"{A}/1"}, patience.disconnect)
        assert perms() == {A: 4, B: 6}, "an acting master takes no messages"
        master.start()
        cluster.shows(
            "the master is back", lambda: cluster.members(A) == both and perms()[A] == 6, patience.registration
        )
        master.sigstop()
        silent = TIMEOUT_MS / 1000 + patience.expiry
        cluster.shows("the master is silent", lambda: cluster.members(A) == {"0": f"{A}/1"}, silent)
        master.sigcont()
        cluster.shows(
            "the master goes on", lambda: cluster.members(A) == both and perms()[A] == 6, patience.registration
        )
        slave.sigkill()
        cluster.shows("the slave is gone", lambda: cluster.members(A) == {"0": f"{A}/0"}, patience.disconnect)
        master.sigkill()
        cluster.shows("the group is gone", lambda: perms() == {B: 6}, patience.disconnect)
        cluster.take_notifications(notifications, patience.write)
        return cluster.played
