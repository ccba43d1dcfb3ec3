# SPDX-License-Identifier: Apache-2.0
"""HEAD is answered wherever GET is, and OPTIONS on every path, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.http.settings import HttpSettings
from dev.support.http_api import HttpApi
from dev.support.loops import until
from dev.support.messages import PLAIN, message
from tests.api.http.test_server import Server, everything

VARY = ("date", "x-routelake-offset", "x-routelake-epoch", "etag", "content-length")
"""Of answers that change from one moment to the next."""
READS = (
    *("/", "/healthz", "/healthz/fold", "/readyz", "/metrics", "/openapi.json", "/docs", "/rocketmq/nsaddr"),
    *("/console", "/console/", "/console/app.js", "/console/session", "/console/sites.json", "/console/nothing"),
    *("/v1/topics", "/v1/topics/orders/route", "/v1/topics/nowhere/route", "/v1/topics?limit=x", "/v1/nothing"),
    *(
        "/v1/topics/orders/route?as_of=1",
        "/v1/changes",
        "/v1/reports",
        "/v1/reports/topics-by-cluster",
        "/v1/brokers",
        "/v1/kv/ns",
    ),
)


@pytest.fixture(scope="module")
def server(quiet: HttpApi) -> Iterator[Server]:
    server = Server(quiet)
    yield server
    server.close()


@pytest.mark.parametrize("path", READS)
def test_head_has_the_headers_of_get_and_no_body(server: Server, path: str) -> None:
    moving = VARY if path in ("/healthz", "/readyz", "/metrics", "/healthz/fold") else ("date",)
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        expected, found = client.get(path), client.head(path)
    assert found.status_code == expected.status_code
    assert found.content == b""
    assert list(expected.headers) == list(found.headers)
    for name, value in expected.headers.items():
        assert name in moving or found.headers[name] == value, name
    with server.connect() as connection:  # httpx would not tell of a body
        connection.sendall(message(b"Connection: close", line=b"HEAD %b HTTP/1.1" % path.encode()))
        assert everything(connection).partition(b"\r\n\r\n")[2] == b""


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_head_of_what_never_ends_ends(server: Server, quiet: HttpApi, version: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(message(line=b"HEAD /v1/events HTTP/%b" % version))
        connection.sendall(PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        said = everything(connection)
    assert said.count(b"HTTP/1.1 200 OK") == (1 if version == b"1.0" else 2)
    assert b"retry:" not in said
    until(lambda: quiet.app.context.events.subscribers == 0)


def test_head_keeps_the_connection_and_a_fresh_copy(server: Server) -> None:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        tag = client.get("/v1/topics/orders/route").headers["etag"]
        for _ in range(3):
            assert client.head("/v1/topics/orders/route", headers={"if-none-match": tag}).status_code == 304
            assert client.get("/v1/topics/orders/route").json()


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/", "GET, HEAD, OPTIONS"),
        ("/healthz", "GET, HEAD, OPTIONS"),
        ("/metrics", "GET, HEAD, OPTIONS"),
        ("/console/", "GET, HEAD, OPTIONS"),
        ("/console/session", "GET, HEAD, POST, DELETE, OPTIONS"),
        ("/v1/topics/orders/route", "GET, HEAD, DELETE, OPTIONS"),  # of the topic "orders/route"
        ("/v1/topics/orders", "DELETE, OPTIONS"),
        ("/v1/brokers/register", "GET, HEAD, POST, OPTIONS"),  # of the broker "register"
        ("/v1/brokers/a/wipe-write-perm", "POST, OPTIONS"),
        ("/v1/kv/ns/key", "GET, HEAD, PUT, DELETE, OPTIONS"),
    ],
)
def test_options_names_every_method_and_grants_nothing(server: Server, path: str, methods: str) -> None:
    preflight = {"origin": "https://evil.example", "access-control-request-method": "DELETE"}
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for headers in ({}, preflight):
            answer = client.options(path, headers=headers)
            assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", methods)
            assert not [name for name in answer.headers if name.startswith("access-control")]
        for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE"} - set(methods.split(", ")):
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_options_of_the_server_and_of_nothing(server: Server) -> None:
    with server.connect() as connection:
        connection.sendall(message(line=b"OPTIONS * HTTP/1.1"))
        connection.sendall(message(b"Connection: close", line=b"OPTIONS /v1/nothing HTTP/1.1"))
        said = everything(connection)
    assert said.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert b"HTTP/1.1 404 Not Found\r\n" in said


def test_every_endpoint_answers_head_and_options(server: Server) -> None:
    document = httpx.get(f"{server.url}/openapi.json", trust_env=False).json()
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        for path, item in document["paths"].items():
            named = path.replace("{", "").replace("}", "")
            allowed = client.options(named).headers["allow"].split(", ")
            assert {method.upper() for method in item} <= set(allowed)
            assert ("HEAD" in allowed) == ("GET" in allowed)
            if "get" in item:
                assert client.head(named).status_code == (
                    200 if path == "/v1/events" else client.get(named).status_code
                )


def test_protected_reads(make_api: Any) -> None:
    """HEAD asks for a token as GET does; OPTIONS tells what the documents tell, without one."""
    api: HttpApi = make_api(http=HttpSettings(tokens={"alice": "s" * 20}, protect_reads=True))
    assert api.send("HEAD", "/v1/topics").status_code == 401
    assert api.send("HEAD", "/v1/topics", headers={"authorization": f"Bearer {'s' * 20}"}).status_code == 200
    assert api.send("OPTIONS", "/v1/topics").status_code == 204
    assert api.send("HEAD", "/healthz").status_code in (200, 503)
