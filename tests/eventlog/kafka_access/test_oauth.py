# SPDX-License-Identifier: Apache-2.0
"""Tokens of an OAuth 2.0 endpoint: asked for with the client's credentials, used again for most of their life."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from eventlog.kafka.access.options import Tokens
from eventlog.kafka.access.settings import OAuth, Secret
from schemas.errors import SetupError


class Endpoint:
    """What it was asked, and what it will answer: status and body."""

    def __init__(self, address: str) -> None:
        self.url = f"http://{address}/token"
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answer: tuple[int, bytes] = 200, b""

    def gives(self, token: str, **more: object) -> None:
        self.answer = 200, json.dumps({"access_token": token, "token_type": "Bearer", **more}).encode()

    def tokens(self, clock: list[float], secret: str = "s:e c") -> Tokens:
        return Tokens(OAuth(self.url, "lake", Secret(secret), "kafka"), "f", lambda: clock[0])


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.asked.append((self.headers["Authorization"], parse_qs(body)))
            status, answer = found.answer
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{found.url}/elsewhere")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Endpoint(f"127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_a_token_is_used_again_until_most_of_its_life_is_over(endpoint: Endpoint) -> None:
    clock = [0.0]
    tokens = endpoint.tokens(clock)
    endpoint.gives("first", expires_in=100)
    assert tokens.token() == "first"
    endpoint.gives("second", expires_in=100)
    clock[0] = 79.0
    assert tokens.token() == "first"
    clock[0] = 81.0
    assert tokens.token() == "second"
    (authorization, form), _ = endpoint.asked
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"lake:s%3Ae+c"  # RFC 6749, 2.3.1


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"{}", "refused the request: 401 Unauthorized. Correct client id and secret"),
        (503, b"", "refused the request: 503"),
        (302, b"", "refused the request: 302"),
        (200, b"<html>", "returned no access_token"),
        (200, b"[]", "returned no access_token"),
        (200, b'{"token": "x"}', "returned no access_token"),
    ],
)
def test_no_token(endpoint: Endpoint, status: int, body: bytes, said: str) -> None:
    endpoint.answer = status, body
    with pytest.raises(SetupError, match=said) as error:
        endpoint.tokens([0.0], "hidden").token()
    assert "hidden" not in str(error.value)
    assert len(endpoint.asked) == 1  # a redirect is not followed: the secret would go along
