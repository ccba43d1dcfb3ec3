# SPDX-License-Identifier: Apache-2.0
"""http-read: GET a route over HTTP keep-alive, 64 connections, against a plain FastAPI handler with the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from dev.benchmarks.harness.bench import Bench
from dev.benchmarks.harness.comparison import Shape, builtins, ceiling, measure_in_turn
from dev.benchmarks.harness.frames import Link, brokers, http_get, register_all, topic_name
from dev.benchmarks.harness.loadgen import Load, write_frames
from dev.benchmarks.harness.peers import RoutelakeServer, Server, routelake
from dev.benchmarks.harness.report import Figure, Result, median
from dev.peers.java import free_port, port_answers, wait_until

TOPICS = 100
SHAPE = Shape(64, 1)
PER_PROCESS = 30_000
TIMES_FASTAPI = 3.0
PLAIN = "plain FastAPI"
ROOT = Path(__file__).resolve().parents[2]


class HttpServer:
    """The HTTP API of a routelake, or a plain application."""

    def __init__(self, name: str, port: int, serving_pids: Sequence[int], pids: Sequence[int]) -> None:
        self.name, self.port, self.serving_pids, self.pids = name, port, serving_pids, pids


@contextmanager
def plain(bodies: dict[str, str], folder: Path) -> Iterator[HttpServer]:
    """The plain FastAPI application in a process of its own."""
    file, port = folder / "bodies.json", free_port()
    file.write_bytes(msgspec.json.encode(bodies))
    command = [sys.executable, "-m", "dev.benchmarks.harness.plain_app", str(port), str(file)]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        wait_until(lambda: port_answers(port), 30, "the plain FastAPI application")
        yield HttpServer(PLAIN, port, (process.pid,), (process.pid,))
    finally:
        process.terminate()
        process.wait()


def get(port: int, path: str) -> bytes:
    """One GET."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        body: bytes = answer.read()
        return body


def run(bench: Bench) -> Result:
    """Measure."""
    paths = {topic_name(number): f"/v1/topics/{topic_name(number)}/route" for number in range(TOPICS)}
    with ExitStack() as stack:
        lake = stack.enter_context(routelake(bench.folder / "data", bench.serve_options))
        register_all([stack.enter_context(Link(lake.port))], brokers(1, TOPICS))
        return measure(bench, stack, lake, paths)


def measure(bench: Bench, stack: ExitStack, lake: RoutelakeServer, paths: dict[str, str]) -> Result:
    """Compare a running routelake with the plain application.

    Args:
        bench: Parameters of the measurement.
        stack: Stack that ends the processes started here.
        lake: Lake that has these topics.
        paths: Topic to path.
    """
    bodies = {topic: get(lake.http_port, path).decode() for topic, path in paths.items()}
    gateway = HttpServer("routelake", lake.http_port, lake.serving_pids, lake.pids)
    servers: list[Server] = [gateway, stack.enter_context(plain(bodies, bench.folder))]
    for topic, path in paths.items():
        if get(servers[1].port, path).decode() != bodies[topic]:
            raise RuntimeError(f"the two applications answer differently for {topic}")
    frames = write_frames(bench.folder / "http.frames", [http_get(path) for path in paths.values()])
    load = Load(port=0, frames=frames, protocol="http")
    body = next(iter(bodies.values())).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    most = ceiling(bench, load, SHAPE, answer)
    samples = measure_in_turn(bench, servers, load, [SHAPE])
    of = samples[str(SHAPE)]
    rate = {name: median([taken.load.per_second for taken in taken_of]) for name, taken_of in of.items()}
    cost = {name: median([taken.server_us for taken in taken_of]) for name, taken_of in of.items()}
    p99 = median([taken.load.p99_us for taken in of["routelake"]]) / 1000
    other = median([taken.other_cores for taken_of in of.values() for taken in taken_of])
    beside = median([taken.beside_cores for taken in of["routelake"]])
    note = (
        f"gateway {cost['routelake']:.1f} us/request; generator can {most:,.0f}; "
        f"cores used by the fold {beside:.2f}, by others {other:.2f}"
    )
    against = f"plain FastAPI {rate[PLAIN]:,.0f} req/s, {cost[PLAIN]:.1f} us/request"
    figures = [
        Figure("one gateway process", rate["routelake"], "req/s", PER_PROCESS, note=note, peers=rate),
        Figure("against plain FastAPI", rate["routelake"] / rate[PLAIN], "x", TIMES_FASTAPI, note=against, peers=rate),
        Figure("requests a processor second", 1e6 / cost["routelake"], "", note="what a core of its own would answer"),
        Figure("p99", p99, "ms", note="64 connections"),
    ]
    return Result("http-read", figures, details={"generatorCeiling": most, "samples": builtins(samples)})
