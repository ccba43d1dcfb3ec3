# SPDX-License-Identifier: Apache-2.0
"""The connection that holds most is closed first: one address takes all it can, next to an honest one.

The attacker's address is 127.0.0.66, the honest one's 127.0.0.1; sockets and server are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from api.http.bounds import ConnectionBounds
from api.http.history_pool import HistoryPool
from api.http.problems import Problem
from api.http.settings import HttpSettings
from dev.support.http_api import HttpApi, broker, problem
from dev.support.loops import Loop, eventually, until
from lake.delta.query import check_interrupted
from tests.api.http.test_server import Server, everything, first_answer, kind

ATTACKER = "127.0.0.66"
KIB = 1024


@pytest.fixture
def serve(make_api: Any) -> Iterator[Any]:
    servers: list[Server] = []

    def start(**settings: Any) -> Server:
        api = make_api(fold=False, clock_interval_s=3600.0, http=HttpSettings(**settings))
        servers.append(Server(api))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def sockets() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def connect(server: Server, sockets: contextlib.ExitStack, address: str = "127.0.0.1") -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", server.port), timeout=60, source_address=(address, 0))
    return sockets.enter_context(peer)


def asked(connection: socket.socket, path: str = "/healthz") -> bytes:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return first_answer(connection)


def evicted(server: Server, reason: str) -> float:
    found = server.api.app.context.metrics.registry.get_sample_value(
        "rocketmq_namesrv_security_events_total", {"reason": f"http-{reason}"}
    )
    return found or 0.0


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\nX: ", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_slow_heads_and_idle_connections_keep_nobody_out(
    serve: Any, sockets: contextlib.ExitStack, says: bytes
) -> None:
    server = serve(max_connections=64)
    kept = connect(server, sockets)
    assert asked(kept).startswith(b"HTTP/1.1 200")
    for _ in range(150):
        connect(server, sockets, ATTACKER).sendall(says)
    until(lambda: evicted(server, "evicted-idle") + evicted(server, "too-many-connections") >= 150 + 1 - 64)
    for _ in range(20):
        assert asked(connect(server, sockets)).startswith(b"HTTP/1.1 200")
    assert asked(kept).startswith(b"HTTP/1.1 200")
    shown = server.api.app.context.metrics.registry.get_sample_value(
        "rocketmq_namesrv_active_connections", {"listener": "http"}
    )
    assert shown is not None and shown <= 64


def test_a_crowd_behind_one_address_keeps_what_is_busy(serve: Any, sockets: contextlib.ExitStack) -> None:
    server = serve(max_connections=2)
    polls = [connect(server, sockets) for _ in range(2)]
    for poll in polls:
        poll.sendall(b'GET /v1/topics/t/route?wait=30 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "0-none"\r\n\r\n')
    until(lambda: server.api.app.context.watch.waiting == 2)
    answer = everything(connect(server, sockets))
    assert kind(answer) == "system-busy"
    assert b"retry-after: 1" in answer
    assert server.api.app.context.watch.waiting == 2


def test_heads_that_are_not_complete(serve: Any, sockets: contextlib.ExitStack) -> None:
    server = serve(max_held_bytes=512 * KIB)
    slow = connect(server, sockets)
    slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")
    for _ in range(30):
        connect(server, sockets, ATTACKER).sendall(
            b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 8000
        )  # 40 kB, 1.2 MB of headers
    until(lambda: evicted(server, "evicted-memory") >= 25)
    slow.sendall(b"y\r\n\r\n")
    assert first_answer(slow).startswith(b"HTTP/1.1 200")


def test_answers_that_nobody_fetches(serve: Any, sockets: contextlib.ExitStack) -> None:
    server = serve(max_held_bytes=2048 * KIB)
    kept = connect(server, sockets)
    assert asked(kept).startswith(b"HTTP/1.1 200")
    for _ in range(12):
        greedy = connect(server, sockets, ATTACKER)
        with contextlib.suppress(ConnectionError):
            greedy.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
    until(lambda: evicted(server, "evicted-memory") >= 1)
    assert asked(kept).startswith(b"HTTP/1.1 200")


def test_bodies_that_are_not_complete(serve: Any, sockets: contextlib.ExitStack) -> None:
    server = serve(max_bodies_bytes=4 * 1024 * KIB)
    start = b"POST /v1/brokers/register HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    held = 0
    attackers = [connect(server, sockets, ATTACKER) for _ in range(4)]
    for attacker in attackers:
        attacker.sendall(start + b"Content-Length: 2000000\r\n\r\n" + b" " * 1_000_000)
        held += 1_000_000
        until(lambda held=held: server.api.app.context.budget.free <= 4 * 1024 * KIB - held)
    body = json.dumps(broker()).encode() + b" " * 2_000_000  # needs what three of them hold
    honest = connect(server, sockets)
    honest.sendall(start + b"Content-Length: %d\r\n\r\n" % len(body) + body[:1_500_000])
    honest.sendall(body[1_500_000:])
    assert first_answer(honest).startswith(b"HTTP/1.1 200")
    assert evicted(server, "evicted-body") >= 2
    answer = first_answer(attackers[0])
    assert kind(answer) == "system-busy"
    assert b"retry-after: 1" in answer


def test_long_polls_of_one_address_are_evicted_and_say_when_to_come_again(
    serve: Any, sockets: contextlib.ExitStack
) -> None:
    server = serve(max_long_polls=8)
    poll = b'GET /v1/topics/t/route?wait=%d HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "0-none"\r\n\r\n'
    watch = server.api.app.context.watch
    attackers = [connect(server, sockets, ATTACKER) for _ in range(9)]
    for number, attacker in enumerate(attackers[:8], start=1):
        attacker.sendall(poll % 60)
        until(lambda number=number: watch.waiting == number)
    attackers[8].sendall(poll % 60)  # it holds most itself
    answer = first_answer(attackers[8])
    assert answer.startswith(b"HTTP/1.1 404") and b"retry-after: 5" in answer
    honest = connect(server, sockets)
    honest.sendall(poll % 60)
    answer = first_answer(attackers[0])  # the oldest of those that hold most
    assert answer.startswith(b"HTTP/1.1 404") and b"retry-after: 5" in answer
    assert watch.waiting == 8
    short = connect(server, sockets)
    short.sendall(poll % 1)
    assert b"retry-after" not in first_answer(short)  # it waited until its time was over
    assert evicted(server, "evicted-long-poll") == 3


# --- history ---


def test_askers_take_turns_and_whoever_has_most_waiting_is_sent_away() -> None:
    loop, gate, order = Loop(), threading.Event(), []

    async def scene() -> list[object]:
        pool = HistoryPool(object(), threads=1, queue=4, on_evicted=lambda asker: order.append(f"-{asker}"))  # type: ignore[arg-type]

        def ask(asker: str) -> asyncio.Task[Any]:
            def query(_: object) -> str:
                assert gate.wait(30)
                order.append(asker)
                return asker

            return asyncio.create_task(pool.read(query, (asker, "route")))

        tasks = [ask("many") for _ in range(8)]
        await asyncio.sleep(0)
        tasks += [ask("one")]
        await asyncio.sleep(0)
        tasks += [ask("other")]
        await asyncio.sleep(0)
        gate.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        pool.close()
        return found

    found = loop.run(scene())
    loop.close()
    assert [str(answer)[:8] for answer in found] == ["many"] * 3 + ["too many"] * 5 + ["one", "other"]
    assert all(isinstance(answer, Problem) for answer in found[3:8])
    assert order == ["-many"] * 5 + ["many", "many", "one", "other", "many"]


def test_150_reads_of_history_by_one_address_refuse_nobody_elses(make_api: Any) -> None:
    api: HttpApi = make_api(http=HttpSettings(history_queue=8))
    api.register(broker())
    api.settled()
    newest = api.get("/v1/epochs?limit=1").json()["epochs"][0]["epoch"]

    async def scene() -> tuple[list[Any], list[Any]]:
        async def ask(peer: str, path: str) -> Any:
            return await api.client((peer, 50000)).get(path, timeout=60)

        pool, gate = api.app.context.history, threading.Event()
        slow = [asyncio.create_task(pool.read(lambda _: gate.wait(60), (ATTACKER, "route"))) for _ in range(2)]
        many = [asyncio.create_task(ask(ATTACKER, f"/v1/topics/t{n}/route?as_of={newest}")) for n in range(150)]
        await eventually(lambda: sum(task.done() for task in many) >= 150 - 8)
        paths = [f"/v1/topics/orders/route?as_of={newest}", "/v1/topics/orders/changes", "/v1/epochs"]
        # The same address for changes, too: what one kind of read takes, another kind does not miss.
        few = [asyncio.create_task(ask(peer, path)) for peer in ("10.0.0.1", "10.0.0.2") for path in paths]
        few += [asyncio.create_task(ask(ATTACKER, "/v1/topics/orders/changes"))]
        await eventually(lambda: pool.waiting - sum(not task.done() for task in many) >= len(few))
        gate.set()
        await asyncio.gather(*slow)
        return await asyncio.gather(*many), await asyncio.gather(*few)

    many, few = api.loop.run(scene())
    assert [answer.status_code for answer in few] == [200] * 7
    refused = [answer for answer in many if answer.status_code == 503]
    assert len(refused) == 150 - 1
    for answer in refused:
        problem(answer, 503, "system-busy")
        assert answer.headers["retry-after"] == "1"


def test_a_closed_connection_is_not_counted() -> None:
    class One:
        address, active_s, held_bytes, held_since_s, is_busy = "a", 0.0, 0, 0.0, False

        def evict(self, reason: str) -> None:
            gone.append((self, reason))

    gone: list[tuple[One, str]] = []
    bounds = ConnectionBounds(HttpSettings(max_connections=3, max_held_bytes=100), clock=lambda: 10.0)
    ones = [One() for _ in range(3)]
    assert all(map(bounds.admit, ones))
    bounds.hold(ones[0], 60)
    bounds.hold(ones[0], 20)
    bounds.hold(ones[1], 80)
    assert (bounds.held_bytes, gone) == (100, [])
    bounds.hold(ones[2], 1)
    assert (bounds.held_bytes, gone) == (21, [(ones[1], "evicted-memory")])
    bounds.hold(ones[1], 1000)  # it has gone
    bounds.release(ones[0])
    bounds.release(ones[0])
    assert bounds.held_bytes == 1


def test_many_new_connections_share_a_search_that_finds_only_busy_ones() -> None:
    """Connections that have become idle are evicted a moment later. Other addresses are not affected."""
    looks = 0

    class One:
        held_bytes, held_since_s, is_busy, gone = 0, 0.0, False, False

        def __init__(self, address: str, is_busy: bool = False) -> None:
            self.address, self.is_busy = address, is_busy

        @property
        def active_s(self) -> float:
            nonlocal looks
            looks += 1
            return 0.0

        def evict(self, reason: str) -> None:
            self.gone = True

    now = [10.0]
    bounds: Any = ConnectionBounds(HttpSettings(max_connections=128), clock=lambda: now[0])
    ones = [One("a", is_busy=True) for _ in range(128)]
    assert all(map(bounds.admit, ones))
    assert not any(bounds.admit(One("a")) for _ in range(100))
    assert looks == 128
    assert bounds.admit(One("b"))
    assert bounds.admit(One("a"))  # two were evicted
    assert not bounds.admit(One("a"))
    for one in ones:
        one.is_busy = False
    now[0] += 0.25
    assert bounds.admit(One("a"))
    assert len(bounds._connections) == 127
    assert [one.gone for one in ones] == [True] * 4 + [False] * 124


def test_a_question_about_the_past_ends_when_its_client_leaves(
    serve: Any, sockets: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    ended: list[bool] = []

    def slow(*_: object) -> list[Any]:
        try:
            while not threading.Event().wait(0.005):
                check_interrupted()
        finally:
            ended.append(True)
        return []

    monkeypatch.setattr(server.api.app.context.history._history, "epochs", slow)
    pool = server.api.app.context.history
    leaving = [connect(server, sockets, ATTACKER) for _ in range(4)]
    for peer in leaving:
        peer.sendall(b"GET /v1/epochs HTTP/1.1\r\nHost: localhost\r\n\r\n")
    until(lambda: pool.waiting == 2)
    for peer in leaving:
        peer.close()
    until(lambda: pool.waiting == 0 and pool._free == pool._may_be_ending == 2)
    assert 2 <= len(ended) <= 4
