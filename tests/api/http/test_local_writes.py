# SPDX-License-Identifier: Apache-2.0
"""Which writes without a token come from this machine: none that a proxy has passed on, whatever it adds."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from api.http.local_peers import sender_problem
from api.http.settings import HttpSettings
from dev.support.http_api import HttpApi, broker, problem
from dev.support.local import LocalGateway, LocalLake
from dev.support.proxies import HAProxy, Nginx, Proxy
from tests.api.http.wire import exchange, wires

WIPE = "/v1/brokers/broker-a/wipe-write-perm"
WRITES = [
    ("DELETE", "/v1/topics/orders", None),
    ("PUT", "/v1/kv/ns/k", {"value": "v"}),
    ("POST", WIPE, None),
    ("POST", "/v1/brokers/register", broker()),
]
PROXY_FIELDS = [
    *("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix"),
    *("X-Forwarded-Anything-New", "X-Real-IP", "X-Original-Forwarded-For", "X-Original-URI", "X-Original-Host"),
    *("True-Client-IP", "CF-Connecting-IP", "CF-Ray", "X-Client-IP", "X-Cluster-Client-IP", "Fastly-Client-IP"),
    *("X-Envoy-External-Address", "X-Amzn-Trace-Id", "X-ProxyUser-Ip", "CDN-Loop", "x_forwarded_for", "FORWARDED"),
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    """A gateway without a token, on a port."""
    folder = tmp_path_factory.mktemp("gateway")
    with (
        LocalLake(folder, folds=False) as lake,
        lake.gateway(remoting_port=None, http_port=0, clock_interval_s=3600.0) as gateway,
    ):
        yield gateway


def curl(url: str, *more: str) -> int:
    """The status that a program of this user gets, which listens nowhere."""
    found = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "*", *more, url],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return int(found.stdout)


@pytest.mark.parametrize("name", PROXY_FIELDS)
def test_a_field_that_proxies_add_ends_local(unfolded: HttpApi, name: str) -> None:
    before = unfolded.log.end()
    for value in ("203.0.113.9", "127.0.0.1", ""):
        found = problem(unfolded.post(WIPE, headers={name: value}), 403, "forbidden")
        assert name.lower() in found["detail"] and "token" in found["detail"]
    assert unfolded.written_since(before) == []
    assert unfolded.get("/v1/topics", headers={name: "203.0.113.9"}).status_code == 200


def test_every_write_is_judged(unfolded: HttpApi) -> None:
    for method, path, body in WRITES:
        answer = unfolded.send(method, path, json=body, headers={"x-real-ip": "203.0.113.9"})
        problem(answer, 403, "forbidden")
    session = unfolded.get("/console/session", headers={"via": "1.1 proxy"}).json()
    assert not session["mayWrite"]
    assert unfolded.get("/console/session").json()["mayWrite"]


def test_http_1_0_is_what_proxies_send(unfolded: HttpApi) -> None:
    _, slow = wires(unfolded)
    sent = b"POST %b HTTP/%b\r\nHost: 127.0.0.1:8080\r\n\r\n"
    for version, status in ((b"1.0", b"403"), (b"1.1", b"200")):
        answer = exchange(unfolded, slow, [sent % (WIPE.encode(), version)])
        assert answer[0].startswith(b"HTTP/1.1 " + status), answer


def test_a_token_or_anonymous_writes_pass_a_proxy(make_api: Any) -> None:
    tokens = HttpSettings(tokens={"alice": "of-alice-who-is-long"})
    headers = {"x-forwarded-for": "203.0.113.9"}
    api: HttpApi = make_api(fold=False, http=tokens)
    assert api.post(WIPE, headers={**headers, "authorization": "Bearer of-alice-who-is-long"}).status_code == 200
    problem(api.post(WIPE, headers=headers), 401, "unauthorized")
    api = make_api(fold=False, http=HttpSettings(anonymous_writes=True))
    assert api.post(WIPE, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (HttpSettings(local_writes=False), "ROUTELAKE_HTTP_LOCAL_WRITES is false"),
        (HttpSettings(trusted_hosts=frozenset({"routes.example"})), "ROUTELAKE_HTTP_TRUSTED_HOSTS"),
    ],
)
def test_local_writes_can_be_ended(make_api: Any, settings: HttpSettings, why: str) -> None:
    api: HttpApi = make_api(fold=False, http=settings)
    assert why in problem(api.post(WIPE), 403, "forbidden")["detail"]
    assert api.get("/v1/topics").status_code == 200


def test_programs_of_this_user_write(gateway: LocalGateway) -> None:
    url = gateway.http_url + WIPE
    assert curl(url, "-X", "POST") == 200
    assert curl(url.replace("127.0.0.1", "localhost"), "-X", "POST") == 200
    assert httpx.post(url, trust_env=False).status_code == 200
    script = f"import urllib.request as r; print(r.urlopen(r.Request({url!r}, method='POST')).status)"
    assert subprocess.run([sys.executable, "-c", script], check=True, capture_output=True).stdout == b"200\n"


def nginx(*lines: str, main: str = "") -> Proxy:
    return Nginx({"own": f"location / {{ {' '.join(lines)} }}"}, main=main)


def haproxy(port: int, *lines: str) -> Proxy:
    return HAProxy({"own": "\n  ".join([*lines, f"server one 127.0.0.1:{port}"])})


KEEP_ALIVE = 'proxy_http_version 1.1; proxy_set_header Connection "";'
ONE_USER = "user root;" if os.geteuid() == 0 else ""
PROXIES: dict[str, Callable[[int, str], Proxy]] = {
    "nginx, plain": lambda port, to: nginx(to),
    "nginx, HTTP/1.1": lambda port, to: nginx(to, KEEP_ALIVE),
    "nginx, HTTP/1.1, the gateway's user": lambda port, to: nginx(to, KEEP_ALIVE, main=ONE_USER),
    "nginx, one process": lambda port, to: nginx(to, KEEP_ALIVE, main=f"{ONE_USER} master_process off;"),
    "nginx, fields": lambda port, to: nginx(to, "proxy_set_header X-Real-IP $remote_addr;"),
    "nginx, the client's Host": lambda port, to: nginx(to, KEEP_ALIVE, "proxy_set_header Host $http_host;"),
    "HAProxy, plain": lambda port, to: haproxy(port),
    "HAProxy, fields": lambda port, to: haproxy(port, "option forwardfor"),
    "HAProxy, a connection for each": lambda port, to: haproxy(port, "option http-server-close", "http-reuse never"),
}
"""As people write them, from the first example of a manual on."""


@pytest.mark.parametrize("name", PROXIES)
def test_no_write_through_a_proxy_is_local(gateway: LocalGateway, name: str) -> None:
    with PROXIES[name](gateway.http_port, f"proxy_pass http://127.0.0.1:{gateway.http_port};") as proxy:
        url, before = proxy.url, gateway.log.end()
        for method, path, body in WRITES:
            headers = {"host": f"127.0.0.1:{gateway.http_port}"}
            for _ in range(2):  # over a connection that the proxy keeps, too
                answer = httpx.request(method, url + path, json=body, headers=headers, timeout=60, trust_env=False)
                problem(answer, 403, "forbidden")
        assert gateway.log.end() == before
        assert httpx.get(url + "/v1/topics", trust_env=False).status_code == 200
        assert not httpx.get(url + "/console/session", trust_env=False).json()["mayWrite"]
    assert curl(gateway.http_url + WIPE, "-X", "POST") == 200


RELAY = """
import socket, sys, threading
def copy(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    client = listener.accept()[0]
    if sys.argv[2] == "close":
        listener.close()
    upstream = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    threading.Thread(target=copy, args=(client, upstream), daemon=True).start()
    threading.Thread(target=copy, args=(upstream, client), daemon=True).start()
"""


def test_a_relay_of_bytes_is_a_proxy(gateway: LocalGateway) -> None:
    """It has the same user, changes nothing and adds nothing: ssh, socat, kubectl."""
    argv = [sys.executable, "-c", RELAY, str(gateway.http_port), "stay"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as relay:
        try:
            assert relay.stdout is not None
            url = f"http://127.0.0.1:{int(relay.stdout.readline())}"
            headers = {"host": f"127.0.0.1:{gateway.http_port}"}
            answer = httpx.post(url + WIPE, headers=headers, timeout=60, trust_env=False)
            assert f"process {relay.pid}" in problem(answer, 403, "forbidden")["detail"]
        finally:
            relay.kill()


def test_another_user_is_not_the_operator(gateway: LocalGateway) -> None:
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    script = f"""
import encodings.idna, http.client, os
os.setgid(65534); os.setuid(65534)
found = http.client.HTTPConnection("127.0.0.1", {gateway.http_port})
found.request("POST", "{WIPE}")
answer = found.getresponse()
print(answer.status, answer.read().decode())
"""
    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert said.startswith("403") and "of user 65534" in said


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_sender_is_found_whatever_the_family(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} on this machine")
    with listener, socket.create_connection(listener.getsockname()[:2]) as client:
        own, other = client.getsockname()[:2], listener.getsockname()[:2]
        assert sender_problem(own, other) is None
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        assert sender_problem(own, other) is None, "who has said all may wait for the answer"
        mapped = (f"::ffff:{own[0]}", own[1]), (f"::ffff:{other[0]}", other[1])
        if family == socket.AF_INET:
            assert sender_problem(*mapped) is None
    assert "cannot be found" in str(sender_problem(own, other)), "it has gone"


def test_ports_of_others_are_not_taken_for_the_senders() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        own, other = client.getsockname(), listener.getsockname()
        assert "cannot be found" in str(sender_problem((own[0], own[1]), (other[0], other[1] ^ 1)))
        assert "cannot be found" in str(sender_problem(("127.0.0.2", own[1]), other))


def test_a_program_that_waits_for_its_own_is_no_proxy(gateway: LocalGateway) -> None:
    """A debugger's port on a loopback address, without connections. A port that other machines reach may be a proxy's."""
    for host, status in (("127.0.0.1", 200), ("0.0.0.0", 403)):
        script = f"""
import http.client, socket
listener = socket.create_server(("{host}", 0))
found = http.client.HTTPConnection("127.0.0.1", {gateway.http_port})
found.request("POST", "{WIPE}")
print(found.getresponse().status)
"""
        said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        assert int(said) == status, host


def test_a_connection_that_is_kept_writes_again(gateway: LocalGateway) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.http_port)
    for _ in range(5):
        connection.request("POST", WIPE)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
    connection.close()
