# SPDX-License-Identifier: Apache-2.0
"""A broker that registers with routelake over HTTP, and over both doors; gateway and fold are the real ones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.gateway import Gateway, GatewaySettings
from api.http.app import create_app
from api.http.server import serve_http
from api.http.settings import HttpSettings
from api.remoting.handlers import NameServerHandler
from api.view.history import History
from clients.broker.http import HttpNameServer
from peers.java import free_port
from pipelines.log.memory import MemoryLog
from remoting.errors import AnswerError, ConnectError
from remoting.server import RemotingServer
from schemas.events import Actor, PutKvConfig
from tests.clients.broker.namesrv import broker, peer, run
from tests.support.appender import HereAppender
from tests.support.local import UNHURRIED
from tests.support.minifold import MiniFold

ACTOR = Actor(gateway="gw", via="http", peer="", user=None)


class Routelake:
    def __init__(self, gateway: Gateway, http: str, remoting: str) -> None:
        self.gateway, self.http, self.remoting = gateway, http, remoting

    def queues(self, topic: str) -> dict[str, tuple[int, int, int, int]]:
        return {name: tuple(row) for name, row in self.gateway.view.queue_rows(topic).items()}


@contextlib.asynccontextmanager
async def routelake(folder: Path, settings: HttpSettings | None = None) -> AsyncIterator[Routelake]:
    log = MemoryLog()
    with MiniFold(log, folder / "lake"):
        chosen = GatewaySettings(gateway_id="gw", lake_dir=folder / "lake", **UNHURRIED)
        gateway = Gateway(chosen, HereAppender(log, chosen))
        await gateway.start()
        handler = NameServerHandler(gateway)
        server = RemotingServer(handler)
        await server.start("127.0.0.1", 0)
        stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
        app = create_app(gateway, History(folder / "lake"), settings=settings or HttpSettings())
        http = asyncio.create_task(serve_http(app, "127.0.0.1", 0, stop=stop, on_bound=port.set_result))
        try:
            yield Routelake(gateway, f"http://127.0.0.1:{await port}", f"127.0.0.1:{server.port}")
        finally:
            stop.set()
            await http
            handler.stop()
            await server.close(1)
            await gateway.stop()
    log.close()


def test_a_life_over_http(tmp_path: Path) -> None:
    async def work() -> None:
        async with routelake(tmp_path) as lake:
            async with broker(lake.http, broker_name="b1") as agent, peer(agent) as client:
                (result,) = agent.last_results
                assert (result.address, result.error) == (lake.http, None)
                assert lake.queues("TBW102") == {"b1": (8, 8, 7, 0)}
                await client.send("orders", k="true")
                assert lake.queues("orders") == {"b1": (4, 4, 6, 1)}
                await lake.gateway.command(
                    PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key="orders", value="b1:4", actor=ACTOR)
                )
                await agent.register_all(force=False)
                assert agent.topics.is_order_topic("orders")
                (beat,) = await agent.heartbeat()
                assert beat.error is None
                async with broker(lake.http, broker_name="b1", broker_id=1, enable_slave_acting_master=True) as slave:
                    assert slave.master_addr == agent.config.broker_addr
                    assert slave.master_ha_addr == agent.config.ha_server_addr
            assert lake.queues("orders") == {}

    run(work())


def test_one_topic_and_both_doors(tmp_path: Path) -> None:
    async def work() -> None:
        async with routelake(tmp_path) as lake:
            settings: dict[str, Any] = {"enable_single_topic_register": True, "compressed_register": True}
            async with broker(lake.http, lake.remoting, **settings) as agent, peer(agent) as admin:
                assert [result.error for result in agent.last_results] == [None, None]
                await admin.update("orders", readQueueNums=3)
                assert lake.queues("orders") == {"broker-a": (3, 8, 6, 0)}

    run(work())


def test_what_http_refuses(tmp_path: Path) -> None:
    async def work() -> None:
        settings = HttpSettings(tokens={"broker": "s3cret"})
        async with routelake(tmp_path, settings) as lake, broker(lake.http) as agent:
            (result,) = agent.last_results
            assert isinstance(result.error, AnswerError)
            assert "token" in str(result.error)
            with_token = HttpNameServer(lake.http + "/", "s3cret")
            await with_token.heartbeat(agent.config, agent.topics.data_version, 5)
            with pytest.raises(ConnectError, match="no connection"):
                await HttpNameServer(f"http://127.0.0.1:{free_port()}").unregister(agent.config)

    run(work())
