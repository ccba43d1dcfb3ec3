# SPDX-License-Identifier: Apache-2.0
"""The oracle of the NameServer behind a real socket, for what would take a stock one too long to show.

It agrees with Apache RocketMQ's own NameServer 5.5.0 (tests/differential); `test_stock.py` uses that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from clients.broker.agent import BrokerAgent
from clients.broker.config import BrokerConfig
from dev.model.namesrv import NameServerModel
from dev.model.wire import Request
from remoting.client import RemotingClient
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import response
from remoting.server.channel import Connection
from remoting.server.server import RemotingServer
from schemas.rocketmq_json import decode_topic_route
from schemas.route import TopicRouteData

TIMEOUT_S = 120.0
"""Some tests start processes."""


class Namesrv:
    """A NameServer that can be slow or refuse."""

    def __init__(self) -> None:
        self.model = NameServerModel()
        self.server = RemotingServer(self)
        self.requests: list[RemotingCommand] = []
        self.refuse = False
        self.open = asyncio.Event()
        self.open.set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    @property
    def codes(self) -> list[int]:
        """Of the requests so far."""
        return [request.code for request in self.requests]

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        self.requests.append(command)
        await self.open.wait()
        if self.refuse:
            return response(1, "told to refuse")
        request = Request(
            command.code, command.ext_fields or {}, command.body, command.version, oneway=command.is_oneway
        )
        answer = self.model.handle(request, round(time.time() * 1000), connection.id)
        return response(answer.code, answer.remark, answer.ext, answer.body)

    def on_connect(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None: ...

    def ask(self, code: int, **ext: str) -> Any:
        """Without a wire."""
        return self.model.handle(Request(code, ext), round(time.time() * 1000))

    def route(self, topic: str) -> TopicRouteData | None:
        answer = self.ask(105, topic=topic)
        return decode_topic_route(answer.body) if answer.code == 0 else None

    def write_queues(self, topic: str) -> dict[str, int]:
        """{brokerName: writeQueueNums}; the oracle's route of many brokers goes through every order of them."""
        rows = self.model.tables.topic_queue_table.get(topic, {})
        return {str(name): row.write_queue_nums for name, row in rows.items()}

    def queues(self, topic: str) -> tuple[int, int, int] | None:
        """Read, write, perm of the topic's only row."""
        route = self.route(topic)
        if route is None:
            return None
        (row,) = route.queue_datas
        return row.read_queue_nums, row.write_queue_nums, row.perm


@contextlib.asynccontextmanager
async def namesrv(port: int = 0) -> AsyncIterator[Namesrv]:
    """One that listens."""
    found = Namesrv()
    await found.server.start("127.0.0.1", port)
    try:
        yield found
    finally:
        found.open.set()
        await found.server.close(1)


@contextlib.asynccontextmanager
async def broker(
    *namesrvs: str, store: Path | None = None, lock_timeout_s: float = 60.0, **settings: Any
) -> AsyncIterator[BrokerAgent]:
    """A started agent on a free port."""
    settings = {"listen_port": 0, "store_path_root_dir": str(store or ""), **settings}
    agent = BrokerAgent(BrokerConfig(**settings), namesrvs, lock_timeout_s=lock_timeout_s)
    try:
        await agent.start()
        yield agent
    finally:
        await agent.stop()


class Peer:
    """A client or mqadmin of one broker."""

    def __init__(self, agent: BrokerAgent, client: RemotingClient) -> None:
        self._agent = agent
        self._client = client

    async def ask(self, code: int, body: bytes = b"", **ext: object) -> RemotingCommand:
        fields = {name: str(value) for name, value in ext.items() if value is not None}
        return await self._client.ask(self._agent.config.broker_addr, RemotingCommand(code, fields, body), 60)

    async def send(
        self, topic: str, default: str = "TBW102", queues: object = 4, queue: object = 0, **more: object
    ) -> RemotingCommand:
        """SEND_MESSAGE_V2."""
        return await self.ask(310, b"hello", a="group", b=topic, c=default, d=queues, e=queue, **more)

    async def update(self, topic: str | None, **more: object) -> RemotingCommand:
        """UPDATE_AND_CREATE_TOPIC."""
        return await self.ask(17, **update_fields(topic, **more))


def update_fields(topic: str | None, **more: object) -> dict[str, Any]:
    """Of UPDATE_AND_CREATE_TOPIC, as mqadmin sends it."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 8,
        "writeQueueNums": 8,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "attributes": "",
        "force": "false",
        **more,
    }


@contextlib.asynccontextmanager
async def peer(agent: BrokerAgent) -> AsyncIterator[Peer]:
    async with RemotingClient() as client:
        yield Peer(agent, client)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, TIMEOUT_S))
