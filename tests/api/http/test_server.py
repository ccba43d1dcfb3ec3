# SPDX-License-Identifier: Apache-2.0
"""The server on a real socket: slow clients, endless bodies, heads without bounds, starting and stopping."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.server import DRAIN_S, listen, serve_http
from api.http.settings import HttpSettings
from dev.support.http_api import JSON, HttpApi, broker, problem
from dev.support.loops import until
from schemas.errors import SetupError

SMALL = HttpSettings(linger_s=0.2, max_header_bytes=8192, max_body_bytes=100_000)
HURRIED = replace(SMALL, header_timeout_s=2.0, body_timeout_s=0.3)
"""A machine that stands still for a second closes no connection that has just been made."""

WITHIN_S = 10.0
"""In which a time limit of `HURRIED` must have ended what would go on for twice as long."""

REGISTER = b"POST /v1/brokers/register HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


class Server:
    """A gateway that is listened to."""

    def __init__(self, api: HttpApi, drain_s: int = DRAIN_S, app: Any = None) -> None:
        self.api = api
        self.port = 0
        self.stop = asyncio.Event()
        bound = threading.Event()

        def on_bound(port: int) -> None:
            self.port = port
            bound.set()

        serving = serve_http(app or api.app, "127.0.0.1", 0, stop=self.stop, on_bound=on_bound, drain_s=drain_s)
        self.task = api.loop.start(serving)
        assert bound.wait(60)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.api.loop.loop.call_soon_threadsafe(self.stop.set)
        self.task.result(90)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)


def serving(folder: Path, http: HttpSettings) -> Iterator[Server]:
    api = HttpApi(folder, fold=False, clock_interval_s=3600.0, http=http)
    server = Server(api)
    yield server
    server.close()
    api.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serving(tmp_path_factory.mktemp("server"), SMALL)


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serving(tmp_path_factory.mktemp("hurried"), HURRIED)


def everything(connection: socket.socket) -> bytes:
    """What the server says until it closes."""
    parts = []
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def kind(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer
    return str(json.loads(body)["type"].rpartition(":")[2])


def first_answer(connection: socket.socket) -> bytes:
    """The head and the body of one answer; the next one, which may be there already, is left."""
    head, body = b"", b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        assert byte, head
        head += byte
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        part = connection.recv(length - len(body))
        assert part, head + body
        body += part
    return head + body


def test_it_answers(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/healthz").status_code == 200
        answer = client.post("/v1/brokers/register", content=json.dumps(broker()).encode(), headers=JSON)
        assert answer.status_code == 200
        assert "server" not in answer.headers
        problem(client.get("/v1/topics/nowhere/route"), 404, "topic-not-exist")
        problem(client.get("/v1/topics/..%2Fx/route"), 400, "bad-parameter")
        assert 'active_connections{listener="http"} 1.0' in client.get("/metrics").text


def test_a_head_a_byte_at_a_time(hurried: Server) -> None:
    with hurried.connect() as connection:
        began = time.monotonic()
        pause = threading.Event()
        for byte in b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 1000:
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                break
            pause.wait(0.02)
            if time.monotonic() - began > WITHIN_S:
                pytest.fail("it is still being listened to")
        assert kind(everything(connection)) == "request-timeout"


@pytest.mark.parametrize("known", [False, True])
def test_a_head_that_begins_behind_another_request(hurried: Server, known: bool) -> None:
    """It has its own time; an idle connection has 75 s."""
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with hurried.connect() as connection:
        if known:
            connection.sendall(whole)
            first_answer(connection)
        connection.sendall(whole + b"GET /heal")
        assert first_answer(connection).startswith(b"HTTP/1.1 200")
        assert kind(everything(connection)) == "request-timeout"


def test_connecting_and_saying_nothing(hurried: Server) -> None:
    with hurried.connect() as connection:
        assert everything(connection) == b""


def test_a_body_a_byte_at_a_time(hurried: Server) -> None:
    end = hurried.api.log.end()
    with hurried.connect() as connection:
        connection.sendall(REGISTER + b"Content-Length: 1000\r\n\r\n{")
        began = time.monotonic()
        pause = threading.Event()
        while not _readable(connection) and time.monotonic() - began < WITHIN_S:
            connection.sendall(b" ")
            pause.wait(0.02)
        assert time.monotonic() - began < WITHIN_S
        assert kind(first_answer(connection)) == "request-timeout"
    assert hurried.api.written_since(end) == []


def _readable(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(60)


def test_a_chunked_body_without_end(server: Server) -> None:  # [29]
    end = server.api.log.end()
    with server.connect() as connection:
        connection.sendall(REGISTER + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
        sent = 0
        while not _readable(connection) and sent < 100_000_000:
            connection.sendall(chunk)
            sent += len(chunk)
        assert kind(first_answer(connection)) == "too-large"
        assert sent < 10_000_000
        # A client that continues to send is disconnected.
        with pytest.raises(OSError):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                connection.sendall(chunk)
    assert server.api.written_since(end) == []


def test_a_body_that_nobody_asked_for_ends_too(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert first_answer(connection).startswith(b"HTTP/1.1 200")
        with pytest.raises(OSError):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                connection.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")


def test_a_head_without_bounds(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        try:
            for number in range(100_000):
                connection.sendall(b"X-%d: %b\r\n" % (number, b"a" * 100))
        except OSError:
            pass
        else:
            pytest.fail("it took all of it")


def test_a_declared_body_that_is_too_large_is_not_waited_for(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(REGISTER + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n")
        answer = first_answer(connection)
        assert answer.startswith(b"HTTP/1.1 413")
        assert kind(answer) == "too-large"


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\x00\x00\x00\x51\x00\x00\x00\x4d{}",  # remoting
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/brokers/register HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/brokers/register HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /v1/topics/\xff\xfe/route HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_bytes_that_are_not_http_are_refused(hurried: Server, data: bytes) -> None:
    with hurried.connect() as connection:
        connection.sendall(data)
        answer = everything(connection)
        assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408")), answer
        assert kind(answer) in ("bad-request", "request-timeout")


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(b"GET /v1/topics/t%d/route HTTP/1.1\r\nHost: localhost\r\n\r\n" % 1 * 1)
        connection.sendall(
            b"".join(b"GET /v1/topics/t%d/route HTTP/1.1\r\nHost: localhost\r\n\r\n" % n for n in range(2, 60))
        )
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = everything(connection)
    places = [text.index(b"for the topic: t%d;" % number) for number in range(1, 60)]
    assert places == sorted(places)
    assert text.count(b"HTTP/1.1 404") == 59
    assert text.rindex(b"HTTP/1.1 200") > places[-1]


def test_a_half_request_then_the_end(server: Server) -> None:
    end = server.api.log.end()
    for part in (b"GET /heal", REGISTER, REGISTER + b"Content-Length: 100\r\n\r\n{"):
        with server.connect() as connection:
            connection.sendall(part)
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/healthz").status_code == 200
    assert server.api.written_since(end) == []


def test_a_client_that_leaves_ends_its_long_poll(make_api: Any) -> None:
    api: HttpApi = make_api()
    server = Server(api, drain_s=60)
    try:
        with httpx.Client(base_url=server.url) as client:
            client.post("/v1/brokers/register", content=json.dumps(broker()).encode(), headers=JSON)
            tag = client.get("/v1/topics/orders/route").headers["etag"]
        with server.connect() as connection:
            connection.sendall(
                b"GET /v1/topics/orders/route?wait=300 HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: %b\r\n\r\n"
                % tag.encode()
            )
            until(lambda: api.app.context.watch.waiting == 1)
        until(lambda: api.app.context.watch.waiting == 0)
        answers: list[int] = []
        poll = threading.Thread(target=_poll, args=(server.url, tag, answers))
        poll.start()
        until(lambda: api.app.context.watch.waiting == 1)
    finally:
        began = time.monotonic()
        server.close()
    poll.join(60)
    assert answers == [304]  # a stop answers it
    assert time.monotonic() - began < 30
    with pytest.raises(OSError):
        server.connect()


def test_a_stop_answers_reads_that_wait_and_bodies_that_are_not_complete(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False)
    server = Server(api, drain_s=1)
    waiting = (
        b"GET /v1/clusters?wait_for=99999999&wait_timeout=30000 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/clusters?wait_for=99999999&wait_timeout=30000&reads=committed HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    with server.connect() as first, server.connect() as second, server.connect() as unfinished:
        first.sendall(waiting[0])
        second.sendall(waiting[1])
        until(lambda: bool(api.gateway.live_view._reads) and bool(api.gateway.committed._reads))
        unfinished.sendall(REGISTER + b"Content-Length: 100\r\n\r\n{")
        until(lambda: bool(api.app.context.budget._held))
        began_s = time.monotonic()
        api.loop.loop.call_soon_threadsafe(server.stop.set)
        for connection in (first, second):
            answer = first_answer(connection)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 1" in answer
            assert kind(answer) == "system-busy"
        assert time.monotonic() - began_s < WITHIN_S
        answer = first_answer(unfinished)
        assert kind(answer) == "system-busy"
        assert b"the body was not complete" in answer
        server.close()


def _poll(url: str, tag: str, answers: list[int]) -> None:
    with httpx.Client(base_url=url, timeout=60) as client:
        answers.append(client.get("/v1/topics/orders/route?wait=300", headers={"if-none-match": tag}).status_code)


def test_a_client_that_does_not_fetch_its_answers(make_api: Any) -> None:
    api: HttpApi = make_api(http=HttpSettings(write_timeout_s=0.2))
    api.register(broker(topics=tuple(f"{'t' * 100}{number}" for number in range(500))))
    server = Server(api)
    try:
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with pytest.raises(OSError):
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    connection.sendall(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        with httpx.Client(base_url=server.url) as client:
            assert 'security_events_total{reason="request-timeout"} 1.0' in client.get("/metrics").text
    finally:
        server.close()


def test_too_many_connections(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(max_connections=1))
    server = Server(api)
    try:
        with server.connect() as first:
            first.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert first_answer(first).startswith(b"HTTP/1.1 200")
            with server.connect() as second:
                assert everything(first) == b""  # it was idle, and is evicted
                second.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert first_answer(second).startswith(b"HTTP/1.1 200")
    finally:
        server.close()


def test_a_port_in_use_names_the_option(unfolded: HttpApi) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SetupError, match=f"--http 127.0.0.1:{port} cannot be listened on: another process listens there"
        ):
            unfolded.loop.run(serve_http(unfolded.app, "127.0.0.1", port, stop=asyncio.Event()))
    with pytest.raises(SetupError, match=r"--http no\.such\.host\.invalid:80"):
        listen("no.such.host.invalid", 80)
    with pytest.raises(SetupError, match="this machine does not have that address"):
        listen("192.0.2.1", 8080)


def test_plain_reads_until_a_stop(make_api: Any) -> None:
    api: HttpApi = make_api(clock_interval_s=3600.0)
    assert api.register(broker()).json()["visible"]
    api.settled()
    server = Server(api)
    with server.connect() as connection:
        answers = set()
        for number in range(100):
            connection.sendall(b"GET /v1/topics/orders/route HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = first_answer(connection)
            answers.add(b"\r\n".join(line for line in answer.split(b"\r\n") if not line.startswith(b"date:")))
            assert number == 0 or b"\r\ndate: " in answer
        assert len(answers) == 1
        server.close()
        assert everything(connection) == b""
