# SPDX-License-Identifier: Apache-2.0
"""Peers on real sockets: routelake in this process, and a NameServer that behaves as a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.app import HttpApp
from dev.peers.java import free_port
from dev.support.http_api import broker
from dev.support.local import LocalLake
from remoting.codec.frame import RemotingCommand
from remoting.codec.reply import response
from remoting.server.channel import Connection
from remoting.server.server import RemotingServer
from schemas.rocketmq_json import encode_topic_route
from schemas.route import TopicRouteData


class LiveRoutelake:
    """Gateway, both listeners and the fold over a memory log; all but the log may be stopped and started again."""

    def __init__(self, folder: Path, *, liveness_interval_s: float = 10.0, **settings: Any) -> None:
        self.lake = LocalLake(folder, liveness_interval_s=liveness_interval_s)
        self.lake.start()
        ports = {"http_port": free_port(), "remoting_port": free_port()}
        self.local = self.lake.gateway(**{"gateway_id": "gw", "clock_interval_s": 0.05, **ports, **settings})
        self.http_url, self.namesrv_addr = self.local.http_url, self.local.address
        self.start, self.stop = self.local.start, self.local.stop
        self.start()

    @property
    def app(self) -> HttpApp:
        return self.local.app

    def close(self) -> None:
        self.stop()
        self.lake.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRoutelake]:
    """A routelake for the tests of a file, which bring their own names."""
    yield from running(tmp_path_factory.mktemp("lake"))


@pytest.fixture
def own_lake(tmp_path: Path) -> Iterator[LiveRoutelake]:
    """A routelake of one test's own, to be stopped and started."""
    yield from running(tmp_path)


def running(folder: Path) -> Iterator[LiveRoutelake]:
    live = LiveRoutelake(folder)
    yield live
    live.close()


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
        for _ in range(3):  # what was aborted is closed in a later turn of the loop, which the end of the test cuts off
            await asyncio.sleep(0)

    async def handle(self, command: RemotingCommand, connection: Connection) -> RemotingCommand | None:
        topic = command.ext("topic")
        self.asked.append(topic)
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


async def register(lake: LiveRoutelake, name: str, *topics: str, **more: Any) -> None:
    """Register a broker; it is visible when this returns. One topic alone may not create a broker."""
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        body = broker(name, topics=(*topics, "TBW102"), **more)
        answer = await http.post(f"{lake.http_url}/v1/brokers/register", json=body)
    assert answer.status_code == 200, answer.text


async def delete(lake: LiveRoutelake, topic: str) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        assert (await http.delete(f"{lake.http_url}/v1/topics/{topic}")).status_code == 200
