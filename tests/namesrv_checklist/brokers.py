# SPDX-License-Identifier: Apache-2.0
"""The brokers of RocketMQ's own NameServer tests (RouteInfoManagerNewTest.BrokerBasicInfo), and a NameServer to ask.

Requests go to the handler of the remoting API, with fold and view behind it, and without files, threads or sockets. A
test that needs these has `nameserver_on_the_wire`: a gateway in this process, the real Delta writer behind it.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.settings import Settings
from dev.model.wire import Request, Response, parse_fastjson
from dev.peers.java import wait_until
from dev.support.in_memory import InMemoryNameServer
from dev.support.local import LocalGateway, LocalLake
from remoting.server.settings import RemotingSettings

PREFIX = "127.0.0.1:"
CLUSTER, BROKER, ADDR = "DefaultCluster", "broker_name", f"{PREFIX}10911"


@dataclass(frozen=True)
class Broker:
    """BrokerBasicInfo: one broker and the DataVersion it will send."""

    cluster: str = CLUSTER
    name: str = BROKER
    addr: str = ADDR
    ha_addr: str = f"{PREFIX}20911"
    broker_id: int = 0
    acting: bool | None = True
    counter: int = 1
    timestamp: int = 1_700_000_000_000

    def but(self, **changes: Any) -> Broker:
        """The same broker with other values."""
        return replace(self, **changes)

    def next_version(self) -> Broker:
        """DataVersion.nextVersion."""
        return replace(self, counter=self.counter + 1, timestamp=self.timestamp + 1)

    @property
    def version(self) -> dict[str, int]:
        return {"stateVersion": 0, "timestamp": self.timestamp, "counter": self.counter}

    @property
    def header(self) -> dict[str, Any]:
        return {
            "clusterName": self.cluster,
            "brokerName": self.name,
            "brokerAddr": self.addr,
            "brokerId": str(self.broker_id),
        }


MASTER = Broker()


def topic_config(topic: str, queues: int = 8, flag: int = 0) -> dict[str, Any]:
    """A TopicConfig."""
    return {
        "topicName": topic,
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicSysFlag": flag,
        "order": False,
    }


def registration(
    broker: Broker,
    *topics: str | dict[str, Any],
    base: bool = True,
    **ext: str,
) -> Request:
    """A REGISTER_BROKER with its crc32."""
    configs = [topic_config(topic) if isinstance(topic, str) else topic for topic in topics]
    if base:
        configs.append(topic_config("baseTopic", 16))
    wrapper = {
        "dataVersion": broker.version,
        "topicConfigTable": {config["topicName"]: config for config in configs},
        "topicQueueMappingInfoMap": {},
    }
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    crc32 = str(zlib.crc32(body) & 0x7FFFFFFF)
    header = {**broker.header, "haServerAddr": broker.ha_addr, "bodyCrc32": crc32, **ext}
    if broker.acting is not None:
        header["enableActingMaster"] = str(broker.acting).lower()
    return Request(codes.REGISTER_BROKER, header, body, 513)


class MemoryClient:
    """A connection to a NameServer in memory, with the methods of a `RemotingClient`."""

    def __init__(self, runner: asyncio.Runner, server: InMemoryNameServer, name: str) -> None:
        self._runner, self._server, self._name = runner, server, name
        self._answers: list[Response] = []

    def call(self, request: Request) -> Response:
        now_ms = self._server.gateway.now_ms + 1
        return self._runner.run(self._server.handle(request, now_ms, self._name))

    def send(self, request: Request) -> int:
        self._answers.append(self.call(request))
        return len(self._answers) - 1

    def receive(self, opaque: int, _timeout_s: float) -> Response:
        return self._answers[opaque]


@dataclass
class NameServer:
    """What RocketMQ's tests call RouteInfoManager and the processors.

    Attributes:
        client: A connection that tests share.
        connect: Opens a connection of its own over the wire, as a broker has.
        local: The gateway and its lake, if it is one on the wire.
    """

    client: Any
    connect: Callable[[], Any]
    local: tuple[LocalLake, LocalGateway] | None = None

    def call(self, code: int, body: bytes = b"", **ext: str) -> Response:
        """One request over the shared connection."""
        answer: Response = self.client.call(Request(code, ext, body))
        return answer

    def json(self, code: int) -> Any:
        """The body of an answer that must be OK."""
        answer = self.call(code)
        assert answer.code == codes.SUCCESS, answer
        return parse_fastjson(answer.body.decode())[0]

    # --- brokers ---

    def register(self, broker: Broker, *topics: str | dict[str, Any], **more: Any) -> Response:
        """REGISTER_BROKER; like RocketMQ's helper it adds "baseTopic" unless told otherwise (`registration`).

        Args:
            broker: Who.
            topics: Names or TopicConfigs.
            more: ``over`` is the connection; the rest as `registration`.
        """
        answer: Response = (more.pop("over", None) or self.client).call(registration(broker, *topics, **more))
        return answer

    def register_all(self, brokers: Iterable[Broker], *topics: str, **more: Any) -> None:
        """Many registrations at a time."""
        opaques = [self.client.send(registration(broker, *topics, **more)) for broker in brokers]
        assert {self.client.receive(opaque, 20).code for opaque in opaques} == {codes.SUCCESS}

    def register_topic(self, broker_name: str, topic: str) -> None:
        """REGISTER_TOPIC_IN_NAMESRV of one row."""
        row = {"brokerName": broker_name, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
        body = json.dumps({"queueDatas": [row]}).encode()
        assert self.call(codes.REGISTER_TOPIC_IN_NAMESRV, body, topic=topic).code == codes.SUCCESS

    # --- reading ---

    def route(self, topic: str) -> dict[str, Any] | None:
        """The route; None for TOPIC_NOT_EXIST."""
        answer = self.call(codes.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if answer.code == codes.TOPIC_NOT_EXIST:
            return None
        assert answer.code == codes.SUCCESS, answer
        found: dict[str, Any] = parse_fastjson(answer.body.decode())[0]
        return found

    def brokers(self, topic: str) -> set[str]:
        """Names in a route."""
        route = self.route(topic) or {"brokerDatas": []}
        return {data["brokerName"] for data in route["brokerDatas"]}

    def topics(self, code: int) -> set[str]:
        """topicList of an answer."""
        return set(self.json(code)["topicList"])

    def changes(self) -> list[dict[str, Any]]:
        """routeChangeTable of a NameServer on the wire."""
        assert self.local is not None
        found = DeltaTable(str(self.local[0].lake_dir / "routeChangeTable")).to_pyarrow_table().to_pylist()
        return list(found)


@contextmanager
def nameserver() -> Iterator[NameServer]:
    """A NameServer in memory."""

    async def make() -> InMemoryNameServer:
        return InMemoryNameServer(Settings())

    with asyncio.Runner() as runner:
        client = MemoryClient(runner, runner.run(make()), "connection")
        yield NameServer(client, lambda: client)


@contextmanager
def nameserver_on_the_wire(
    folder: Path, bounds: RemotingSettings | None = None, **settings: Any
) -> Iterator[NameServer]:
    """A NameServer with these settings, asked over sockets."""
    with (
        LocalLake(folder, liveness_interval_s=0.05) as lake,
        lake.gateway(bounds, clock_interval_s=0.05, **settings) as gateway,
        ExitStack() as connections,
    ):

        def connect() -> RemotingClient:
            return connections.enter_context(gateway.connect())

        yield NameServer(connect(), connect, (lake, gateway))


def until(condition: Callable[[], bool]) -> None:
    """Wait for an effect without an answer, such as that of a lost connection."""
    wait_until(condition, 30, "the effect", 0.005)
