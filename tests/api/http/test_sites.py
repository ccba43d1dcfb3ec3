# SPDX-License-Identifier: Apache-2.0
"""What a web page makes its visitor's browser send: writes of other sites, and names bent to this machine."""

from __future__ import annotations

import re
import socket
import threading
from typing import Any

import pytest
from fastapi.routing import APIRoute

from api.http.csrf import SAFE_METHODS, TrustedOrigins
from api.http.settings import HttpSettings
from dev.support.http_api import HttpApi, broker, problem
from dev.support.loops import until

FAR = ("192.0.2.7", 4711)
EVIL = "https://evil.example"
CROSS_SITE: dict[str, dict[str, str]] = {
    "cross-site": {"sec-fetch-site": "cross-site", "origin": EVIL},
    "cross-site, no Origin": {"sec-fetch-site": "cross-site"},
    "same-site": {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:3000"},
    "a value nobody knows": {"sec-fetch-site": "Same-Origin "},
    "before Sec-Fetch-Site": {"origin": EVIL},
    "sandboxed": {"origin": "null"},
    "another port": {"origin": "http://127.0.0.1:8081"},
    "the default port": {"origin": "http://127.0.0.1"},
    "another scheme's port": {"origin": "ftp://127.0.0.1:8080"},
    "no origin at all": {"origin": "127.0.0.1:8080"},
    "a port that is none": {"origin": "http://127.0.0.1:port"},
    "empty": {"origin": ""},
}
PASSING: dict[str, dict[str, str]] = {
    "curl": {},
    "a page of ours": {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8080"},
    "the address bar, an extension": {"sec-fetch-site": "none"},
    "a page of ours, before Sec-Fetch-Site": {"origin": "http://127.0.0.1:8080"},
    "in capitals": {"origin": "http://LOCALHOST:8080", "host": "localhost:8080"},
    "IPv6": {"origin": "http://[::1]:8080", "host": "[::1]:8080"},
    "the default port": {"origin": "http://10.0.0.1", "host": "10.0.0.1"},
    "behind TLS": {"origin": "https://10.0.0.1", "host": "10.0.0.1:443"},
}
SESSION = "/console/session"
"""Of the console: such a request writes nothing to the log, and starts nothing without a known token."""
BODIES: dict[str, dict[str, Any]] = {
    "/v1/brokers/register": broker("sites", host=77),
    "/v1/brokers/heartbeat": {"clusterName": "c1", "brokerName": "sites", "brokerAddr": "10.0.0.77:10911"},
    "/v1/brokers/unregister": {"clusterName": "c1", "brokerName": "sites", "brokerAddr": "10.0.0.9:1", "brokerId": 0},
    "/v1/kv/x/x": {"value": "x"},
    "/v1/self-preservation": {"percent": 0},
    SESSION: {"token": "nobodys"},
}

ENDS: dict[str, str] = {"/v1/events": "?wait_for=99999999&wait_timeout=0"}
"""Of answers that never end: what makes them end."""


def endpoints(api: HttpApi) -> list[tuple[str, str]]:
    """Every method and path that the application answers, parameters filled in."""
    routes: list[Any] = []
    pending: list[Any] = list(api.app.routes)
    while pending:
        route = pending.pop()
        if isinstance(route, APIRoute):
            routes.append(route)
        else:  # FastAPI keeps an included router as one entry
            pending += route.original_router.routes
    return [(method, re.sub(r"{.*?}", "x", route.path)) for route in routes for method in sorted(route.methods)]


def send(api: HttpApi, method: str, path: str, headers: dict[str, str], **more: Any) -> Any:
    body = BODIES.get(path)
    if method in ("POST", "PUT") and body is not None:
        return api.send(method, path, headers={"content-type": "application/json", **headers}, json=body, **more)
    return api.send(method, path, headers=headers, **more)


def test_no_endpoint_takes_a_write_from_another_site(unfolded: HttpApi) -> None:
    found = endpoints(unfolded)
    writing = [(method, path) for method, path in found if method not in SAFE_METHODS]
    assert len(writing) >= 8, found
    before = unfolded.log.end()
    for headers in CROSS_SITE.values():
        for method, path in writing:
            assert problem(send(unfolded, method, path, headers), 403, "cross-site")["code"] == 16
    for method in ("PATCH", "PROPFIND", "post", "X"):  # nor methods that are not yet known
        problem(unfolded.send(method, "/v1/not-yet", headers=CROSS_SITE["cross-site"]), 403, "cross-site")
    assert unfolded.written_since(before) == []
    for method, path in writing:
        answer = send(unfolded, method, path, {})
        wanted = 401 if (method, path) == ("POST", SESSION) else answer.is_success and answer.status_code
        assert answer.status_code == wanted, (method, path, answer.text)
    assert len(unfolded.written_since(before)) == len([path for _, path in writing if path != SESSION])


def test_no_safe_method_writes(unfolded: HttpApi) -> None:
    before = unfolded.log.end()
    for method, path in endpoints(unfolded):
        if method in SAFE_METHODS:
            path += ENDS.get(path, "")
            send(unfolded, method, path, CROSS_SITE["cross-site"])
    assert unfolded.written_since(before) == []


@pytest.mark.parametrize("headers", PASSING.values(), ids=list(PASSING))
def test_requests_that_no_other_site_can_send_pass(unfolded: HttpApi, headers: dict[str, str]) -> None:
    assert unfolded.post("/v1/brokers/sites/wipe-write-perm", headers=headers).status_code == 200


def test_the_cross_site_check_precedes_tokens_and_bodies_and_is_counted(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(tokens={"alice": "of-alice"}))
    for headers in ({}, {"authorization": "Bearer of-alice"}, {"content-type": "text/plain"}):
        answer = api.post("/v1/brokers/register", headers={**headers, **CROSS_SITE["cross-site"]}, content=b"{")
        assert "Sec-Fetch-Site: cross-site" in problem(answer, 403, "cross-site")["detail"]
    shown = api.get("/metrics").text
    assert 'rocketmq_namesrv_security_events_total{reason="cross-site"} 3.0' in shown
    assert 'rocketmq_namesrv_requests_total{code="16",listener="http",request="other"} 3.0' in shown


def test_a_name_bent_to_this_machine_neither_reads_nor_writes(make_api: Any) -> None:
    bent = {"host": "evil.example:8080"}
    page = {**bent, "origin": "http://evil.example:8080"}
    for settings in (HttpSettings(), HttpSettings(anonymous_writes=True), HttpSettings(tokens={"alice": "of-alice"})):
        api: HttpApi = make_api(fold=False, http=settings)
        for path in ("/v1/topics/orders/route", "/v1/kv/a", "/metrics", "/docs", "/nothing"):
            problem(api.get(path, headers=bent), 403, "unknown-host")
        if settings.tokens:
            problem(api.delete("/v1/topics/orders", headers=page), 401, "unauthorized")
        else:
            problem(api.delete("/v1/topics/orders", headers=page), 403, "unknown-host")
    # A browser elsewhere in the network, and a program that is no browser.
    api = make_api(fold=False, http=HttpSettings(anonymous_writes=True))
    problem(api.delete("/v1/topics/orders", headers=page, peer=FAR), 403, "unknown-host")
    assert api.delete("/v1/topics/orders", headers=bent, peer=FAR).status_code == 200
    assert api.get("/v1/topics", headers=bent, peer=FAR).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "Localhost.:8080", "a.localhost", "127.0.0.1:8080", "[::1]", "10.1.2.3", socket.gethostname()]
)
def test_names_of_this_machine_may_read_and_write(unfolded: HttpApi, host: str) -> None:
    assert unfolded.get("/v1/topics", headers={"host": host}).status_code == 200
    assert unfolded.post("/v1/brokers/sites/wipe-write-perm", headers={"host": host}).status_code == 200


def test_the_name_with_its_domain_is_the_machines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow resolver delays no request."""
    answers = threading.Event()

    def getfqdn() -> str:
        assert answers.wait(20)
        return "Gateway-1.Example."

    monkeypatch.setattr(socket, "getfqdn", getfqdn)
    sites = TrustedOrigins(HttpSettings())
    scope = {"method": "GET", "client": ("127.0.0.1", 1), "headers": [(b"host", b"gateway-1.example:8080")]}
    assert sites.refusal(scope) is not None
    answers.set()
    until(lambda: sites.refusal(scope) is None)
    scope["headers"] = [(b"host", b"gateway-2.example:8080")]
    assert sites.refusal(scope) is not None


def test_trusted_hosts_may_read(make_api: Any) -> None:
    api: HttpApi = make_api(fold=False, http=HttpSettings(trusted_hosts=frozenset({"routes.example"})))
    assert api.get("/v1/topics", headers={"host": "Routes.Example.:8080"}).status_code == 200
    problem(api.get("/v1/topics", headers={"host": "other.example"}), 403, "unknown-host")
    problem(api.get("/v1/topics", headers={"host": "routes.example" + "x" * 60_000}), 403, "unknown-host")


def test_with_trusted_hosts_reads_from_everywhere_name_one(make_api: Any) -> None:
    """Or a page of another site reads there, with its host name pointed to an address of an intranet."""
    trusted = HttpSettings(trusted_hosts=frozenset({"routes.example"}))
    api: HttpApi = make_api(fold=False, http=trusted)
    for path in ("/v1/topics", "/v1/topics/orders/route", "/metrics", "/docs", "/console/", "/rocketmq/nsaddr"):
        problem(api.get(path, headers={"host": "evil.example"}, peer=FAR), 403, "unknown-host")
        for host in ("routes.example", "10.0.0.1:8080", "[fd00::1]:8080", "localhost"):
            assert api.get(path, headers={"host": host}, peer=FAR).status_code in (200, 404, 503), (path, host)
    api = make_api(fold=False)
    assert api.get("/v1/topics", headers={"host": "evil.example"}, peer=FAR).status_code == 200


def test_the_fast_path_looks_at_the_host_alike(make_api: Any) -> None:
    for settings, passes in (
        (HttpSettings(), True),
        (HttpSettings(trusted_hosts=frozenset({"routes.example"})), False),
    ):
        sites = make_api(fold=False, http=settings).app.sites
        assert sites.allows_read(FAR, b"evil.example") is passes
        assert sites.allows_read(FAR, b"routes.example:80") and sites.allows_read(FAR, b"10.0.0.1")
        assert not sites.allows_read(("127.0.0.1", 1), b"evil.example")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/healthz/fold", "/readyz?strict=false"])
def test_health_answers_whatever_the_host_is(make_api: Any, path: str) -> None:
    for settings in (HttpSettings(), HttpSettings(trusted_hosts=frozenset({"routes.example"}))):
        api: HttpApi = make_api(fold=False, http=settings)
        for host in ("x", "evil.example:80", "gateway.svc.cluster.local", "", "\xff"):
            for peer in (FAR, ("127.0.0.1", 50000)):
                answer = api.get(path, headers={"host": host.encode("latin-1")}, peer=peer)
                assert answer.status_code in (200, 503)
                assert "unknown-host" not in answer.text
