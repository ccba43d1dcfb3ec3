# SPDX-License-Identifier: Apache-2.0
"""A broker that registers with routelake over HTTP, and over both APIs; gateway and fold are the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.http.settings import HttpSettings
from clients.broker.http import HttpNameServer
from dev.peers.java import free_port
from dev.support.local import LocalGateway, LocalLake
from dev.support.view_tables import queue_rows
from remoting.errors import AnswerError, ConnectError
from schemas.events import Actor, PutKvConfig
from tests.clients.broker.namesrv import broker, peer, run

ACTOR = Actor(gateway="gw", via="http", peer="", user=None)


@contextlib.contextmanager
def routelake(folder: Path, settings: HttpSettings | None = None) -> Iterator[LocalGateway]:
    """With both listeners."""
    with LocalLake(folder) as lake, lake.gateway(http=settings, http_port=0) as gateway:
        yield gateway


def queues(of: LocalGateway, topic: str) -> dict[str, tuple[int, int, int, int]]:
    return {name: tuple(row) for name, row in queue_rows(of.gateway.view, topic).items()}


def test_a_life_over_http(tmp_path: Path) -> None:
    async def work() -> None:
        with routelake(tmp_path) as lake:
            async with broker(lake.http_url, broker_name="b1") as agent, peer(agent) as client:
                (result,) = agent.registrar.last_results
                assert (result.address, result.error) == (lake.http_url, None)
                assert queues(lake, "TBW102") == {"b1": (8, 8, 7, 0)}
                await client.send("orders", k="true")
                assert queues(lake, "orders") == {"b1": (4, 4, 6, 1)}
                put = PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key="orders", value="b1:4", actor=ACTOR)
                await asyncio.to_thread(lake.loop.run, lake.gateway.propose(put, None))
                await agent.registrar.register_all(force=False)
                assert agent.topics.is_order_topic("orders")
                (beat,) = await agent.registrar.heartbeat(agent.topics.data_version)
                assert beat.error is None
                async with broker(
                    lake.http_url, broker_name="b1", broker_id=1, enable_slave_acting_master=True
                ) as slave:
                    assert slave.master_addr == agent.config.broker_addr
                    assert slave.registrar.master_ha_addr == agent.config.ha_server_addr
            assert queues(lake, "orders") == {}

    run(work())


def test_one_topic_and_both_apis(tmp_path: Path) -> None:
    async def work() -> None:
        with routelake(tmp_path) as lake:
            settings: dict[str, Any] = {"enable_single_topic_register": True, "compressed_register": True}
            async with broker(lake.http_url, lake.address, **settings) as agent, peer(agent) as admin:
                assert [result.error for result in agent.registrar.last_results] == [None, None]
                await admin.update("orders", readQueueNums=3)
                assert queues(lake, "orders") == {"broker-a": (3, 8, 6, 0)}

    run(work())


def test_a_page_of_another_server_is_no_success() -> None:
    """A proxy's page says 200, and no broker is registered."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            self.wfile.write(b"<html>Please log in</html>")

        def log_message(self, *_: object) -> None:
            pass

    async def work(url: str) -> None:
        async with broker(url) as agent:
            (result,) = agent.registrar.last_results
            assert "answered HTTP 200 to register, but not as routelake does" in str(result.error)

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            run(work(f"http://127.0.0.1:{server.server_port}"))
        finally:
            server.shutdown()
            thread.join()


def test_what_http_refuses(tmp_path: Path) -> None:
    async def work() -> None:
        settings = HttpSettings(tokens={"broker": "s3cret"})
        with routelake(tmp_path, settings) as lake:
            async with broker(lake.http_url) as agent:
                (result,) = agent.registrar.last_results
                assert isinstance(result.error, AnswerError)
                assert "token" in str(result.error)
                with_token = HttpNameServer(lake.http_url + "/", "s3cret")
                await with_token.heartbeat(agent.config, agent.topics.data_version, 5)
                with pytest.raises(ConnectError, match="no connection"):
                    await HttpNameServer(f"http://127.0.0.1:{free_port()}").unregister(agent.config)

    run(work())
