# SPDX-License-Identifier: Apache-2.0
"""Keys and claims of issuers as they are in the world."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from security.admission.oidc_keys import fetch_json
from security.identity import Identity
from security.oidc import Refusal, identify_token, keys_of
from security.policy import OidcSettings
from security.roles import Role

ONE, OTHER = (rsa.generate_private_key(65537, 2048) for _ in range(2))


def public(key: rsa.RSAPrivateKey, **more: Any) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "use": "sig", "alg": "RS256", **more}


def token(key: rsa.RSAPrivateKey = ONE, kid: str | None = None, **claims: Any) -> str:
    said = {"iss": "https://i", "aud": "us", "sub": "s", "exp": int(time.time()) + 600, "scope": "routelake:admin"}
    return jwt.encode({**said, **claims}, key, "RS256", headers={} if kid is None else {"kid": kid})


def identified(text: str, *listed: dict[str, Any], claim: str = "scope") -> Identity | Refusal:
    found = identify_token(text, keys_of({"keys": list(listed)}), OidcSettings("https://i", "us", claim))
    return found if isinstance(found, Refusal) else found[0]


@pytest.mark.parametrize(
    ("kid", "listed", "is_known"),
    [
        (None, [public(ONE)], True),
        ("any", [public(ONE)], True),
        (None, [public(ONE, kid="a")], True),
        ("a", [public(ONE, kid="a")], True),
        ("b", [public(ONE, kid="a")], False),
        (None, [public(ONE, kid="a"), public(OTHER, kid="b")], False),
        ("a", [public(ONE, kid="a"), public(OTHER)], True),
        (None, [public(ONE, kid="a"), public(OTHER)], True),
        (None, [public(ONE), {"kty": "oct", "k": "c2hhcmVk"}, public(OTHER, use="enc")], True),
    ],
)
def test_a_key_without_a_kid(kid: str | None, listed: list[dict[str, Any]], is_known: bool) -> None:
    assert isinstance(identified(token(kid=kid), *listed), Identity) is is_known
    forged = identified(token(OTHER, kid=kid), *listed[:1])
    assert isinstance(forged, Refusal)
    assert forged.is_stranger is not (kid == "a"), "its key may be a new one: it is asked for"


def test_several_keys_without_a_kid_are_no_set() -> None:
    with pytest.raises(ValueError, match="2 keys without a kid"):
        keys_of({"keys": [public(ONE), public(OTHER)]})


@pytest.mark.parametrize(
    ("claims", "path"),
    [
        (
            {"resource_access": {"routelake.prod": {"roles": ["routelake:reader"]}}},
            "resource_access.routelake.prod.roles",
        ),
        (
            {"resource_access": {"routelake": {"prod": {"roles": "routelake:reader"}}}},
            "resource_access.routelake.prod.roles",
        ),
        ({"resource_access.routelake.prod.roles": ["routelake:reader"]}, "resource_access.routelake.prod.roles"),
        ({"https://acme.example/roles": ["routelake:reader"]}, "https://acme.example/roles"),
        ({"https://acme.example/claims": {"a.b": {"c": "routelake:reader"}}}, "https://acme.example/claims.a.b.c"),
        ({"a.b": {"x": "routelake:admin"}, "a": {"b": {"c": "routelake:reader"}}}, "a.b.c"),
        ({"a": {"b.c": "routelake:reader", "b": {"c": "routelake:admin"}}}, "a.b.c"),
    ],
)
def test_paths_with_dots(claims: dict[str, Any], path: str) -> None:
    found = identified(token(scope="", **claims), public(ONE), claim=path)
    assert isinstance(found, Identity)
    assert found.role is Role.READER


@pytest.mark.parametrize("path", ["a", "a.b", "a..b", ".a", "a.", "", "." * 400, "roles.0"])
def test_paths_that_lead_nowhere(path: str) -> None:
    found = identified(token(scope="", roles=["routelake:admin"], x=7), public(ONE), claim=path)
    assert isinstance(found, Refusal)
    assert found.why.reason == "no-role"


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    agents: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            agents.append(self.headers["User-Agent"])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys", agents
        finally:
            server.shutdown()
            thread.join()


def test_requests_to_the_issuer_have_a_user_agent() -> None:
    with answering(200, json.dumps({"keys": []}).encode()) as (url, agents):
        assert fetch_json(url) == {"keys": []}
    assert agents[0].startswith("routelake/")


@pytest.mark.parametrize(
    ("status", "body", "headers", "says"),
    [
        (403, b"no bots", {}, "answered 403 Forbidden"),
        (404, b"", {}, "answered 404 Not Found"),
        (500, b"", {}, "answered 500"),
        (302, b"", {"Location": "https://login.example/"}, "answered 302 Found, to 'https://login.example/'"),
        (200, b"<html>", {}, "answered with what is no JSON"),
        (200, b"[" * 100_000, {}, "answered with what is no JSON"),
        (200, b"x" * 300_000, {}, "has more than"),
    ],
)
def test_an_error_names_the_address_of_the_issuer(status: int, body: bytes, headers: dict[str, str], says: str) -> None:
    with answering(status, body, **headers) as (url, _), pytest.raises((OSError, ValueError)) as caught:
        fetch_json(url)
    assert str(caught.value).startswith(f"{url} {says}")


def test_an_unreachable_issuer_is_named() -> None:
    with pytest.raises(OSError, match=r"^http://127.0.0.1:1/x does not answer: .*refused"):
        fetch_json("http://127.0.0.1:1/x")
