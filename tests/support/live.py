# SPDX-License-Identifier: Apache-2.0
"""Peers on real sockets: routelake in this process, and a NameServer that behaves as it is told."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx

from api.gateway import Gateway, GatewaySettings
from api.http.app import close_app, create_app
from api.http.server import serve_http
from api.remoting.handlers import NameServerHandler
from api.view.answers import RouteAnswers
from api.view.history import History
from peers.java import free_port
from pipelines.log.memory import MemoryLog
from remoting.channel import Connection
from remoting.frame import RemotingCommand
from remoting.reply import ReplyTemplate, response
from remoting.route_query import RouteQuery
from remoting.server import RemotingServer
from schemas.rocketmq_json import encode_topic_route
from schemas.route import TopicRouteData
from tests.support.appender import HereAppender
from tests.support.doors import Loop, broker
from tests.support.local import UNHURRIED
from tests.support.minifold import MiniFold


class LiveRoutelake:
    """Gateway, both doors and the fold over a memory log; all but the log may be stopped and started again."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.http_port, self.remoting_port = free_port(), free_port()
        self.http_url, self.namesrv_addr = f"http://127.0.0.1:{self.http_port}", f"127.0.0.1:{self.remoting_port}"
        self._folder = folder
        self._settings = {"gateway_id": "gw", "clock_interval_s": 0.05, **UNHURRIED, **settings}
        self._log = MemoryLog()
        self.fold = MiniFold(self._log, folder / "lake")
        self.fold.start()
        self._loop = Loop()
        self.start()

    def start(self) -> None:
        bound = threading.Event()
        self._stop = asyncio.Event()
        self._loop.run(self._start())
        self._http = self._loop.start(
            serve_http(self.app, "127.0.0.1", self.http_port, stop=self._stop, on_bound=lambda port: bound.set())
        )
        assert bound.wait(10)

    async def _start(self) -> None:
        settings = GatewaySettings(lake_dir=self._folder / "lake", **self._settings)
        self.gateway = Gateway(settings, HereAppender(self._log, settings))
        await self.gateway.start()
        answers = RouteAnswers(
            support_acting_master=self.gateway.settings.support_acting_master,
            order_message_enable=self.gateway.settings.order_message_enable,
        )
        self.handler = NameServerHandler(self.gateway, answers)
        self.server = RemotingServer(self.handler)
        await self.server.start("127.0.0.1", self.remoting_port)
        self.app = create_app(self.gateway, History(str(self._folder / "lake")), answers=answers)

    def stop(self) -> None:
        self._loop.loop.call_soon_threadsafe(self._stop.set)
        self._http.result(20)
        self._loop.run(self._end())

    async def _end(self) -> None:
        self.handler.stop()
        await self.server.close(1)
        close_app(self.app)
        await self.gateway.stop()

    def close(self) -> None:
        self.stop()
        self._loop.close()
        self.fold.stop()
        self._log.close()


class ToldNameServer:
    """Answers route requests as `routes` says, or misbehaves; lives on the test's loop.

    Attributes:
        routes: topic to its route.
        code: Answer everything with this code instead.
        hangs: Answer nothing.
        garbage: Answer with this body.
        asked: Topics that were asked for.
    """

    def __init__(self, routes: dict[str, TopicRouteData] | None = None) -> None:
        self.routes = routes or {}
        self.code = 0
        self.hangs = False
        self.garbage: bytes | None = None
        self.asked: list[str | None] = []
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"

    async def start(self) -> ToldNameServer:
        self.server = RemotingServer(self)
        await self.server.start("127.0.0.1", self.port)
        return self

    async def stop(self) -> None:
        await self.server.close(0.1)

    def fast_route(self, query: RouteQuery) -> ReplyTemplate | None:
        self.asked.append(query.topic)
        return None

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        topic = command.ext("topic")
        if self.hangs:
            await asyncio.sleep(3600)
        if self.code:
            return response(self.code, "as told")
        if self.garbage is not None:
            return response(body=self.garbage)
        if topic not in self.routes:
            return response(17, f"No topic route info in name server for the topic: {topic}")
        return response(body=encode_topic_route(self.routes[topic], numeric_keys=False))

    def on_connect(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection) -> None: ...


def run(work: Any, timeout_s: float = 60.0) -> None:
    """Run a test on an event loop."""
    asyncio.run(asyncio.wait_for(work, timeout_s))


async def until(condition: Any, timeout_s: float = 30.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.002)


async def register(lake: LiveRoutelake, name: str, *topics: str, **more: Any) -> None:
    """Register a broker; it is visible when this returns. One topic alone may not create a broker."""
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        body = broker(name, topics=(*topics, "TBW102"), **more)
        answer = await http.post(f"{lake.http_url}/v1/brokers/register", json=body)
    assert answer.status_code == 200, answer.text


async def delete(lake: LiveRoutelake, topic: str) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        assert (await http.delete(f"{lake.http_url}/v1/topics/{topic}")).status_code == 200
