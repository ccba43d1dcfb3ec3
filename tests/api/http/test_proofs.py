# SPDX-License-Identifier: Apache-2.0
"""A client that guesses tokens has to wait, and costly checks are bounded before authentication."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.settings import HttpSettings
from dev.support.accounts import accounts_file, policy
from dev.support.http_api import HttpApi, broker, problem
from security.policy import AuthMode
from security.quotas import Quotas, Rate
from tests.api.http.wire import PATH, exchange, get, wires

WIPE = "/v1/brokers/broker-a/wipe-write-perm"
SESSION = "/console/session"
NEVER = 1e-6
FEW = Quotas(refused_proofs_per_min=Rate(NEVER, 5))
OTHER = ("192.0.2.8", 1)
JSON = {"content-type": "application/json"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


GUESSES: dict[str, Callable[[HttpApi, int], httpx.Response]] = {
    "tokens": lambda api, n: api.get("/v1/topics", headers=bearer(f"guess-{n}")),
    "JWTs": lambda api, n: api.get("/v1/topics", headers=bearer(f"eyJhbGciOiJSUzI1NiJ9.e30.{n}")),
    "logins": lambda api, n: api.post(SESSION, {"token": f"guess-{n}"}),
    "logins that are no JSON": lambda api, n: api.send("POST", SESSION, content=b"{", headers=JSON),
    "logins of another form": lambda api, n: api.post(SESSION, {f"field-{n}": "x"}),
    "large logins": lambda api, n: api.send("POST", SESSION, content=b" " * 100_000, headers=JSON),
    "sessions": lambda api, n: api.get("/v1/topics", headers={"cookie": f"routelake-8080={n}"}),
    "writes without a token": lambda api, n: api.post(WIPE),
    "writes with a token": lambda api, n: api.post(WIPE, headers=bearer(f"guess-{n}")),
    "commands of a reader": lambda api, n: api.post(WIPE, headers=bearer("token-reader")),
    "the documents": lambda api, n: api.get("/docs", headers=bearer(f"guess-{n}")),
}


@pytest.mark.parametrize("name", list(GUESSES))
def test_proofs_that_are_refused_are_limited(make_api: Any, tmp_path: Path, name: str) -> None:
    api: HttpApi = make_api(policy=policy(AuthMode.ENFORCE), accounts=accounts_file(tmp_path), fold=False, quotas=FEW)
    statuses = [GUESSES[name](api, number).status_code for number in range(10)]
    assert statuses[6:] == [429] * 4 and 429 not in statuses[:5]
    found = GUESSES[name](api, 99)
    assert problem(found, 429, "quota-exceeded")["quota"] == "refused-proofs-per-min"
    assert int(found.headers["retry-after"]) > 0
    for guess in GUESSES.values():  # another kind does not help, and the right token is not told from a wrong one
        assert guess(api, 7).status_code == 429
    assert api.get("/v1/topics", headers=bearer("token-admin")).status_code == 429
    assert api.get("/healthz", headers=bearer("x")).status_code == 200
    assert api.get("/v1/topics", headers=bearer("token-admin"), peer=OTHER).status_code == 200


def test_accepted_tokens_work_while_others_are_refused(make_api: Any, tmp_path: Path) -> None:
    """A stranger behind the same proxy keeps out newcomers alone, and a wrong token is never taken for a proven one."""
    api: HttpApi = make_api(
        policy=policy(AuthMode.ENFORCE_WRITES), accounts=accounts_file(tmp_path), fold=False, quotas=FEW
    )
    assert api.get("/v1/topics", headers=bearer("token-reader")).status_code == 200
    assert api.register(broker(), headers=bearer("token-broker")).status_code == 200
    assert api.get("/v1/topics", headers=bearer("guess")).status_code == 200, "reads are free"
    for number in range(7):
        api.post(WIPE, headers=bearer(f"guess-{number}"))
    assert api.register(broker(), headers=bearer("token-broker")).status_code == 200
    assert api.get("/v1/topics", headers=bearer("token-reader")).status_code == 200
    assert api.post(WIPE, headers=bearer("guess")).status_code == 429
    assert api.post(WIPE, headers=bearer("token-admin")).status_code == 429
    assert api.get("/v1/topics").status_code == 200
    assert api.get("/v1/topics", headers=bearer("token-reader"), peer=OTHER).status_code == 200


def test_without_tokens_refused_writes_are_limited(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, quotas=FEW)
    assert [api.post(WIPE, peer=OTHER).status_code for _ in range(8)] == [403] * 6 + [429] * 2
    assert api.post(WIPE).status_code == 200


def test_the_fast_path_is_no_way_round(make_api: Any, tmp_path: Path) -> None:
    api: HttpApi = make_api(policy=policy(AuthMode.ENFORCE), accounts=accounts_file(tmp_path), fold=False, quotas=FEW)
    fast, _ = wires(api)
    for number in range(7):
        exchange(api, fast, [get(PATH, b"Authorization: Bearer guess-%d" % number)])
    answer = exchange(api, fast, [get(PATH, b"Authorization: Bearer token-reader")])
    assert answer[0].startswith(b"HTTP/1.1 429"), answer


def test_permission_comes_before_parameters(make_api: Any, tmp_path: Path) -> None:
    api: HttpApi = make_api(policy=policy(AuthMode.ENFORCE), accounts=accounts_file(tmp_path), fold=False)
    reads = ("/v1/topics", "/v1/topics/a/route", "/v1/clusters", "/v1/changes", "/v1/kv/a", "/v1/reports/alive")
    for query in ("?nonsense=1", "?limit=x&wait_for=y", "?" + "&".join(f"p{number}=1" for number in range(7_000))):
        for path in reads:
            problem(api.get(path + query), 401, "unauthorized")
            problem(api.get(path + query, headers=bearer("token-reader")), 400, "bad-parameter")
    for path in (  # which endpoints look at themselves
        *("/v1/topics?as_of=1&reads=live", "/v1/topics/a/route?as_of=1&reads=live", "/v1/clusters?as_of=1&reads=live"),
        *("/v1/reports/alive?times=3", "/v1/topics?cursor=%21", "/v1/topics?limit=1&limit=2"),
    ):
        problem(api.get(path), 401, "unauthorized")
        assert api.get(path, headers=bearer("token-reader")).status_code in (400, 404), path
    problem(api.delete("/v1/topics/orders?cluster="), 401, "unauthorized")
    problem(api.delete("/v1/topics/orders?cluster=", headers=bearer("token-reader")), 403, "forbidden")
    problem(api.delete("/v1/topics/orders?cluster=", headers=bearer("token-admin")), 400, "bad-parameter")


@pytest.mark.parametrize("path", ["/v1/topics", "/docs", "/console/", "/readyz", "/nothing", "/v1/topics/orders"])
def test_parameters_are_bounded_before_they_are_looked_at(make_api: Any, path: str) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(tokens={"a": "x" * 16}))
    query = "&".join(f"p{number}=1" for number in range(7_000)) + "&cluster=c1"
    assert "more than 64 parameters" in problem(api.get(f"{path}?{query}"), 400, "bad-parameter")["detail"]
    if path == "/v1/topics/orders":  # nor are the first ones taken for all of them
        headers = {"authorization": "Bearer " + "x" * 16}
        problem(api.delete(f"{path}?{query}", headers=headers), 400, "bad-parameter")


def test_entity_tags_are_bounded(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False)
    tag = api.get("/v1/topics").headers["etag"]
    for others, status in ((0, 304), (50, 304), (5_000, 200)):
        sent = ", ".join(['"0-0"'] * others + [tag])
        assert api.get("/v1/topics", headers={"if-none-match": sent}).status_code == status


def test_a_login_is_a_token_and_no_more(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(tokens={"a": "x" * 16}))
    bomb = gzip.compress(json.dumps({f"f{number}": 1 for number in range(100_000)}).encode())
    answer = api.send("POST", SESSION, content=bomb, headers={**JSON, "content-encoding": "gzip"})
    problem(answer, 413, "too-large")
    assert api.post(SESSION, {"token": "x" * 16}).status_code == 200


def test_documents_are_made_once(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False)
    for path in ("/docs", "/openapi.json"):
        assert api.get(path).content == api.get(path).content
    made = vars(api.app)
    assert made["openapi_json"] and made["docs_page"]
