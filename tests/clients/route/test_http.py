# SPDX-License-Identifier: Apache-2.0
"""The route client and routelake itself, over HTTP and remoting: the same objects, changes without a poll, a restart."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from clients.route.cache import RouteChange
from clients.route.client import RouteClient
from clients.route.errors import BadRouteError, NoRouteError
from clients.route.fetcher import RouteFetcher
from clients.route.http import HttpTransport
from clients.route.rotation import BackOff
from clients.route.settings import RouteSettings
from clients.route.transport import RouteAnswer
from dev.peers.java import free_port
from dev.support.live import LiveRoutelake, ToldNameServer, delete, register, run
from dev.support.loops import eventually
from remoting.errors import AnswerError, AnswerTimeoutError, ConnectError, ConnectionLostError
from schemas.codes import ResponseCode

SOON_S = 10.0
"""By half of a long poll; who only asked again would hear of it after 20 s."""
QUICK = RouteSettings(back_off=BackOff(0.05, 0.2))


class Heard:
    """Changes and when they came."""

    def __init__(self, client: RouteClient, topic: str) -> None:
        self.changes: list[RouteChange] = []
        self._arrived = asyncio.Event()
        client.listen(self._hear, topic)

    def _hear(self, change: RouteChange) -> None:
        self.changes.append(change)
        self.at = time.monotonic()
        self._arrived.set()

    async def next(self, timeout_s: float = 30.0) -> RouteChange:
        async with asyncio.timeout(timeout_s):
            await self._arrived.wait()
        self._arrived.clear()
        return self.changes[-1]


def test_http_and_remoting_give_the_same_objects(lake: LiveRoutelake) -> None:
    async def work() -> None:
        await register(lake, "same-a", "same", host=1)
        await register(lake, "same-b", "same", host=2)
        async with RouteClient(lake.http_url) as http, RouteClient(lake.namesrv_addr) as remoting:
            assert await http.route("same") == await remoting.route("same")
            assert await http.publish_queues("same") == await remoting.publish_queues("same")
            assert await http.subscribe_queues("same") == await remoting.subscribe_queues("same")
            fresh = await http.publish_queues("not-there-yet")
            assert fresh == await remoting.publish_queues("not-there-yet")
            assert {"same-a", "same-b"} <= {queue.broker_name for queue in fresh}
            assert {queue.queue_id for queue in fresh} == {0, 1, 2, 3}  # TBW102 has 8

    run(work())


def test_a_change_arrives_without_a_poll(lake: LiveRoutelake) -> None:
    async def work() -> None:
        await register(lake, "quick-a", "quick", host=11)
        async with RouteClient(lake.http_url) as client:
            heard = Heard(client, "quick")
            await client.publish_queues("quick")
            assert (await heard.next()).old is None
            await eventually(lambda: lake.app.context.watch.waiting >= 1)
            took = []
            for host in (12, 13, 14):
                await register(lake, f"quick-{host}", "quick", host=host)
                visible = time.monotonic()  # at the latest
                change = await heard.next()
                took.append(heard.at - visible)
                assert change.new is not None
                assert len(change.new.broker_datas) == host - 10
                assert len(await client.publish_queues("quick")) == 8 * (host - 10)
            assert max(took) < SOON_S, took

    run(work())


def test_a_topic_that_comes_and_goes(lake: LiveRoutelake) -> None:
    async def work() -> None:
        async with RouteClient(lake.http_url) as client:
            seen: list[RouteChange] = []

            async def look() -> None:
                async for change in client.watch("%RETRY%comes"):
                    seen.append(change)

            watching = asyncio.create_task(look())
            await eventually(lambda: seen and lake.app.context.watch.waiting)
            assert seen[0].new is None
            await register(lake, "comes-a", "%RETRY%comes", host=21)
            await eventually(lambda: len(seen) == 2, SOON_S)
            await delete(lake, "%25RETRY%25comes")
            await eventually(lambda: len(seen) == 3, SOON_S)
            assert seen[2].new is None
            assert client.cached_route("%RETRY%comes") == seen[1].new  # it stays in use
            watching.cancel()

    run(work())


def test_a_producer_of_a_new_topic_sees_it_created(lake: LiveRoutelake) -> None:
    async def work() -> None:
        await register(lake, "auto-a", "beside", host=31)
        async with RouteClient(lake.http_url) as client:
            heard = Heard(client, "auto")
            before = await client.publish_queues("auto")
            assert {queue.broker_name for queue in before} >= {"auto-a"}
            assert (await heard.next()).old is None
            await eventually(lambda: lake.app.context.watch.waiting)
            await register(lake, "auto-a", "beside", "auto", host=31, counter=2)
            assert (await heard.next(SOON_S)).new is not None
            after = await client.publish_queues("auto")
            assert {queue.broker_name for queue in after} == {"auto-a"}
            assert len(after) == 8

    run(work())


@pytest.mark.parametrize("api", ["http", "remoting"])
def test_a_restart_in_between(own_lake: LiveRoutelake, api: str) -> None:
    async def work() -> None:
        lake = own_lake
        settings = RouteSettings(back_off=BackOff(0.05, 0.2), poll_name_server_interval_s=0.1)
        await register(lake, "again-a", "again", host=1)
        async with RouteClient(lake.http_url if api == "http" else lake.namesrv_addr, settings) as client:
            heard = Heard(client, "again")
            await client.publish_queues("again")
            await heard.next()
            await asyncio.to_thread(lake.stop)
            assert len(await client.publish_queues("again")) == 8  # in the meantime what is known goes on
            await asyncio.to_thread(lake.start)
            await register(lake, "again-b", "again", host=2)
            change = await heard.next()
            assert change.new is not None
            assert [data.broker_name for data in change.new.broker_datas] == ["again-a", "again-b"]
            assert len(heard.changes) == 2

    run(work())


def test_from_a_dead_routelake_to_a_name_server_and_back_to_http(own_lake: LiveRoutelake) -> None:
    """One list may hold both kinds; each is followed in its own way."""

    async def work() -> None:
        lake = own_lake
        await register(lake, "mixed-a", "mixed", host=1)
        other = await ToldNameServer().start()
        settings = RouteSettings(back_off=BackOff(0.05, 0.2), poll_name_server_interval_s=0.05)
        async with RouteClient([lake.http_url], settings) as client:
            other.routes["mixed"] = await client.route("mixed")
            await client.update_name_servers([lake.http_url, other.address])
            await asyncio.to_thread(lake.stop)
            await eventually(lambda: client.name_server == other.address)
            await other.stop()
            await asyncio.to_thread(lake.start)
            await eventually(lambda: client.name_server == lake.http_url)
            heard = Heard(client, "mixed")
            await register(lake, "mixed-b", "mixed", host=2)
            assert (await heard.next()).new is not None

    run(work())


def test_an_acting_master_serves_readers_until_the_master_is_back(tmp_path: Path) -> None:
    lake = LiveRoutelake(tmp_path, support_acting_master=True)

    async def work() -> None:
        acting = {"enableActingMaster": True}
        await register(lake, "pair", "acted", host=1, **acting)
        await register(lake, "pair", "acted", host=2, brokerId=1, **acting)
        async with RouteClient(lake.http_url) as client:
            heard = Heard(client, "acted")
            queue = (await client.publish_queues("acted"))[0]
            await heard.next()
            assert await client.subscribe_address(queue) == ("10.0.0.1:10911", False)
            gone = {"clusterName": "c1", "brokerName": "pair", "brokerAddr": "10.0.0.1:10911", "brokerId": 0}
            async with httpx.AsyncClient(trust_env=False) as http:
                assert (await http.post(f"{lake.http_url}/v1/brokers/unregister", json=gone)).status_code == 200
            change = await heard.next()
            assert change.new is not None
            assert change.new.broker_datas[0].broker_addrs == {0: "10.0.0.2:10911"}
            # The slave stands in for the master: it can be read as the master was, and nothing can be written.
            assert await client.subscribe_address(queue) == ("10.0.0.2:10911", False)
            assert len(await client.subscribe_queues("acted")) == 8
            with pytest.raises(NoRouteError):
                await client.publish_queues("acted")
            await register(lake, "pair", "acted", host=1, counter=2, **acting)
            await heard.next()
            assert len(await client.publish_queues("acted")) == 8
            assert await client.publish_address(queue) == "10.0.0.1:10911"

    try:
        run(work())
    finally:
        lake.close()


@pytest.mark.parametrize("api", ["http", "remoting"])
def test_hundreds_of_topics_at_a_time(lake: LiveRoutelake, api: str) -> None:
    topics = [f"{api}-{number}" for number in range(300)]

    async def work() -> None:
        await register(lake, f"{api}-a", *topics, host=71)
        before = lake.app.context.watch.waiting
        address = lake.http_url if api == "http" else lake.namesrv_addr
        async with RouteClient(address, settings=RouteSettings(mq_client_api_timeout_s=30)) as client:
            routes = await asyncio.gather(*map(client.route, topics))
            assert all(len(found.queue_datas) == 1 for found in routes)
            if api == "http":
                await eventually(lambda: lake.app.context.watch.waiting == before + 64)
            await register(lake, f"{api}-b", *topics, host=72)
            await asyncio.gather(*map(client.update, topics))
            assert {len(found.queue_datas) for found in await asyncio.gather(*map(client.route, topics))} == {2}

    run(work())


# --- servers that are none ---


@asynccontextmanager
async def web(answer: bytes, *, after_s: float = 0.0) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A web server that answers every request with these bytes; yields its URL and what it was asked."""
    asked: list[bytes] = []
    served: list[tuple[asyncio.StreamWriter, asyncio.Task[None]]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked.append(await reader.readuntil(b"\r\n\r\n"))
                await asyncio.sleep(after_s)
                writer.write(answer)
                await writer.drain()
        writer.close()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append((writer, asyncio.create_task(serve(reader, writer))))

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
        for _ in range(3):  # asyncio leaves a socket open that it accepted just before its server was closed
            await asyncio.sleep(0)
        server.close()
        for writer, task in served:
            task.cancel()
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer, _ in served), return_exceptions=True)
        await server.wait_closed()


def said(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))
    return head.encode() + b"\r\n" + body


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (said("404 Not Found", b"<html>"), ResponseCode.SYSTEM_ERROR, "HTTP 404: Not Found"),
        (said("502 Bad Gateway"), ResponseCode.SYSTEM_BUSY, "HTTP 502"),
        (said("301 Moved Permanently", b"", "location: /"), ResponseCode.SYSTEM_ERROR, "HTTP 301"),
        (said("401 Unauthorized", b'{"code":16,"detail":"a token is needed"}'), 16, "a token is needed"),
        (said("503 Service Unavailable", b'{"code":2,"title":"Busy"}'), ResponseCode.SYSTEM_BUSY, "Busy"),
    ],
)
def test_errors_over_http(answer: bytes, code: int, text: str) -> None:
    async def work() -> None:
        async with web(answer) as (url, asked):
            transport = HttpTransport(token="s3cret")
            with pytest.raises(AnswerError, match=text) as error:
                await transport.fetch(url, "orders", timeout_s=60)
            assert error.value.code == code
            assert b"authorization: Bearer s3cret" in asked[0]
            await transport.close()

    run(work())


def test_an_answer_that_cannot_be_decompressed() -> None:
    async def work() -> None:
        async with web(said("200 OK", b"no gzip", "content-encoding: gzip")) as (url, _):
            transport = HttpTransport()
            with pytest.raises(BadRouteError, match="cannot be decompressed"):
                await transport.fetch(url, "orders", timeout_s=60)
            await transport.close()

    run(work())


@pytest.mark.parametrize("error", [BadRouteError("x", "no route"), KeyError("a defect")])
def test_a_topic_is_followed_whatever_one_of_the_answers_was(
    lake: LiveRoutelake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    topic = f"followed-{type(error).__name__}"
    settings = replace(QUICK, poll_name_server_interval_s=0.1)

    async def work() -> None:
        await register(lake, f"{topic}-a", topic, host=1)
        async with RouteClient(lake.http_url, settings) as client:
            await client.route(topic)
            fetch, failed = RouteFetcher.fetch, asyncio.Event()

            async def fails(*_: object, **__: object) -> None:
                monkeypatch.setattr(RouteFetcher, "fetch", fetch)
                failed.set()
                raise error

            monkeypatch.setattr(RouteFetcher, "fetch", fails)
            await register(lake, f"{topic}-b", topic, host=2)  # ends the long poll that is under way
            await asyncio.wait_for(failed.wait(), 30)
            await register(lake, f"{topic}-c", topic, host=3)
            heard = {f"{topic}-{letter}" for letter in "abc"}

            def names() -> set[str]:
                found = client.cached_route(topic)
                return set() if found is None else {data.broker_name for data in found.broker_datas}

            await eventually(lambda: names() == heard)

    run(work())


def test_no_answer_over_http() -> None:
    async def work() -> None:
        transport = HttpTransport()
        with pytest.raises(ConnectError, match="no connection"):
            await transport.fetch(f"http://127.0.0.1:{free_port()}", "orders", timeout_s=60)
        async with web(b"", after_s=60) as (url, _):
            with pytest.raises(AnswerTimeoutError, match=r"within 2 s"):
                await transport.fetch(url, "orders", timeout_s=2)
            with pytest.raises(AnswerTimeoutError, match=r"within 2\.1 s"):
                await transport.fetch(url, "orders", timeout_s=2, tag='"1-x"', wait_s=0.1)
        async with web(b"SSH-2.0-OpenSSH\r\n\r\n") as (url, _):
            with pytest.raises(ConnectionLostError):
                await transport.fetch(url, "orders", timeout_s=60)
        await transport.close()

    run(work())


@pytest.mark.parametrize("after", [1, 3, 10, 100])
def test_a_close_ends_requests_under_way(after: int) -> None:
    """Whatever each request waits for: a connection, or an answer. A socket left open fails the test as a warning."""

    async def work() -> None:
        async with web(said("304 Not Modified"), after_s=60) as (url, _):
            transport = HttpTransport()
            waits = (transport.fetch(url, "orders", timeout_s=60, tag='"1-x"', wait_s=9) for _ in range(20))
            asking = [asyncio.create_task(one) for one in (*waits, transport.fetch(url, "orders", timeout_s=60))]
            for _ in range(after):
                await asyncio.sleep(0)
            await transport.close()
            ended = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 60)
            assert {type(error) for error in ended} == {ConnectionLostError}, ended
        gc.collect()

    run(work())


def test_requests_over_http_have_path_wait_and_etag() -> None:
    async def work() -> None:
        async with web(said("304 Not Modified")) as (url, asked):
            transport = HttpTransport()
            assert await transport.fetch(url, "%RETRY%g/x?", timeout_s=60, tag='"1-x"', wait_s=999.0) is None
            assert await transport.fetch(url, "orders", timeout_s=60, wait_s=20.0) is None
            assert asked[0].startswith(b"GET /v1/topics/%25RETRY%25g%2Fx%3F/route?wait=300 HTTP/1.1\r\n")
            assert b'if-none-match: "1-x"' in asked[0]
            assert asked[1].startswith(b"GET /v1/topics/orders/route HTTP/1.1\r\n")
            await transport.close()

    run(work())


def test_a_second_server_is_asked_without_a_wait() -> None:
    async def work() -> None:
        async with web(said("304 Not Modified")) as (url, asked):
            dead = f"http://127.0.0.1:{free_port()}"
            loop = asyncio.get_running_loop()
            choice = random.Random(1)
            choice.shuffle = lambda items: None  # type: ignore[method-assign, assignment]
            fetcher = RouteFetcher([dead, url], QUICK, choice, loop.time)
            assert await fetcher.fetch("orders", tag='"1-x"', wait_s=20.0) is None
            assert await fetcher.fetch("orders", tag='"1-x"', wait_s=20.0) is None
            assert [b"?wait=" in request for request in asked] == [False, True]
            await fetcher.close()

    run(work())


def test_a_missing_topic_over_http(lake: LiveRoutelake) -> None:
    async def work() -> None:
        transport = HttpTransport()
        answer = await transport.fetch(lake.http_url, "nowhere", timeout_s=60)
        assert isinstance(answer, RouteAnswer)
        assert answer.route is None
        assert answer.tag is not None and answer.tag.endswith('-none"')
        await transport.close()

    run(work())


def test_a_server_that_answers_long_polls_at_once_is_not_asked_in_a_loop() -> None:
    async def work() -> None:
        empty = b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
        async with (
            web(said("200 OK", empty, 'etag: "1-x"')) as (url, asked),
            RouteClient(url, RouteSettings(long_poll_s=20)) as client,
        ):
            began_s = time.monotonic()
            await client.route("orders")
            await asyncio.sleep(1.0)
            took_s = time.monotonic() - began_s
            assert len(asked) <= 2 + math.log2(1 + took_s / 0.025)  # after 0.05 s, 0.1 s, 0.2 s, ..., or half of it

    run(work())


def test_topics_beyond_the_long_polls_are_polled(lake: LiveRoutelake) -> None:
    async def work() -> None:
        await register(lake, "many-a", *(f"many-{number}" for number in range(4)), host=41)
        settings = RouteSettings(max_long_polls=1, poll_name_server_interval_s=0.05)
        waiting = lake.app.context.watch.waiting
        async with RouteClient(lake.http_url, settings) as client:
            heard = [Heard(client, f"many-{number}") for number in range(4)]
            for number in range(4):
                await client.route(f"many-{number}")
                await heard[number].next()
            await eventually(lambda: lake.app.context.watch.waiting == waiting + 1)
            await register(lake, "many-b", *(f"many-{number}" for number in range(4)), host=42)
            for one in heard:
                change = await one.next()
                assert change.new is not None
                assert len(change.new.broker_datas) == 2

    run(work())
