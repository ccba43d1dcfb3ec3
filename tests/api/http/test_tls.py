# SPDX-License-Identifier: Apache-2.0
"""The HTTP API over TLS, on the real listener: the same answers, bounds and names as without."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.http.settings import HttpSettings
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.support.accounts import accounts_file, policy
from dev.support.certificates import Authority
from dev.support.http_api import broker as registration
from dev.support.local import LocalGateway, LocalLake
from dev.support.loops import until
from schemas.tls import ClientAuth, TlsMode
from security.policy import AuthMode
from security.tls_config import TlsSettings
from security.tls_rotation import Tls
from tests.examples.parts import T1, register

ACCOUNTS = """
accounts:
  - {accessKey: reader, certificate: 'subject:CN=reader'}
  - {accessKey: bound, certificate: 'subject:CN=bound', role: broker, clusters: [cluster-a], brokerNames: [broker-a]}
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@contextlib.contextmanager
def serving(
    authority: Authority, folder: Path, mode: TlsMode = TlsMode.PERMISSIVE, **more: Any
) -> Iterator[LocalGateway]:
    pair = authority.issue()
    auth = {"client_ca": authority.path, "client_auth": ClientAuth.OPTIONAL}
    tls = Tls(TlsSettings(mode, pair.cert, pair.key, **auth))  # type: ignore[arg-type]
    with LocalLake(folder, folds=False) as lake, lake.gateway(tls=tls, http_port=0, **more) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def gateway(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """With a route, permissive."""
    with serving(authority, tmp_path_factory.mktemp("lake")) as gateway, gateway.connect() as broker:
        assert broker.call(register("broker-a", "10.0.0.1:10911").request()).code == codes.SUCCESS
        yield gateway


def exchange(connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection.request(method, path, body, {"content-type": "application/json"} if body else {})
    answer = connection.getresponse()
    return answer.status, answer.read()


@contextlib.contextmanager
def connected(gateway: LocalGateway, tls: ssl.SSLContext | None) -> Iterator[http.client.HTTPConnection]:
    host, port = "127.0.0.1", gateway.http_port
    connection = (
        http.client.HTTPConnection(host, port, timeout=30)
        if tls is None
        else http.client.HTTPSConnection(host, port, timeout=30, context=tls)
    )
    with contextlib.closing(connection):
        yield connection


def raw(gateway: LocalGateway, tls: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", gateway.http_port), timeout=30)
    return tls.wrap_socket(plain, server_hostname="127.0.0.1")


def test_the_same_answers(gateway: LocalGateway, authority: Authority) -> None:
    """From the fast path and from the application, many on a connection."""
    route = f"/v1/topics/{T1}/route"
    with connected(gateway, None) as plain, connected(gateway, authority.client()) as encrypted:
        for path in (route, "/v1/topics", "/v1/clusters", "/v1/topics/nowhere/route", "/nowhere", f"{route}?x=y"):
            expected = exchange(plain, "GET", path)
            assert [exchange(encrypted, "GET", path) for _ in range(3)] == [expected] * 3
        assert exchange(plain, "GET", route)[0] == 200


def test_requests_that_arrive_together(gateway: LocalGateway, authority: Authority) -> None:
    request = f"GET /v1/topics/{T1}/route HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    with raw(gateway, authority.client()) as peer:
        peer.sendall(request * 50)
        got = b""
        while got.count(b"HTTP/1.1 200") < 50 or not got.endswith(b"}"):
            more = peer.recv(65536)
            assert more, f"closed after {got.count(b'HTTP/1.1 200')} answers"
            got += more
    assert got.count(b"HTTP/1.1 200") == 50


def test_a_large_body_and_its_answer(gateway: LocalGateway, authority: Authority) -> None:
    """More than a record, both ways: 2,000 topics are registered and listed."""
    topics = {f"large-{n:04}": {"topicName": f"large-{n:04}"} for n in range(2000)}
    body = {
        "clusterName": "cluster-a", "brokerName": "broker-l", "brokerAddr": "10.0.0.9:10911", "brokerId": 0,
        "topicConfigSerializeWrapper": {"topicConfigTable": topics, "dataVersion": {"counter": 1, "timestamp": 1, "stateVersion": 0}},
    }  # fmt: skip
    with connected(gateway, authority.client()) as peer:
        status, answer = exchange(peer, "POST", "/v1/brokers/register", json.dumps(body).encode())
        assert status in (200, 202), answer
        until(lambda: len(json.loads(exchange(peer, "GET", "/v1/topics?limit=10000")[1])["topicList"]) >= 2000)


def test_long_polls(gateway: LocalGateway, authority: Authority) -> None:
    """One that waits is answered at its time, and a request behind it after that."""
    with connected(gateway, authority.client()) as peer:
        peer.request("GET", f"/v1/topics/{T1}/route")
        first = peer.getresponse()
        first.read()
        tag = first.headers["etag"]
        peer.request("GET", f"/v1/topics/{T1}/route?wait=0.2", headers={"if-none-match": tag})
        second = peer.getresponse()
        second.read()
        assert second.status == 304
        assert exchange(peer, "GET", "/healthz")[0] == 200


def test_what_starves(authority: Authority, tmp_path: Path) -> None:
    """A head, and a handshake, which is its beginning."""
    with (
        serving(authority, tmp_path, http=HttpSettings(header_timeout_s=0.2)) as gateway,
        socket.create_connection(("127.0.0.1", gateway.http_port), timeout=30) as silent,
    ):
        silent.sendall(b"\x16\x03\x01")
        assert silent.recv(10) == b""
        with (
            contextlib.suppress(OSError),
            raw(gateway, authority.client()) as peer,
        ):  # a busy machine may be late itself
            peer.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
            assert b" 408 " in (peer.recv(65536) or b" 408 ")


@pytest.mark.parametrize("mode", [AuthMode.AUDIT, AuthMode.ENFORCE_WRITES])
def test_where_reads_are_open_nobody_is_named_who_has_a_certificate(
    authority: Authority, tmp_path: Path, mode: AuthMode
) -> None:
    more: dict[str, Any] = {"policy": policy(mode), "accounts": accounts_file(tmp_path, ACCOUNTS)}
    with (
        serving(authority, tmp_path / "lake", **more) as gateway,
        connected(gateway, authority.client(authority.issue("bound"))) as broker,
        connected(gateway, authority.client(authority.issue("reader"))) as reader,
        connected(gateway, authority.client()) as nobody,
    ):

        def refusals() -> float:
            labels = {"mode": mode.value, "reason": "anonymous", "role": "reader"}
            return gateway.parts.metrics.registry.get_sample_value("routelake_auth_refused_total", labels) or 0.0

        body = json.dumps(registration("broker-a", topics=(T1, "t"), cluster="cluster-a")).encode()
        assert exchange(broker, "POST", "/v1/brokers/register", body)[0] == 200
        for path in ("/v1/clusters", f"/v1/topics/{T1}/route"):
            assert exchange(reader, "GET", path)[0] == 200
        assert refusals() == 0
        assert exchange(nobody, "GET", f"/v1/topics/{T1}/route")[0] == 200
        assert refusals() == 1


def test_the_account_of_a_client_certificate(authority: Authority, tmp_path: Path) -> None:
    """The same account on both ports, by the name in its certificate; a bound one speaks for its brokers alone."""
    reader, bound = (authority.client(authority.issue(name)) for name in ("reader", "bound"))
    nobody = authority.client(authority.issue("nobody"))
    more = {"policy": policy(AuthMode.ENFORCE), "accounts": accounts_file(tmp_path, ACCOUNTS)}
    with serving(authority, tmp_path / "lake", TlsMode.ENFORCING, **more) as gateway, contextlib.ExitStack() as stack:

        def remoting(tls: ssl.SSLContext) -> RemotingClient:
            return stack.enter_context(RemotingClient("127.0.0.1", gateway.port, tls=tls))

        own = remoting(bound)
        assert own.call(register("broker-a", "10.0.0.1:10911").request()).code == codes.SUCCESS
        assert own.call(register("broker-b", "10.0.0.1:10911").request()).code == codes.NO_PERMISSION
        asked = Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": T1})
        for tls, status, code in (
            (reader, 200, codes.SUCCESS),
            (bound, 200, codes.SUCCESS),
            (nobody, 401, codes.NO_PERMISSION),
            (authority.client(), 401, codes.NO_PERMISSION),
        ):
            with connected(gateway, tls) as peer:
                assert exchange(peer, "GET", f"/v1/topics/{T1}/route")[0] == status
            assert remoting(tls).call(asked).code == code
        assert remoting(reader).call(register("broker-a", "10.0.0.1:10911").request()).code == codes.NO_PERMISSION
