# SPDX-License-Identifier: Apache-2.0
"""TLS of real processes: both ports, all workers, certificates that change while it runs."""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.model import codes
from dev.model.client import ConnectionClosed, RemotingClient
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.certificates import Authority, Pair
from tests.examples.parts import config, register

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    return authority.issue("client", subject="CN=ops")


@pytest.fixture(scope="module")
def in_use(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The files that the server uses."""
    folder = tmp_path_factory.mktemp("in-use")
    put(pair := Pair(folder / "tls.pem", folder / "tls.key"), authority.issue("first"))
    return pair


@pytest.fixture(scope="module")
def enforcing(
    authority: Authority, client: Pair, in_use: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Routelake]:
    """Two workers that know RocketMQ's own tls.properties, and take whom the authority knows."""
    folder = tmp_path_factory.mktemp("enforcing")
    properties = folder / "tls.properties"
    properties.write_text(
        "tls.test.mode.enable=false\n"
        "tls.server.mode=enforcing\n"
        f"tls.server.certPath={in_use.cert}\n"
        f"tls.server.keyPath={in_use.key}\n"
        "tls.server.need.client.auth=require\n"
        "tls.server.authClient=true\n"
        f"tls.server.trustCertPath={authority.path}\n"
        # A client's, in the same file, as RocketMQ takes it.
        "tls.client.authServer=true\n"
    )
    options = ("--tls-config", str(properties), "--workers", "2")
    running = Routelake(folder / "data", "gateway", options).start(wait_ready_s=None)
    try:
        wait_until(lambda: len(workers(running, authority, client)) == 2, 90, "both workers to serve", 0.05)
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def put(where: Pair, pair: Pair) -> None:
    """As a tool that renews certificates does: one file, then the other."""
    for new, old in ((pair.cert, where.cert), (pair.key, where.key)):
        shutil.copy(new, old.with_suffix(".new"))
        old.with_suffix(".new").replace(old)


def get(running: Routelake, path: str, tls: ssl.SSLContext | None) -> tuple[int, Any]:
    """Status and document, over a connection of its own."""
    connection = (
        http.client.HTTPConnection(HOST, running.http_port, timeout=30)
        if tls is None
        else http.client.HTTPSConnection(HOST, running.http_port, timeout=30, context=tls)
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body.startswith(b"{") else body.decode()
    finally:
        connection.close()


def workers(running: Routelake, authority: Authority, client: Pair) -> set[str]:
    found = set()
    for _ in range(24):
        try:
            found.add(get(running, "/healthz", authority.client(client))[1]["gateway"])
        except (OSError, http.client.HTTPException):
            return set()
    return found


def subject(running: Routelake, authority: Authority, client: Pair) -> str:
    """CN of the certificate that a new connection to the NameServer gets."""
    with RemotingClient(HOST, running.remoting_port, tls=authority.client(client)) as peer:
        found = peer._socket.getpeercert()  # type: ignore[attr-defined]
        return str(found["subject"][-1][-1][1])


def route(peer: RemotingClient, topic: str) -> int:
    return peer.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).code


def test_a_client_with_a_certificate_is_served(enforcing: Routelake, authority: Authority, client: Pair) -> None:
    own = authority.client(client)
    with RemotingClient(HOST, enforcing.remoting_port, tls=own) as broker:
        assert (
            broker.call(register("b", "127.0.0.1:1", topics=[config("t"), config("u")]).request()).code == codes.SUCCESS
        )
        assert route(broker, "t") == codes.SUCCESS
        for _ in range(8):  # whichever worker the kernel gives it to
            wait_until(lambda: get(enforcing, "/v1/topics/t/route", own)[0] == 200, 30, "the route over HTTPS", 0.05)


def test_a_client_without_a_certificate_sees_only_health(
    enforcing: Routelake, authority: Authority, tmp_path: Path
) -> None:
    without = authority.client()
    foreign = authority.client(Authority(tmp_path, "foreign").issue("client"))
    for tls in (without, foreign):
        with (
            pytest.raises((ConnectionClosed, OSError)),
            RemotingClient(HOST, enforcing.remoting_port, tls=tls) as peer,
        ):
            route(peer, "t")
    assert get(enforcing, "/readyz", without)[0] == 200
    status, problem = get(enforcing, "/v1/topics/t/route", without)
    assert status == 403
    assert "client certificate" in problem["detail"]
    with pytest.raises((OSError, http.client.HTTPException)):
        get(enforcing, "/readyz", foreign)


def test_plaintext_is_refused_in_enforcing_mode(enforcing: Routelake) -> None:
    with RemotingClient(HOST, enforcing.remoting_port) as peer:
        peer.send(Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}))
        assert peer.closed_by_peer()
    status, problem = get(enforcing, "/readyz", None)
    assert (status, problem["detail"]) == (400, "this port requires https")


def test_a_certificate_changes_under_open_connections(
    enforcing: Routelake, authority: Authority, client: Pair, in_use: Pair
) -> None:
    """And one that does not fit its key leaves what was there, and says so."""
    own = authority.client(client)
    with RemotingClient(HOST, enforcing.remoting_port, tls=own) as open_before:
        assert subject(enforcing, authority, client) == "first"
        put(in_use, authority.issue("second"))
        wait_until(
            lambda: {subject(enforcing, authority, client) for _ in range(8)} == {"second"},
            60,
            "both workers to show the new certificate",
            0.05,
        )
        assert get(enforcing, "/readyz", own)[1]["checks"]["tls"] == {"ok": True}

        shutil.copy(authority.issue("third").key, in_use.key)
        wait_until(
            lambda: not any(get(enforcing, "/readyz", own)[1]["checks"]["tls"]["ok"] for _ in range(8)),
            60,
            "both workers to refuse the key",
            0.05,
        )
        status, found = get(enforcing, "/readyz", own)
        assert (status, found["ready"]) == (200, True)
        assert f"the key {in_use.key} does not fit" in found["checks"]["tls"]["reason"]
        metrics = get(enforcing, "/metrics", own)[1]
        for worker in (1, 2):
            assert f'routelake_tls_reload_failures_total{{worker="{worker}"}} 1.0' in metrics
            assert f'routelake_tls_reloads_total{{worker="{worker}"}} 1.0' in metrics
        assert "routelake_tls_certificate_not_after_seconds" in metrics
        assert subject(enforcing, authority, client) == "second"
        assert route(open_before, "none") == codes.TOPIC_NOT_EXIST
    assert "cannot use the changed TLS files" in enforcing.log_tail()


def test_permissive_mode_serves_plaintext_and_tls(authority: Authority, tmp_path: Path) -> None:
    """With options, and a key that is encrypted."""
    pair = authority.issue("encrypted", password="secret word")
    (tmp_path / "password").write_text("secret word\n")
    password = f"file:{tmp_path / 'password'}"
    options = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--tls-key-password", password)
    running = Routelake(tmp_path / "data", "gateway", options)
    try:
        running.start(wait_ready_s=None).wait_listening()
        for tls in (None, authority.client()):
            with RemotingClient(HOST, running.remoting_port, tls=tls) as peer:
                assert route(peer, "t") == codes.TOPIC_NOT_EXIST
            assert get(running, "/readyz", tls)[0] == 200
        assert running.stop() == 0
        assert "secret word" not in running.log_path.read_text()
    finally:
        running.kill()
