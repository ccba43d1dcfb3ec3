# SPDX-License-Identifier: Apache-2.0
"""`routelake health` asks the listener of this machine, whatever the environment says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6

import pytest

from tests.support.command import command


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


def test_without_a_gateway_it_is_not_healthy() -> None:
    done = command("health", "--http", "127.0.0.1:1")
    assert done.returncode == 1
    assert "is not healthy" in done.stderr
