# SPDX-License-Identifier: Apache-2.0
"""request-cost: what one small request costs a gateway, and what a peer with 1 MB/s costs the others.

Every request code and every HTTP endpoint is sent in the dearest form of at most 64 KiB that is known of it: a header
of many numbers, a body of bare keys, gzip of the same, thousands of parameters. The measure is processor time of the
event loop's thread, and memory that stays when the connection is closed. A code or an endpoint that is not in the
tables here ends the bench.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.lake import LakeMaker, topic_name, write_full
from dev.benchmarks.harness.peers import RoutelakeServer, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from dev.benchmarks.harness.view_state import readiness
from dev.peers.java import wait_until
from schemas.codes import RequestCode

LARGEST_BYTES: Final = 64 * 1024
TARGET_MS: Final = 50.0
TARGET_MIB: Final = 1.0
_TOPICS: Final = 100
_ATTACKER_BYTES_PER_S: Final = 1_000_000

_BROKER: Final = {"clusterName": "c", "brokerName": "bench", "brokerAddr": "10.9.9.9:1", "brokerId": "0"}
_ADDRESSES: Final = b'{"brokerDatas":[{"brokerAddrs":{' + b"1:1," * 16_000 + b"1:1}}]}"
_BARE: Final = b"{" + b"1:1," * 16_000 + b'"a":1}'

REMOTING: Final[dict[int, tuple[dict[str, str], bytes]]] = {
    RequestCode.PUT_KV_CONFIG: ({"namespace": "bench", "key": "k", "value": "{" * 10_000}, b""),
    RequestCode.GET_KV_CONFIG: ({"namespace": "bench", "key": "k"}, b""),
    RequestCode.DELETE_KV_CONFIG: ({"namespace": "bench", "key": "k"}, b""),
    RequestCode.REGISTER_BROKER: (_BROKER, _BARE),
    RequestCode.UNREGISTER_BROKER: (_BROKER, b""),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: ({"topic": topic_name(1)}, b""),
    RequestCode.GET_BROKER_CLUSTER_INFO: ({}, b""),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: ({"brokerName": "bench"}, b""),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ({}, b""),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ({"topic": "bench"}, b""),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: (
        {"topic": "bench"},
        b'{"brokerDatas":[{"brokerAddrs":' + _BARE[:-7] + b"}}]}",
    ),
    RequestCode.GET_KVLIST_BY_NAMESPACE: ({"namespace": "bench"}, b""),
    RequestCode.GET_TOPICS_BY_CLUSTER: ({"cluster": "c"}, b""),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: ({}, b""),
    RequestCode.GET_UNIT_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ({}, b""),
    RequestCode.UPDATE_NAMESRV_CONFIG: ({}, b"a=1\n" * 15_000),
    RequestCode.GET_NAMESRV_CONFIG: ({}, b""),
    RequestCode.QUERY_DATA_VERSION: (_BROKER, _BARE),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: ({"brokerName": "bench"}, b""),
    RequestCode.GET_BROKER_MEMBER_GROUP: ({"clusterName": "c", "brokerName": "bench"}, b""),
    RequestCode.BROKER_HEARTBEAT: (_BROKER, b""),
}
"""By code: fields and body, without the junk that is sent with each."""

_BODIES: Final = ("POST", "PUT")
HTTP: Final[frozenset[tuple[str, str]]] = frozenset(
    (method, path)
    for method, paths in {
        "GET": (
            "/v1/topics /v1/topics/{topic}/route /v1/topics/{topic}/changes /v1/topics/{topic}/timeline "
            "/v1/topics/{topic}/blame /v1/brokers /v1/brokers/{brokerName} /v1/brokers/{brokerName}/timeline "
            "/v1/clusters /v1/kv/{namespace} /v1/kv/{namespace}/{key} /v1/epochs /v1/changes /v1/diff /v1/events "
            "/v1/reports /v1/reports/{name} /v1/activity /v1/lifelines "
            "/v1/self-preservation /v1/config /healthz /readyz /healthz/fold /metrics "
            "/rocketmq/nsaddr /docs /openapi.json"
        ),
        "POST": (
            "/v1/brokers/register /v1/brokers/heartbeat /v1/brokers/unregister /v1/self-preservation/end "
            "/v1/brokers/{brokerName}/wipe-write-perm /v1/brokers/{brokerName}/add-write-perm /console/session"
        ),
        "PUT": "/v1/kv/{namespace}/{key} /v1/self-preservation",
        "DELETE": "/v1/topics/{topic} /v1/kv/{namespace}/{key}",
    }.items()
    for path in paths.split()
)
"""Endpoints, each sent with thousands of parameters, and with a gzip bomb where it takes a body."""


class Case(NamedTuple):
    """One request: which, its bytes, and to which port."""

    name: str
    data: bytes
    is_http: bool = False


def frame(code: int, fields: dict[str, str], body: bytes = b"", junk: bytes = b"") -> bytes:
    """A request; ``junk`` comes into its extFields as it is."""
    said = json.dumps(fields)[1:-1].encode()
    header = b'{"code":%d,"version":513,"opaque":1,"extFields":{%b}}' % (code, b",".join(filter(None, (said, junk))))
    return struct.pack(">iI", 4 + len(header) + len(body), len(header)) + header + body


def ranked() -> Iterator[Case]:
    """Yield the most expensive requests of a security review, as far as they fit into 64 KiB."""

    def packed(version: bytes, mappings: bytes) -> bytes:
        block = struct.pack(">i", len(version)) + version
        return zlib.compress(block + bytes(4) + struct.pack(">i", 2) + b"[]" + mappings, 9)

    bare = b"{" + b"1:1," * 2_000_000 + b'"a":1}'
    compressed = {**_BROKER, "compressed": "true"}
    none, mapping = bytes(4), b'{"topic":"a",1:1}'
    many = struct.pack(">i", 400_000) + (struct.pack(">i", len(mapping)) + mapping) * 400_000
    yield Case("103 DataVersion of bare keys, 8 MiB", frame(103, compressed, packed(bare, none)))
    yield Case("103 DataVersion of bare keys, 60 MiB", frame(103, compressed, packed(bare * 7, none)))
    yield Case("103 400,000 mappings", frame(103, compressed, packed(b"{}", many)))
    yield Case("103 header of numbers", frame(103, _BROKER, junk=b",".join(b'"n":1' for _ in range(10_000))))
    yield Case("105 unknown long topic", frame(105, {"topic": "\N{GRINNING FACE}" + "a" * 60_000}))


def cases() -> Iterator[Case]:
    """All of them."""
    yield from ranked()
    junk = b",".join(b'"n%d":1' % number for number in range(5_000))
    for code, (fields, body) in REMOTING.items():
        yield Case(f"{code} {RequestCode(code).name}", frame(code, fields, body))
        yield Case(f"{code} {RequestCode(code).name}, header of numbers", frame(code, fields, junk=junk))
    parameters = "&".join(f"p{number}=1" for number in range(6_000))
    bomb = gzip.compress(b'{"a":[' + b"1," * 4_000_000 + b"1]}")
    for method, path in sorted(HTTP):
        url = path.replace("{topic}", topic_name(1)).replace("{brokerName}", "bench").replace("{name}", "queues")
        url = url.replace("{namespace}", "bench").replace("{key}", "k")
        start = f"{method} {url}?{parameters[:50_000]} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        body = bomb if method in _BODIES else b""
        if body:
            start += f"Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n"
            start = start.replace(f"?{parameters[:50_000]}", "")
        yield Case(f"{method} {path}", f"{start}\r\n".encode() + body, is_http=True)
        if not body:
            few = parameters[: parameters.index("&p300=")]
            for what, query in (("no parameters", ""), ("300 parameters", f"?{few}")):
                plain = start.replace(f"?{parameters[:50_000]}", query)
                yield Case(f"{method} {path}, {what}", f"{plain}\r\n".encode(), is_http=True)


def missing(paths: dict[str, dict[str, object]], codes: frozenset[int]) -> list[str]:
    """List the request codes and endpoints that are not in the tables here.

    Args:
        paths: Paths of the OpenAPI document.
        codes: Request codes that a NameServer answers.
    """
    endpoints = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    return [*map(str, sorted(codes - REMOTING.keys())), *(" ".join(found) for found in sorted(endpoints - HTTP))]


def run(bench: Bench) -> Result:
    """Measure."""
    with LakeMaker(bench.folder / "data") as maker:
        write_full(maker, 3, _TOPICS, per_epoch=2)
    costs: dict[str, tuple[float, float]] = {}
    with ExitStack() as stack:
        gateway = stack.enter_context(routelake(bench.folder / "data", bench.serve_options, "gateway"))
        wait_until(lambda: "epoch" in readiness(gateway), 60, "the gateway")
        found = list(cases())
        for case in found[:: bench.size(1, 8)]:
            if len(case.data) > LARGEST_BYTES + 1024:
                raise ValueError(f"{case.name} has {len(case.data)} bytes")
            costs[case.name] = cost_of(gateway, case, bench.size(5, 2))
            bench.say(f"  {case.name}: {costs[case.name][0]:.1f} ms, {costs[case.name][1]:+.2f} MiB")
        waits = {case.name: wait_beside(gateway, case, bench.seconds) for case in list(ranked())[:: bench.size(1, 3)]}
    dearest = max(costs, key=lambda name: costs[name][0])
    keeps = max(costs, key=lambda name: costs[name][1])
    worst = max(waits, key=lambda name: waits[name])
    figures = [
        Figure("event loop, the dearest request", costs[dearest][0], "ms", TARGET_MS, "at most", dearest),
        Figure("memory kept, the dearest request", costs[keeps][1], "MiB", TARGET_MIB, "at most", keeps),
        Figure("p99 of others beside 1 MB/s", waits[worst], "ms", TARGET_MS, "at most", worst),
    ]
    return Result("request-cost", figures, details={"costs": costs, "p99Ms": waits})


def cost_of(gateway: RoutelakeServer, case: Case, times: int) -> tuple[float, float]:
    """Milliseconds of the event loop's thread and MiB that stay, of one request: the median of some."""
    pid = gateway.serving_pids[0]
    for _ in range(2):
        send(gateway, case)
    spent: list[float] = []
    before_mib = resident_mib(pid)
    for _ in range(times):
        idle = loop_ms(pid, lambda: ping(gateway))
        spent.append(max(0.0, loop_ms(pid, lambda: send(gateway, case, then_ping=True)) - idle))
    return median(spent), max(0.0, resident_mib(pid) - before_mib) / times


def loop_ms(pid: int, work: Callable[[], object]) -> float:
    """Processor time of a process's first thread, which runs the event loop, while something is done."""
    path = Path(f"/proc/{pid}/task/{pid}/schedstat")
    before = int(path.read_text().split()[0])
    work()
    return (int(path.read_text().split()[0]) - before) / 1e6


def resident_mib(pid: int) -> float:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def send(gateway: RoutelakeServer, case: Case, *, then_ping: bool = False) -> None:
    """Send one request on a connection of its own, wait for its answer, or its end, and perhaps for another's."""
    with socket.create_connection(("127.0.0.1", gateway.http_port if case.is_http else gateway.port)) as peer:
        peer.settimeout(2.0 if "/v1/events" in case.name else 30.0)
        with contextlib.suppress(OSError):
            peer.sendall(case.data)
            peer.recv(65_536)
    if then_ping:
        ping(gateway)


def ping(gateway: RoutelakeServer) -> float:
    """Ask for a route; returns how long it took, in ms."""
    began = time.perf_counter()
    asked = http.client.HTTPConnection("127.0.0.1", gateway.http_port, timeout=60)
    try:
        asked.request("GET", f"/v1/topics/{topic_name(1)}/route")
        asked.getresponse().read()
    finally:
        asked.close()
    return (time.perf_counter() - began) * 1e3


def wait_beside(gateway: RoutelakeServer, case: Case, seconds: float) -> float:
    """p99 in ms of a client's requests, while a peer sends this one at 1 MB/s and waits for no answer."""
    waits: list[float] = []
    end, sent, began = time.monotonic() + seconds, 0, time.monotonic()
    with ExitStack() as peers:
        while time.monotonic() < end:
            while sent < (time.monotonic() - began) * _ATTACKER_BYTES_PER_S:
                peer = peers.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
                peer.setblocking(False)
                with contextlib.suppress(OSError):
                    peer.send(case.data)
                sent += len(case.data)
            waits.append(ping(gateway))
    return sorted(waits)[int(len(waits) * 0.99)]
