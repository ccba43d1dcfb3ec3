# SPDX-License-Identifier: Apache-2.0
"""`routelake route`: what it prints, its exit codes; what watches is a process, and once what shows."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from cli.route import as_table
from dev.peers.java import free_port
from dev.peers.routelake import ROOT
from dev.support.command import command, environment, process
from dev.support.live import LiveRoutelake, delete, register, run
from dev.support.routes import group, route, row
from schemas.broker import TopicQueueMappingInfo

COMMAND = [sys.executable, "-m", "cli.main", "route"]
ENVIRONMENT = environment()


@contextmanager
def watching(*args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--watch", *args],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def test_table_and_json(lake: LiveRoutelake) -> None:
    run(register(lake, "shown-a", "shown", host=61))
    for address, run_it in ((lake.http_url, process), (lake.namesrv_addr, command)):
        shown = run_it("route", "shown", "-n", address)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.splitlines()[0].rstrip() == f"shown, from {address}"
        assert shown.stdout.splitlines()[2].split() == ["shown-a", "c1", "RW", "8", "8", "10.0.0.61:10911", "-"]
        as_json = command("route", "shown", "-o", "json", NAMESRV_ADDR=address)
        body = httpx.get(f"{lake.http_url}/v1/topics/shown/route", trust_env=False).text
        assert as_json.stdout == body + "\n"


def test_watch_tells_every_change_at_once(lake: LiveRoutelake) -> None:
    run(register(lake, "looked-a", "looked", host=62))
    with watching("looked", "-n", lake.http_url, "-o", "json") as process:
        assert process.stdout is not None

        def line() -> dict[str, Any]:
            assert process.stdout is not None
            found: dict[str, Any] = json.loads(process.stdout.readline())
            return found

        assert [data["brokerName"] for data in line()["route"]["brokerDatas"]] == ["looked-a"]
        begin = time.monotonic()
        run(register(lake, "looked-b", "looked", host=63))
        assert [data["brokerName"] for data in line()["route"]["brokerDatas"]] == ["looked-a", "looked-b"]
        assert time.monotonic() - begin < 15  # not by the next question: a long poll ends after 20 s
        run(delete(lake, "looked"))
        gone = line()
        assert (gone["topic"], gone["route"]) == ("looked", None)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_watch_as_a_table(lake: LiveRoutelake) -> None:
    with watching("nowhere", "-n", lake.http_url) as process:
        assert process.stdout is not None
        assert process.stdout.readline().rstrip().endswith("Z")
        assert process.stdout.readline() == f"nowhere is not known to {lake.http_url}\n"


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["x"], 2, "-n names no NameServer: give -n 'host:9876"),
        (["x", "-n", "9876"], 2, "-n: '9876' is no address"),
        (["x", "-n", ""], 2, "names no NameServer"),
        (["", "-n", "a:1"], 2, "TOPIC is empty"),
        (["x", "-n", "a:1", "-o", "yaml"], 2, "yaml"),
        (["x", "-n", "DEAD"], 1, "no connection"),
        (["x", "-n", "DEAD", "--watch"], 1, "no connection"),
        (["missing", "-n", "LAKE"], 1, "no route info of this topic: missing"),
        (["missing", "-n", "LAKE", "--namespace", "N1"], 1, "no route info of this topic: N1%missing"),
    ],
)
def test_exit_codes(lake: LiveRoutelake, args: list[str], code: int, text: str) -> None:
    known = {"DEAD": f"127.0.0.1:{free_port()}", "LAKE": lake.http_url}
    done = command("route", *[known.get(argument, argument) for argument in args], NO_COLOR="1")
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert done.stdout == ""


def test_a_port_of_the_other_protocol_is_named(lake: LiveRoutelake) -> None:
    done = process("route", "orders", "-n", lake.http_url.removeprefix("http://"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "an HTTP answer: that port is for HTTP. Use the port that --remoting names" in done.stderr
    done = process("route", "orders", "-n", f"http://{lake.namesrv_addr}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "HTTP 400: this port has no HTTP. Use the port that --http names" in done.stderr


def test_everything_that_a_route_may_hold(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    mapping = TopicQueueMappingInfo(topic="t", scope="__global__", total_queues=1, bname="a", curr_id_map={0: 0})
    data = route(
        [row("a", perm=4), row("lost", perm=2)],
        [group("a", {0: "m:1", 1: "s:1", 2: "s:2"}), group("bare", {1: "s:3"})],
        order="a:8",
        mappings={"a": mapping},
        filters={"m:1": ["f:1", "f:2"]},
    )
    Console(width=120).print(as_table("t", data, "ns:9876"))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[2:5] == [
        ["a", "c1", "R-", "4", "4", "m:1", "1=s:1", "2=s:2"],
        ["bare", "c1", "-", "-", "-", "none", "1=s:3"],
        ["lost", "-", "-W", "4", "4", "none", "-"],
    ]
    assert [" ".join(line) for line in lines[5:8]] == [
        "order configuration: a:8",
        "logical queue __syslo__global__ 0: on a",
        "filter servers of m:1: f:1 f:2",
    ]
