# SPDX-License-Identifier: Apache-2.0
"""JWTs of an OpenID Connect issuer, with an issuer."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from dev.support.accounts import accounts_file
from dev.support.http_api import HttpApi, broker, problem
from dev.support.issuer import AUDIENCE, Issuer
from dev.support.loops import until
from schemas.events import decode
from security.admission import oidc_keys as oidc
from security.policy import AuthMode, OidcSettings, Policy
from tests.api.http.wire import PATH, exchange, get, wires


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


def make(make_api: Any, folder: Path, issuer: Issuer, **settings: Any) -> HttpApi:
    policy = Policy(AuthMode.ENFORCE, oidc=OidcSettings(issuer.url, AUDIENCE, **settings))
    api: HttpApi = make_api(policy=policy, accounts=accounts_file(folder), fold=False, clock_interval_s=3600.0)
    until(lambda: api.access.oidc is not None and api.access.oidc.problem is None)
    return api


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_roles_of_tokens(make_api: Any, tmp_path: Path, issuer: Issuer) -> None:
    api = make(make_api, tmp_path, issuer)
    reader, writer, admin = (
        bearer(issuer.token(f"openid routelake:{role}", sub=role)) for role in ("reader", "broker", "admin")
    )
    assert api.get("/v1/topics", headers=reader).is_success
    found = problem(api.post("/v1/brokers/register", broker(), headers=reader), 403, "forbidden")
    assert found["detail"] == "oidc:reader is a reader: this needs the role broker"
    answer = api.post("/v1/brokers/register", broker(), headers=writer)
    assert answer.is_success
    written = next(record for record in api.log.read(0) if record.offset == answer.json()["offset"])
    assert decode(written.payload).actor.user == "oidc:broker"
    problem(api.delete("/v1/topics/orders", headers=writer), 403, "forbidden")
    assert api.delete("/v1/topics/orders", headers=admin).is_success
    assert api.get("/v1/topics", headers=bearer("token-reader")).is_success, "accounts go on to count"
    assert issuer.asked.count("/keys") == 1


def forged(token: str, **header: Any) -> str:
    """With another header, and a signature made of the public key or of nothing."""
    _, payload, _ = token.split(".")
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return f"{head}.{payload}."


def test_invalid_tokens_are_refused(make_api: Any, tmp_path: Path, issuer: Issuer) -> None:
    api = make(make_api, tmp_path, issuer)
    good = issuer.token()
    other = rsa.generate_private_key(65537, 2048)
    now = int(time.time())
    for token, why in (
        (issuer.token(aud="another"), "for another audience"),
        (issuer.token(aud=None), "has no aud"),
        (issuer.token(iss="https://elsewhere"), "from another issuer"),
        (issuer.token(exp=now - 60), "has expired"),
        (issuer.token(exp=None), "has no exp"),
        (issuer.token(nbf=now + 600), "not valid yet"),
        (issuer.token(sub=None), "has no sub"),
        (issuer.token(key=other), "signature does not match"),
        (issuer.token("openid admin routelake:emperor"), "the claim scope names none of routelake:reader"),
        (issuer.token(None), "the claim scope names none"),
        (issuer.token({"routelake:admin": 1}), "the claim scope names none"),
        (good[:-4] + "AAAA", "signature does not match"),
        (forged(good, alg="none", kid="first"), "not a JWT of this issuer"),
        (forged(good, alg="HS256", kid="shared"), "signed by no key"),
        (forged(good, alg="HS256", kid="first"), "not a JWT of this issuer"),
        (forged(good, alg="RS256", kid=7), ""),
        (forged(good, alg="RS256"), "signed by no key"),
        ("a.b.c", "is not a JWT"),
        (good + "x" * 20_000, "not known here"),
    ):
        found = problem(api.get("/v1/topics", headers=bearer(token)), 401, "unauthorized")
        assert why in found["detail"], (why, found["detail"])
        assert token not in found["detail"]
    assert api.get("/v1/topics", headers=bearer(good)).is_success


def test_keys_change(make_api: Any, tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key is asked for when the first token names it, and not again at once; one that is gone counts no more."""
    monkeypatch.setattr(oidc, "COOL_DOWN_S", 0.0)
    api = make(make_api, tmp_path, issuer)
    before = issuer.token()
    assert api.get("/v1/topics", headers=bearer(before)).is_success
    issuer.rotate("second", elliptic=True)
    assert api.get("/v1/topics", headers=bearer(issuer.token())).is_success
    problem(api.get("/v1/topics", headers=bearer(before)), 401, "unauthorized")

    monkeypatch.setattr(oidc, "COOL_DOWN_S", 3600.0)
    asked = len(issuer.asked)
    issuer.rotate("third")
    for _ in range(5):
        problem(api.get("/v1/topics", headers=bearer(issuer.token())), 401, "unauthorized")
    assert len(issuer.asked) == asked


def test_an_issuer_that_is_down(make_api: Any, tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "COOL_DOWN_S", 0.0)
    api = make(make_api, tmp_path, issuer)
    known, stranger = issuer.token(), Issuer()
    issuer.is_down = True
    stranger._server = issuer._server
    stranger.rotate("new")
    problem(api.get("/v1/topics", headers=bearer(stranger.token())), 401, "unauthorized")
    assert api.get("/v1/topics", headers=bearer(known)).is_success
    accounts = api.get("/readyz", headers=bearer(known)).json()["checks"]["accounts"]
    assert not accounts["ok"]
    assert "cannot be fetched" in accounts["reason"]
    issuer.is_down = False
    problem(api.get("/v1/topics", headers=bearer(stranger.token())), 401, "unauthorized")
    until(lambda: api.get("/readyz").json()["checks"]["accounts"]["ok"])


def test_the_fast_path_and_other_claims(make_api: Any, tmp_path: Path, issuer: Issuer) -> None:
    api = make(make_api, tmp_path, issuer, role_claim="realm_access.roles")
    assert api.register(broker(), headers=bearer("token-broker")).is_success
    fast, slow = wires(api)
    for token, may in (
        (issuer.token(None, realm_access={"roles": ["x", "routelake:reader"]}), True),
        (issuer.token("routelake:reader"), False),
        (issuer.token(None, realm_access=["routelake:reader"]), False),
    ):
        request = get(PATH, f"Authorization: Bearer {token}".encode())
        one, other = exchange(api, fast, [request]), exchange(api, slow, [request])
        assert one == other
        assert one[0].startswith(b"HTTP/1.1 200 OK") is may, one


def test_only_safe_addresses_are_asked() -> None:
    for url in ("http://192.0.2.1/keys", "file:///etc/passwd", "None", "ftp://127.0.0.1/"):
        with pytest.raises(ValueError, match="is not an https address"):
            oidc.fetch_json(url)
