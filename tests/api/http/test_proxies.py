# SPDX-License-Identifier: Apache-2.0
"""Real nginx and HAProxy before a real socket: what the application was made to do is what the client asked for."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from dev.peers.java import wait_until
from dev.support.executed import Executed
from dev.support.http_api import HttpApi, broker
from dev.support.messages import CORPUS, H2C, INNER, PLAIN, WEBSOCKET, chunked, cut, message, segments, sized
from dev.support.proxies import SETUPS, Proxy, checking, with_setups
from dev.support.sampled import sampled
from dev.support.strict_http import Asked, End, read_stream
from tests.api.http.test_server import Server, everything

LAST = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
TO_A_PROXY_OTHERWISE = {"keep-alive, HTTP/1.0"}
"""A proxy keeps the connection, which the gateway does not."""
ORDINARY = [(("nginx", "keep-alive"),), (("nginx", "websocket by map"),), (("haproxy", "reuse"),)]
"""Set-ups of an ordinary run: they keep connections to the gateway, or pass an upgrade on. The others need --deep."""
SILENCE_S = 0.5
AT_ONCE = 16
PAUSE_S, PAUSES = 0.02, 4


@pytest.fixture(scope="module")
def executed(quiet: HttpApi) -> Executed:
    return Executed(quiet.app)


@pytest.fixture(scope="module")
def server(quiet: HttpApi, executed: Executed) -> Iterator[Server]:
    server = Server(quiet, app=executed)
    yield server
    server.close()


@pytest.fixture(scope="module")
def proxies(server: Server) -> Iterator[Callable[[str], Proxy]]:
    """Each is started once, when it is first asked for."""
    with contextlib.ExitStack() as stack:
        started: dict[str, Proxy] = {}

        def get(program: str) -> Proxy:
            if program not in started:
                started[program] = stack.enter_context(with_setups(program, server.port))
            return started[program]

        yield get


@pytest.fixture(params=sampled(((setup,) for setup in SETUPS), ORDINARY), ids=" ".join)
def port(request: pytest.FixtureRequest, proxies: Callable[[str], Proxy]) -> int:
    program, name = request.param
    return proxies(program).ports[name]


def talk(port: int, parts: Sequence[bytes], silence_s: float) -> bytes:
    """Send segments, and hear what is said until the end or a silence."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):
            for number, part in enumerate(parts):
                if 0 < number < PAUSES:
                    time.sleep(PAUSE_S)  # so that it goes on in packets of its own
                connection.sendall(part)
        connection.settimeout(silence_s)
        said = b""
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                said += part
        return said


def is_clear(data: bytes) -> bool:
    """Whether a stream leaves no doubt, and ends."""
    found = read_stream(data)
    return found.end is End.CLOSED and found.begun is None


def test_valid_requests_are_executed_once_and_in_order(port: int, executed: Executed) -> None:
    answered = 0
    for name, data in CORPUS.items():
        if not is_clear(data + LAST) or name in TO_A_PROXY_OTHERWISE:
            continue
        expected = read_stream(data + LAST).whole
        executed.forget()
        said = talk(port, [data + LAST], 20.0)
        assert executed.whole == expected[: len(executed.whole)], name
        if executed.whole != expected:  # the proxy takes less
            assert b" 40" in said or b" 50" in said, (name, said)
        else:
            answered += 1
    assert answered > 60


@pytest.mark.parametrize("upgrade", [WEBSOCKET, H2C], ids=["websocket", "h2c"])
@pytest.mark.parametrize("make", [sized, chunked])
@pytest.mark.parametrize("line", [b"POST /v1/brokers/heartbeat HTTP/1.1", b"GET /v1/topics HTTP/1.1"])
def test_a_body_behind_an_upgrade_is_no_request(
    port: int, executed: Executed, make: Any, upgrade: tuple[bytes, ...], line: bytes
) -> None:
    head, _, body = (data := make(*upgrade, line=line)).partition(b"\r\n\r\n")
    method, target, _ = line.split()
    for parts in ([data, LAST], [head + b"\r\n\r\n", body, LAST], [*cut(data, list(range(1, len(data)))), LAST]):
        executed.forget()
        talk(port, parts, 20.0)
        assert executed.whole == [Asked(method, target, INNER), Asked(b"GET", PLAIN.split()[1], b"")]


def test_nothing_is_smuggled(port: int, executed: Executed) -> None:
    """What runs was a request to the proxy, too, however lenient that is."""
    executed.forget()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        heads = [data.find(b"\r\n\r\n") + 4 for data in CORPUS.values()]
        streams = [[*cut(data, [head]), LAST] for data, head in zip(CORPUS.values(), heads, strict=True)]
        list(pool.map(lambda parts: talk(port, parts, SILENCE_S), streams))
    assert executed.whole
    assert executed.unproxied == []


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=max(2, settings().max_examples // 10))
@given(parts=segments())
def test_nothing_is_smuggled_by_any_stream(port: int, executed: Executed, parts: list[bytes]) -> None:
    executed.forget()
    talk(port, parts, SILENCE_S)
    assert executed.unproxied == []


def test_haproxy_checks_keep_the_gateway_up(server: Server) -> None:
    with checking(server.port) as haproxy:

        def states() -> bool | dict[str, Any]:
            found = haproxy.states()
            return all(state == ("UP", "L7OK") for state in found.values()) or found

        wait_until(lambda: states() is True, 30.0, "HAProxy to find the gateway well")
        for port in haproxy.ports.values():
            assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200


@pytest.mark.parametrize("by", ["nothing", "nginx"])
def test_events_over_http_1_0(server: Server, proxies: Callable[[str], Proxy], by: str) -> None:
    port = server.port if by == "nothing" else proxies("nginx").ports["default"]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(message(line=b"GET /v1/events HTTP/1.0"))
        said = more(connection, b"\n\n")
        head, _, body = said.partition(b"\r\n\r\n")
        assert b"chunked" not in head.lower()
        assert body.startswith(b"retry: ")
        host = 77 if by == "nothing" else 78
        registration = broker(f"by-{by}", topics=(f"by-{by}",), host=host)
        answer = httpx.post(f"{server.url}/v1/brokers/register", json=registration, trust_env=False, timeout=60)
        assert answer.json().get("visible"), answer.text
        assert b"\r" not in body + more(connection, b"event: epoch")


def more(connection: socket.socket, until: bytes) -> bytes:
    said, end_s = b"", time.monotonic() + 60
    while until not in said:
        part = connection.recv(65536)
        assert part and time.monotonic() < end_s, said
        said += part
    return said


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_an_answer_with_a_length_is_the_same(server: Server, version: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(message(b"Connection: close", line=b"GET /v1/topics HTTP/%b" % version))
        head, _, body = everything(connection).partition(b"\r\n\r\n")
        assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
        assert b"transfer-encoding" not in head
