# SPDX-License-Identifier: Apache-2.0
"""Attacks on the HTTP port of a real gateway process that serves an honest client and an honest broker.

The strangers come from 127.0.0.66 and 67. Whatever they do, the honest client, over a connection that it keeps and over
new ones, gets each of its answers, the broker on the other port keeps its connection, and the gateway's memory stays
bounded and is given back.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

import pytest

from dev.model import codes
from dev.model.client import encode_frame
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from tests.e2e.hostile import MIB, Attackers, Broker, Memory, attacked, in_bounded_time, read_answer, refusals

KIB: Final = 1024
ATTACKER: Final = "127.0.0.66"
ATTACKERS: Final = itertools.cycle((ATTACKER, "127.0.0.67"))
"""In turn: one address may have no more than 3,000 connections (`--quota http-connections`)."""
ANSWER_TIMEOUT_S: Final = 60.0
REGISTER: Final = b"POST /v1/brokers/register HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def hostile(gateway: Routelake) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", gateway.http_port), 30, source_address=(next(ATTACKERS), 0))
    connection.settimeout(1.0)
    return connection


class Client:
    """An honest client: asks, again and again, over a connection that it keeps and over one more each time."""

    def __init__(self, gateway: Routelake, paths: dict[str, int]) -> None:
        """Prepare it.

        Args:
            gateway: Who is asked.
            paths: What it asks for, and the status that is right.
        """
        self._port = gateway.http_port
        self._paths = paths
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="honest-client")
        self.answered: list[float] = []
        """How long each answer took, seconds."""
        self.error: BaseException | None = None

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * ANSWER_TIMEOUT_S)

    def check(self) -> None:
        assert self.error is None, f"after {len(self.answered)} answers: {self.error!r}"
        assert self.answered
        print(f"honest client: {len(self.answered)} answers, {max(self.answered):.2f} s the longest")

    def _run(self) -> None:
        try:
            kept = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_TIMEOUT_S)
            with contextlib.closing(kept):
                for path, status in itertools.cycle(self._paths.items()):
                    self._ask(kept, path, status)
                    new = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_TIMEOUT_S)
                    with contextlib.closing(new):
                        self._ask(new, path, status)
                    if self._stop.wait(0.05):
                        return
        except BaseException as error:
            self.error = error

    def _ask(self, connection: http.client.HTTPConnection, path: str, status: int) -> None:
        began = time.monotonic()
        connection.request("GET", path)
        connection.auto_open = 0  # a client that closes the kept connection is counted
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == status, f"{path}: {answer.status} {body[:300]!r}"
        self.answered.append(time.monotonic() - began)


@contextmanager
def honest(gateway: Routelake, paths: dict[str, int]) -> Iterator[None]:
    """Client and broker; each answer that they did not get fails the test."""
    with Broker(gateway, topics=500) as broker, Client(gateway, paths) as client:
        wait_until(lambda: bool(broker.answered and client.answered) or bool(client.error), 60, "honest peers")
        yield
    client.check()
    broker.check()


EPOCHS: Final = 25
"""That are asked for what was then."""
NOTHING_FOLDED: Final = {"/healthz": 200, "/v1/brokers": 200, "/v1/topics/none/route": 404}


def hold(connection: socket.socket, stop: threading.Event, data: bytes) -> None:
    """Send as much as is taken, read nothing; until the gateway closes."""
    view = memoryview(data)
    while view and not stop.is_set():
        with contextlib.suppress(TimeoutError):
            view = view[connection.send(view[: 256 * KIB]) :]
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            if not connection.recv(1):
                return


@in_bounded_time
@pytest.mark.parametrize("kind", ["heads", "bodies", pytest.param("gzip", marks=pytest.mark.deep)])
def test_unfinished_requests_are_bounded(gateway: Routelake, kind: str, during_s: float) -> None:
    """Heads and bodies, as large as they may be, but for their last bytes."""
    body = b'{"clusterName":"' + bytes(50 * MIB)
    said = {
        "heads": b"GET / HTTP/1.1\r\n" + b"a: " + b"b" * (63 * KIB),
        "bodies": REGISTER + b"Content-Length: 67000000\r\n\r\n" + body,
        "gzip": REGISTER + b"Content-Encoding: gzip\r\nContent-Length: 67000000\r\n\r\n\x1f\x8b\x08" + body,
    }[kind]
    count = 1_000 if kind == "heads" else 64

    def attack(_number: int, stop: threading.Event) -> None:
        with contextlib.ExitStack() as stack:
            mine = [stack.enter_context(hostile(gateway)) for _ in range(count // 32)]
            for connection in mine[1:]:
                with contextlib.suppress(TimeoutError):
                    connection.sendall(said[: MIB if kind == "heads" else 20 * MIB])
            hold(mine[0], stop, said)

    with Memory(gateway) as memory:
        with honest(gateway, NOTHING_FOLDED), Attackers(32, attack) as attackers:
            attacked(gateway, during_s)
        print(f"{attackers.rounds} rounds")
    memory.check()


@pytest.mark.deep
@in_bounded_time
def test_unread_answers_are_bounded(gateway: Routelake, during_s: float) -> None:
    """Pipelined requests for a large page, on 64 connections that read nothing.

    `tests/api/http/test_bounds.py` tests the bound itself.
    """

    def attack(_number: int, stop: threading.Event) -> None:
        with hostile(gateway) as connection:
            hold(connection, stop, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20_000)

    with Memory(gateway) as memory, honest(gateway, NOTHING_FOLDED), Attackers(64, attack):
        attacked(gateway, during_s)
    memory.check()


@in_bounded_time
def test_connections_over_the_limit_do_not_slow_other_clients(gateway: Routelake, during_s: float) -> None:
    """As many as there may be, and half as many again: idle, with half a head, with a long poll.

    A few hundred objects stay after 4,096 connections, and keep most arenas of Python's allocator in use. The next
    attack uses these arenas again.
    """
    crowded(gateway, during_s / 2).check(left_bytes=128_000_000)
    crowded(gateway, during_s / 2).check(left_bytes=16_000_000)


def crowded(gateway: Routelake, during_s: float) -> Memory:
    """Let connections come and go at the limit, next to an honest client."""
    poll = b'GET /v1/topics/t/route?wait=60 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "0-none"\r\n\r\n'
    end = time.monotonic() + during_s
    numbers = itertools.count()

    def evicted() -> float:
        return refusals(gateway).get("http-evicted-idle", 0)

    before = evicted()
    with Memory(gateway) as memory, honest(gateway, NOTHING_FOLDED), contextlib.ExitStack() as stack:
        crowd: list[socket.socket] = []

        def one_goes_and_one_comes(says: bytes = poll) -> None:
            at = next(numbers) % len(crowd)
            crowd[at].close()
            crowd[at] = again = stack.enter_context(hostile(gateway))
            with contextlib.suppress(ConnectionError):
                again.sendall(says)

        def somebody_was_evicted() -> bool:
            for _ in range(500):
                one_goes_and_one_comes(b"")
            return evicted() > before

        for number in range(6_000):
            connection = stack.enter_context(hostile(gateway))
            with contextlib.suppress(ConnectionError):
                connection.sendall((b"", b"GET / HTTP/1.1\r\nX: ", poll)[number % 3])
            crowd.append(connection)
        while time.monotonic() < end:
            one_goes_and_one_comes()
        # A gateway that stood still has fewer at a time: the kernel brings those it had no place for seconds later, when
        # others are gone. So more of them come.
        wait_until(lambda: evicted() > before or somebody_was_evicted(), 120, "one to go")
    return memory


def newest_epoch(folding: Routelake) -> int:
    newest = folding.get("/v1/epochs?limit=1")["epochs"]
    return int(newest[0]["epoch"]) if newest else 0


@in_bounded_time
def test_caches_of_requests_are_bounded_by_their_bytes(folding: Routelake, during_s: float) -> None:
    """Paths, topics, tags and questions about the past that are all new, and one topic with a large past."""
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "large"}
    with socket.create_connection(("127.0.0.1", folding.remoting_port), 60) as admin:
        for number in range(60):
            put = {**order, "value": f"{number:06d}" + "v" * (250 * KIB)}
            admin.sendall(encode_frame(codes.PUT_KV_CONFIG, put, version=513, opaque=number))
            assert b'"code":0' in read_answer(admin)
            if number <= EPOCHS:
                wait_until(lambda number=number: newest_epoch(folding) >= number, 60, "an epoch of its own")
    numbers = itertools.count()

    def attack(number: int, stop: threading.Event) -> None:
        client = http.client.HTTPConnection("127.0.0.1", folding.http_port, timeout=60, source_address=(ATTACKER, 0))
        with contextlib.closing(client):
            for _ in range(50):
                if stop.is_set():
                    return
                one = next(numbers)
                topic = f"{one:09d}" + "t" * (30 * KIB)
                path = (
                    f"/v1/topics/{topic}/route",
                    f"/v1/topics/{topic}/changes",
                    "/v1/topics/large/changes?limit=1000",
                    f"/v1/topics/{quote(topic[:100])}/route?as_of={1 + one % EPOCHS}",
                )[number % 4]
                try:
                    client.request("GET", path, headers={"If-None-Match": f'"{one}-' + "x" * (16 * KIB) + '"'})
                    client.getresponse().read()
                except http.client.HTTPException as error:
                    raise ConnectionError from error

    paths = {
        "/healthz": 200,
        "/v1/topics/none/route": 404,
        "/v1/topics/none/changes": 200,
        "/v1/topics/none/route?as_of=1": 404,
        "/v1/epochs?limit=3": 200,
    }
    with Memory(folding) as memory, honest(folding, paths), Attackers(32, attack):
        attacked(folding, during_s)
        wait_until(lambda: next(numbers) >= 500, 120, "five hundred questions")
    page = folding.get("/v1/topics/large/changes?limit=1000")
    assert 1 <= len(page["changes"]) < 20 and len(json.dumps(page)) < 6 * MIB
    memory.check(left_bytes=128_000_000)  # the caches of the past, and the honest broker's 8,000 topics
