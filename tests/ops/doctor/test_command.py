# SPDX-License-Identifier: Apache-2.0
"""The command with a running gateway: routes are served while tables are damaged and repaired."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.command import process, told
from tests.ops.doctor.data import EVENTS, fold_on, go_on


@pytest.fixture
def data(tmp_path: Path) -> Path:
    go_on(tmp_path / "data", EVENTS[:5])
    shutil.rmtree(tmp_path / "data" / "lake" / "_staging")
    return tmp_path / "data"


@pytest.fixture
def gateway(data: Path) -> Iterator[Routelake]:
    running = Routelake(data, "gateway").start(wait_ready_s=None)
    try:
        running.wait_listening()
        yield running
    finally:
        running.kill()


def route(gateway: Routelake) -> Any:
    return gateway.get("/v1/topics/T/route")


def put(gateway: Routelake, key: str) -> int:
    """Write a KV entry; returns its offset."""
    return int(gateway.send("PUT", f"/v1/kv/n/{key}", {"value": "1"})["offset"])


def test_a_gateway_serves_while_the_tables_are_damaged_and_made_good(data: Path, gateway: Routelake) -> None:
    served = route(gateway)
    lost = max((data / "lake" / "topicQueueTable" / "_delta_log").glob("*.json"))
    whole = lost.read_bytes()
    lost.write_bytes(whole[: len(whole) // 2])

    looked = process("doctor", data)
    assert looked.returncode == 1
    printed = looked.stdout + looked.stderr
    assert f"WRONG: commit-damaged: {lost} is torn" in printed
    assert "--repair" in printed
    assert lost.read_bytes() == whole[: len(whole) // 2]
    assert route(gateway) == served
    offset = put(gateway, "meanwhile")  # and writes, too

    code, printed = told("doctor", data, "--repair")
    assert code == 0, printed
    assert "set back from epoch 5" in printed
    assert route(gateway) == served

    fold_on(data, offset)
    wait_until(lambda: _folded(gateway) >= offset, 60, "the gateway to follow the tables again")
    assert route(gateway) == served
    assert gateway.get("/v1/kv/n/meanwhile")["value"] == "1"
    code, printed = told("doctor", data, "-o", "json")
    assert (code, json.loads(printed)["findings"]) == (0, [])
    gateway.stop()  # raises if head and tables ever differed


def _folded(gateway: Routelake) -> int:
    with urllib.request.urlopen(
        f"http://127.0.0.1:{gateway.http_port}/v1/topics?reads=committed", timeout=30
    ) as answer:
        return int(answer.headers["X-Routelake-Offset"])


def test_a_path_that_cannot_be_examined_is_an_error(tmp_path: Path) -> None:
    code, printed = told("doctor", tmp_path)
    assert code == 2
    assert "neither a lake nor an event log" in printed
    code, printed = told("doctor", tmp_path, "--event-log", "nonsense")
    assert code == 2


def test_a_healthy_data_directory_exits_with_0(data: Path) -> None:
    code, printed = told("doctor", data, "--thorough")
    assert code == 0
    assert "nothing is wrong" in printed
