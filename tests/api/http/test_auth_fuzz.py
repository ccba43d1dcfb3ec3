# SPDX-License-Identifier: Apache-2.0
"""Any value of Authorization: no client gets in by accident, and both paths answer alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dev.support.accounts import TOKENS, accounts_file, policy
from dev.support.http_api import HttpApi, broker
from security.oidc import Refusal, identify_token, is_jwt, keys_of
from security.policy import AuthMode, OidcSettings
from tests.api.http.wire import PATH, exchange, get, wires

FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck))
MOST = min(200, 2 * settings().max_examples)

# What a field's value may hold (RFC 9110, 5.5); anything else is refused before anybody is asked who they are.
values = st.lists(st.integers(0x20, 0xFF).filter(lambda byte: byte != 0x7F), max_size=60).map(bytes)
schemes = st.sampled_from([b"Bearer ", b"bearer ", b"Bearer", b"BEARER  ", b"Basic ", b"Bearer\t", b""])
tokens = st.sampled_from([token.encode() for token in TOKENS.values()])


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpApi]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    api = HttpApi(
        folder / "api",
        policy=policy(AuthMode.ENFORCE),
        accounts=accounts_file(folder),
        fold=False,
        clock_interval_s=3600.0,
    )
    assert api.register(broker(), headers={"authorization": "Bearer token-broker"}).is_success
    yield api
    api.close()


@settings(FUZZ, max_examples=MOST)
@given(schemes, values | st.tuples(tokens, values).map(b"".join) | st.tuples(values, tokens).map(b"".join))
@example(b"Bearer ", b"token-reader")
def test_any_authorization(api: HttpApi, scheme: bytes, value: bytes) -> None:
    header = scheme + value
    fast, slow = wires(api)
    request = get(PATH, b"Authorization: " + header)
    one, other = exchange(api, fast, [request]), exchange(api, slow, [request])
    assert one == other
    word, _, token = header.strip(b" \t").partition(b" ")
    is_known = word.lower() == b"bearer" and token.strip().decode("latin-1") in TOKENS.values()
    status = one[0].partition(b"\r\n")[0]
    assert status == (b"HTTP/1.1 200 OK" if is_known else b"HTTP/1.1 401 Unauthorized"), one


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["kid", "kty", "use", "alg", "n", "e", "crv", "x", "y", "k"])
words = st.sampled_from(["RSA", "EC", "OKP", "oct", "sig", "RS256", "ES256", "P-256", "AQAB", "Ed25519", ""])


@settings(FUZZ)
@given(json_values | st.fixed_dictionaries({"keys": st.lists(st.dictionaries(names, words | json_values), max_size=3)}))
def test_any_set_of_keys(document: Any) -> None:
    try:
        found = keys_of(document)
    except ValueError:
        return
    assert all(isinstance(kid, str) for kid in found)


@settings(FUZZ)
@given(st.text(max_size=40) | st.lists(st.text(max_size=12), min_size=3, max_size=3).map(".".join))
def test_any_jwt(token: str) -> None:
    if is_jwt(token):
        assert isinstance(identify_token(token, {}, OidcSettings("https://i", "a")), Refusal)
