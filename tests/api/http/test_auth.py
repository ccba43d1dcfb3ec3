# SPDX-License-Identifier: Apache-2.0
"""Who may write, and under which name it goes into the history."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from api.http.naming_rules import is_loopback
from api.http.settings import HttpSettings, from_environment
from dev.support.http_api import HttpApi, broker, problem
from schemas.errors import SetupError
from schemas.events import decode

ALICE = {"authorization": "Bearer of-alice"}
BOB = {"authorization": "bearer of-bob"}
TOKENS = HttpSettings(tokens={"alice": "of-alice", "bob": "sha256:" + hashlib.sha256(b"of-bob").hexdigest()})
FAR = ("192.0.2.7", 4711)


def actor_of(api: HttpApi, offset: int) -> Any:
    return decode(next(record for record in api.log.read(0) if record.offset == offset).payload).actor


def test_with_tokens_a_write_needs_one(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, clock_interval_s=3600.0, http=TOKENS)
    before = api.log.end()
    for headers in (
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer of-alice x"},
        {"authorization": "Basic of-alice"},
        {b"authorization": b"Bearer \xff\xfe"},
        {"authorization": TOKENS.tokens["bob"]},
    ):
        answer = api.register(broker(), headers=headers)
        assert problem(answer, 401, "unauthorized")["code"] == 16
        assert answer.headers["www-authenticate"].startswith("Bearer")
        for method, path in (
            ("DELETE", "/v1/topics/orders"),
            ("POST", "/v1/brokers/broker-a/wipe-write-perm"),
            ("POST", "/v1/brokers/broker-a/add-write-perm"),
            ("POST", "/v1/brokers/heartbeat"),
            ("POST", "/v1/brokers/unregister"),
            ("PUT", "/v1/kv/ns/k"),
            ("DELETE", "/v1/kv/ns/k"),
        ):
            problem(api.send(method, path, headers=headers), 401, "unauthorized")
    assert api.written_since(before) == []
    for headers, user in ((ALICE, "alice"), (BOB, "bob")):
        answer = api.register(broker(), headers={**headers, "host": "routes.example"}, peer=FAR)
        assert answer.status_code == 200
        actor = actor_of(api, answer.json()["offset"])
        assert (actor.user, actor.peer, actor.via, actor.gateway) == (user, "192.0.2.7:4711", "http", "gw")
    assert api.get("/v1/topics", peer=FAR).status_code == 200


def test_reads_can_be_protected(make_api: Any) -> None:
    api: HttpApi = make_api(http=HttpSettings(tokens={"alice": "of-alice"}, protect_reads=True))
    assert api.register(broker(), headers=ALICE).status_code == 200
    for path in (
        "/v1/topics/orders/route",
        "/v1/topics/orders/route?as_of=1",
        "/v1/topics/orders/changes",
        *("/v1/topics", "/v1/clusters", "/v1/brokers", "/v1/brokers/broker-a", "/v1/epochs", "/v1/kv/a", "/v1/kv/a/b"),
        *("/metrics", "/docs", "/openapi.json"),
    ):
        problem(api.get(path), 401, "unauthorized")
        assert api.get(path, headers=ALICE).status_code in (200, 404)
    assert api.get("/v1/topics/orders/route", headers=ALICE).status_code == 200
    for path in ("/healthz", "/readyz"):
        assert api.get(path).status_code == 200
    assert api.get("/healthz/fold").status_code in (200, 503)


def test_without_tokens_only_this_machine_may_write(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, clock_interval_s=3600.0)
    before = api.log.end()
    assert problem(api.register(broker(), peer=FAR), 403, "forbidden")["code"] == 16
    problem(api.register(broker(), peer=FAR, headers={"x-forwarded-for": "127.0.0.1"}), 403, "forbidden")
    assert api.written_since(before) == []
    assert api.get("/v1/topics", peer=FAR).status_code == 200
    answer = api.register(broker(), peer=("::1", 1))
    assert actor_of(api, answer.json()["offset"]).peer == "[::1]:1"


def test_anonymous_writes_can_be_allowed_and_hosts_trusted(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(anonymous_writes=True))
    assert api.register(broker(), peer=FAR, headers={"host": "routes.example"}).status_code == 200
    api = make_api(fold=False, http=HttpSettings(trusted_hosts=frozenset({"routes.example"}), anonymous_writes=True))
    assert api.register(broker(), headers={"host": "Routes.Example:8080"}).status_code == 200
    problem(api.register(broker(), headers={"host": "other.example"}), 403, "unknown-host")


@pytest.mark.parametrize("token", ["", "  ", "sha256:", "sha256:abc", "sha256:" + "g" * 64])
def test_invalid_tokens(make_api: Any, token: str) -> None:
    with pytest.raises(SetupError, match="alice"):
        make_api(fold=False, http=HttpSettings(tokens={"alice": token}))


def test_settings_from_the_environment() -> None:
    assert from_environment({}) == HttpSettings()
    found = from_environment(
        {
            "ROUTELAKE_HTTP_TOKENS": " alice=a=b  bob=sha256:00\n",
            "ROUTELAKE_HTTP_PROTECT_READS": "True",
            "ROUTELAKE_HTTP_ANONYMOUS_WRITES": "0",
            "ROUTELAKE_HTTP_TRUSTED_HOSTS": "Routes.Example. other",
            "ROUTELAKE_HTTP_LOCAL_WRITES": "false",
        }
    )
    assert found.tokens == {"alice": "a=b", "bob": "sha256:00"}
    assert (found.protect_reads, found.anonymous_writes, found.local_writes) == (True, False, False)
    assert found.trusted_hosts == {"routes.example", "other"}
    for name, value in (
        ("TOKENS", "s3cret"),
        ("TOKENS", "=s3cret"),
        ("TOKENS", "alice="),
        ("TOKENS", "a=s3cret a=s3cret"),
        ("PROTECT_READS", "TRUE "),
    ):
        with pytest.raises(SetupError, match=f"ROUTELAKE_HTTP_{name}") as refused:
            from_environment({f"ROUTELAKE_HTTP_{name}": value})
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "entry", ["mq.example.com", "a", "a_b.c-d", "10.0.0.1", "[::1]", "::1", "xn--bcher-kva.example"]
)
def test_a_trusted_host(entry: str) -> None:
    found = from_environment({"ROUTELAKE_HTTP_TRUSTED_HOSTS": f"other {entry}"})
    assert found.trusted_hosts == {"other", entry}


@pytest.mark.parametrize(
    "entry",
    [
        *("a,b", "mq.example.com:8080", "https://mq.example.com", "//mq", "mq.example.com/", "*.example.com", "*"),
        *("bücher.example", "mq..example", ".example", "-a.example", "a-.example", "[::1]:80", "10.0.0.1:80", "10.0.0"),
        *("10.0.0.0/8", "a;b", '"mq"', "user@mq", "mq\uff0eexample", "1.2.3.4.5", "a" * 64, ".".join(["a" * 60] * 5)),
    ],
)
def test_a_trusted_host_that_no_host_header_names_is_refused(entry: str) -> None:
    with pytest.raises(SetupError) as refused:
        from_environment({"ROUTELAKE_HTTP_TRUSTED_HOSTS": f"other {entry}"})
    for part in ("ROUTELAKE_HTTP_TRUSTED_HOSTS", repr(entry), "mq.example.com"):
        assert part in str(refused.value)


def test_loopback() -> None:
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "LOCALHOST."):
        assert is_loopback(host), host
    for host in ("10.0.0.1", "0.0.0.0", "::", "localhost.evil", "", "127.0.0.1.evil", "::ffff:10.0.0.1"):
        assert not is_loopback(host), host
