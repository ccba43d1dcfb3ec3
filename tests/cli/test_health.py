# SPDX-License-Identifier: Apache-2.0
"""`routelake health` asks the listener of this machine, whatever the environment says."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET, AF_INET6

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.certificates import Authority
from dev.support.command import command


class Answer(BaseHTTPRequestHandler):
    """A gateway's /healthz, or another program's."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/healthz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in request.param else AF_INET

    try:
        found = Server((request.param, 0), type("One", (Answer,), {}))
    except OSError as error:
        pytest.skip(f"no {request.param} here: {error}")
    with found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_its_own_listener_is_asked_and_no_proxy(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, status: int, code: int
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server.RequestHandlerClass.status = status  # type: ignore[attr-defined]
    host, port = str(server.server_address[0]), server.server_address[1]
    at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    assert command("health", "--http", at).returncode == code


def test_a_bad_address_or_a_port_that_never_answers_is_not_healthy() -> None:
    assert command("health", "--http", "nonsense:port").returncode == 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = command("health", "--http", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout-s", "0.2")
    assert (done.returncode, done.stderr.count("timed out")) == (1, 1)


SECURED = (
    "tls.test.mode.enable=false\n"
    "tls.server.mode=enforcing\n"
    "tls.server.certPath={pair.cert}\n"
    "tls.server.keyPath={pair.key}\n"
    "tls.server.need.client.auth=require\n"
    "tls.server.authClient=true\n"
    "tls.server.trustCertPath={ca}\n"
)


@pytest.mark.parametrize(
    ("host", "secured"),
    [
        pytest.param("127.0.0.1", False, id="loopback"),
        pytest.param("0.0.0.0", False, id="all-addresses"),
        pytest.param("[::]", True, id="all-addresses-client-certificates"),
        *(
            pytest.param(host, secured, id=f"{host}{'-client-certificates' if secured else ''}", marks=pytest.mark.deep)
            for host, secured in [
                ("[::1]", False),
                ("[::]", False),
                ("127.0.0.1", True),
                ("0.0.0.0", True),
                ("[::1]", True),
            ]
        ),
    ],
)
def test_a_gateway_as_a_container_asks_it(tmp_path: Path, host: str, secured: bool) -> None:
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    options = ["--insecure"]
    if secured:
        authority = Authority(tmp_path / "ca")
        config = tmp_path / "tls.properties"
        config.write_text(SECURED.format(pair=authority.issue(), ca=authority.path))
        options += ["--tls-config", str(config)]
    running = Routelake(tmp_path / "data", "gateway", tuple(options), host=host)
    variables = {"ROUTELAKE_HTTP": f"{host}:{running.http_port}", "http_proxy": "http://127.0.0.1:1"}
    variables |= {"https_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}
    assert command("health", **variables).returncode == 1
    running.start(wait_ready_s=None)
    try:
        wait_until(lambda: command("health", **variables).returncode == 0, 90, "the gateway to be healthy", 0.2)
        assert f"http={host}:{running.http_port} " in running.log_path.read_text()
        assert running.process is not None
        os.kill(running.process.pid, signal.SIGSTOP)
        assert command("health", "--timeout-s", "0.5", **variables).returncode == 1
    finally:
        assert running.process is not None
        os.kill(running.process.pid, signal.SIGCONT)
        running.kill()
    assert command("health", **variables).returncode == 1


def test_without_a_gateway_it_is_not_healthy() -> None:
    done = command("health", "--http", "127.0.0.1:1")
    assert done.returncode == 1
    assert "is not healthy" in done.stderr
