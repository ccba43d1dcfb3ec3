# SPDX-License-Identifier: Apache-2.0
"""`gateway --workers N`: processes on the same two ports, with one log and one lake behind them."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.peers.procfs import commands_of_children
from dev.peers.routelake import Routelake
from dev.support.fold import FoldThread
from eventlog.open import open_log
from tests.examples.parts import config, register

WORKERS = 3


@pytest.fixture(scope="module")
def routelake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routelake]:
    """Three gateway processes, and a fold in this one."""
    data_dir = tmp_path_factory.mktemp("workers") / "data"
    data_dir.mkdir()
    log = open_log(f"sqlite://{data_dir / 'events.db'}")
    tokens = {"ROUTELAKE_HTTP_TOKENS": "alice=of-alice"}
    running = Routelake(data_dir, "gateway", ("--workers", str(WORKERS)), environment=tokens)
    with FoldThread(log, data_dir / "lake"):
        running.start(wait_ready_s=None)
        try:
            wait_until(lambda: len(_workers(running)) == WORKERS, 90, "all workers to serve", 0.05)
            yield running
            assert running.stop() == 0
        finally:
            running.kill()
    log.close()


def _workers(routelake: Routelake) -> set[str]:
    """Gateway ids that answer; each try is a connection of its own, which the kernel gives to one of them."""
    found = set()
    for _ in range(12 * WORKERS):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{routelake.http_port}/healthz", timeout=30) as answer:
                found.add(json.load(answer)["gateway"])
        except (OSError, HTTPException):
            return set()
    return found


def _ask(routelake: Routelake, code: int, **ext: str) -> tuple[int, bytes]:
    with RemotingClient("127.0.0.1", routelake.remoting_port) as client:
        answer = client.call(Request(code, ext))
        return answer.code, answer.body


def _scrape(routelake: Routelake) -> dict[str, float]:
    """{worker: what it says of routelake_epoch}, from one scrape."""
    with urllib.request.urlopen(f"http://127.0.0.1:{routelake.http_port}/metrics", timeout=30) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            sample.labels["worker"]: sample.value
            for family in families
            for sample in family.samples
            if sample.name == "routelake_epoch"
        }


def test_one_scrape_is_of_all_of_them(routelake: Routelake) -> None:
    everybody = {str(number) for number in range(1, WORKERS + 1)}
    for _ in range(2 * WORKERS):
        wait_until(lambda: set(_scrape(routelake)) == everybody, 60, "a scrape of all workers", 0.05)
    with urllib.request.urlopen(f"http://127.0.0.1:{routelake.http_port}/rocketmq/nsaddr", timeout=30) as answer:
        assert answer.read().decode() == f"127.0.0.1:{routelake.remoting_port}\n"
    assert routelake.process is not None
    first = next(iter(commands_of_children(routelake.process.pid)))
    os.kill(first, signal.SIGSTOP)  # hangs, and the others wait two seconds for it
    try:
        wait_until(lambda: _others(routelake) == WORKERS - 1, 90, "a scrape without the one that hangs", 0.1)
    finally:
        os.kill(first, signal.SIGCONT)
    wait_until(lambda: _others(routelake) == WORKERS, 90, "all of them again", 0.1)


def _others(routelake: Routelake) -> int:
    """Workers in a scrape; 0 if the kernel chose one that hangs."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{routelake.http_port}/metrics", timeout=5) as answer:
            return answer.read().count(b"\nrocketmq_nameserver_up{")
    except (OSError, HTTPException):
        return 0


def test_a_console_session_is_of_all_of_them_and_ends_in_all_of_them(routelake: Routelake) -> None:
    url = f"http://127.0.0.1:{routelake.http_port}/console/session"

    def users(cookie: str) -> set[str | None]:
        """Who one is to those that answer; each try is a connection of its own."""
        headers = {"cookie": cookie, "connection": "close"}
        with httpx.Client(headers=headers, timeout=30) as client:
            return {client.get(url).json()["user"] for _ in range(12 * WORKERS)}

    began = httpx.post(url, json={"token": "of-alice"}, timeout=30)
    assert began.status_code == 200, began.text
    cookie = began.headers["set-cookie"].split(";")[0]
    assert users(cookie) == {"alice"}
    assert users("") == {None}
    assert httpx.delete(url, headers={"cookie": cookie}, timeout=30).status_code == 204
    assert users(cookie) == {None}


def test_all_of_them_answer_alike(routelake: Routelake) -> None:
    with RemotingClient("127.0.0.1", routelake.remoting_port) as broker:
        assert (
            broker.call(register("b", "127.0.0.1:1", topics=[config("t"), config("u")]).request()).code == codes.SUCCESS
        )
        wait_until(
            lambda: len({_ask(routelake, codes.GET_ROUTEINFO_BY_TOPIC, topic="t") for _ in range(30)}) == 1,
            60,
            "every worker to know the route",
            0.05,
        )
        assert _ask(routelake, codes.GET_ROUTEINFO_BY_TOPIC, topic="t")[0] == codes.SUCCESS
    # The lost connection unregisters the broker for all of them.
    wait_until(
        lambda: (
            {_ask(routelake, codes.GET_ROUTEINFO_BY_TOPIC, topic="t")[0] for _ in range(30)} == {codes.TOPIC_NOT_EXIST}
        ),
        60,
        "the broker to be gone everywhere",
        0.05,
    )


def test_one_that_is_killed_is_replaced(routelake: Routelake) -> None:
    assert routelake.process is not None
    pid = routelake.process.pid
    children = [*commands_of_children(pid)]
    assert len(children) == WORKERS
    os.kill(children[0], signal.SIGKILL)
    wait_until(
        lambda: children[0] not in commands_of_children(pid) and len(_workers(routelake)) == WORKERS,
        90,
        "another in its place",
        0.1,
    )


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    """Also by a process that would share the port: two lakes at one address would answer by chance."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    routelake = Routelake(tmp_path / "data", "gateway", ("--workers", "2"))
    routelake.remoting_port = taken.getsockname()[1]
    try:
        routelake.start(wait_ready_s=None)
        assert routelake.process is not None
        assert routelake.process.wait(90) == 2
        assert "--remoting 127.0.0.1" in routelake.log_tail()
        assert "cannot be listened on" in routelake.log_tail()
    finally:
        routelake.kill()
        taken.close()
