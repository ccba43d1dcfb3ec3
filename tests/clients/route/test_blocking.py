# SPDX-License-Identifier: Apache-2.0
"""The blocking face, from plain threads."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients.route.blocking import BlockingRouteClient
from clients.route.cache import RouteChange
from clients.route.errors import NoRouteError
from clients.route.queues import MessageQueue
from clients.route.settings import RouteSettings
from dev.peers.java import free_port
from dev.support.live import LiveRoutelake, ToldNameServer, register, run
from remoting.errors import ConnectError
from schemas.errors import SetupError, UnavailableError

THREADS, ROUNDS = 6, 16


@pytest.fixture(params=["http", "remoting"])
def client(request: pytest.FixtureRequest, lake: LiveRoutelake) -> Iterator[BlockingRouteClient]:
    address = lake.http_url if request.param == "http" else lake.namesrv_addr
    with BlockingRouteClient(address, RouteSettings(send_latency_enable=True)) as client:
        yield client


def test_every_thread_has_its_own_round_robin(client: BlockingRouteClient, lake: LiveRoutelake) -> None:
    run(register(lake, "threads-a", "threads", host=51))

    def sender(_: int) -> list[MessageQueue]:
        return [client.select("threads") for _ in range(ROUNDS)]

    with ThreadPoolExecutor(THREADS) as threads:
        taken = list(threads.map(sender, range(THREADS)))
    for queues in taken:
        assert set(Counter(queues).values()) == {ROUNDS // 8}  # 8 queues, each in turn
    queue = taken[0][0]
    assert client.publish_address(queue) == "10.0.0.51:10911"
    assert client.subscribe_address(queue) == ("10.0.0.51:10911", False)
    assert client.publish_queues("threads") == list(client.try_to_find_topic_publish_info("threads").message_queue_list)
    assert client.subscribe_queues("threads") == frozenset(client.publish_queues("threads"))
    client.sent(queue, 3_000, isolation=True)
    assert client.select("threads", last_broker_name="threads-a").broker_name == "threads-a"  # there is no other
    assert client.cached_route("threads") == client.route("threads")
    assert not client.update("threads")
    assert client.name_server in (lake.http_url, lake.namesrv_addr)


def test_a_listener_may_ask_the_client(client: BlockingRouteClient, lake: LiveRoutelake) -> None:
    run(register(lake, "listen-a", "listen", host=52))
    seen: list[tuple[RouteChange, int]] = []
    heard = threading.Event()

    def listener(change: RouteChange) -> None:
        seen.append((change, len(client.publish_queues("listen"))))
        heard.set()

    def fail(change: RouteChange) -> None:
        raise ValueError("boom")

    client.listen(fail, "listen")  # without an effect
    end = client.listen(listener, "listen")
    client.route("listen")
    assert heard.wait(60)
    assert seen[0][1] == 8
    end()


def test_errors_come_through() -> None:
    with BlockingRouteClient(f"127.0.0.1:{free_port()}") as client, pytest.raises(ConnectError):
        client.route("orders")
    with pytest.raises(SetupError):
        BlockingRouteClient("nowhere:port")  # "nowhere" alone is port 9876 of that host


def test_after_close_it_says_so(lake: LiveRoutelake) -> None:
    client = BlockingRouteClient(lake.http_url)
    end = client.listen(lambda change: None)
    with pytest.raises(NoRouteError):
        client.route("closed-before-it-came")
    client.close()
    client.close()
    end()
    with pytest.raises(UnavailableError, match="closed"):
        client.route("orders")


def test_a_call_that_waits_during_a_close_gets_an_error() -> None:
    async def work() -> None:
        server = await ToldNameServer().start()
        server.hangs = True
        client = BlockingRouteClient(server.address)
        waiting = asyncio.create_task(asyncio.to_thread(client.route, "orders"))
        while not server.asked:
            await asyncio.sleep(0.002)
        await asyncio.to_thread(client.close)
        with pytest.raises(UnavailableError, match="meanwhile"):
            await waiting
        await server.stop()

    run(work())


def test_another_name_server(lake: LiveRoutelake) -> None:
    run(register(lake, "moved-a", "moved", host=53))
    with BlockingRouteClient(f"127.0.0.1:{free_port()}") as client:
        client.update_name_servers(lake.http_url)
        assert client.route("moved") is not None
