# SPDX-License-Identifier: Apache-2.0
"""A lake in versitygw, a real S3 server: fold, standby and gateways as processes, each with a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.peers.versitygw import NoVersityGwError, VersityGw
from dev.support.s3 import FakeS3
from lake.store import open_store
from schemas.tables import FOLD_STATUS_FILE
from tests.e2e.test_routelake import registration

pytestmark = [pytest.mark.jvm, pytest.mark.deep, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """Where an S3 server is: versitygw, or one of the tests' own where that cannot be built."""
    server: VersityGw | FakeS3
    try:
        server = VersityGw()
    except NoVersityGwError as error:
        print(error)
        server = FakeS3()
    with server:
        yield server.environment


def _register(gateway: Routelake, broker: str, counter: int, **topics: int) -> int:
    told = gateway.send("POST", "/v1/brokers/register", registration(broker, counter, **topics))
    return int(told["offset"])


def _route(gateway: Routelake, topic: str, query: str = "") -> Any:
    try:
        return gateway.get(f"/v1/topics/{topic}/route{query}")
    except urllib.error.HTTPError as error:
        print(query, error.code, error.read().decode())
        return error.code


def _committed(gateway: Routelake, offset: int) -> Any:
    """The route of the topic orders as the tables have it, once they show the log up to an offset."""
    answers: list[Any] = []

    def found() -> bool:
        answers.append(_route(gateway, "orders", f"?reads=committed&wait_for={offset}"))
        return not isinstance(answers[-1], int)

    wait_until(found, 240, f"offset {offset} in the tables")
    return answers[-1]


def test_a_fold_ends_and_the_standby_goes_on(
    tmp_path: Path, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "s3://lake/prod/routes"
    lake = ("--lake", url, "--event-log", f"sqlite://{tmp_path}/events.db")
    one = Routelake(tmp_path / "one", "fold", lake, s3)
    two = Routelake(tmp_path / "two", "fold", (*lake, "--standby"), s3)
    gateway = Routelake(tmp_path / "gateway", "gateway", lake, s3)
    try:
        gateway.start(wait_ready_s=None)
        gateway.wait_listening()
        one.start(wait_ready_s=None)
        gateway.wait_ready(300)
        before = _register(gateway, "broker-a", 1, orders=8, other=8)
        assert _committed(gateway, before)["queueDatas"][0]["writeQueueNums"] == 8
        for name, value in s3.items():
            monkeypatch.setenv(name, value)
        epoch = pc.max(DeltaTable(f"{url}/routeCommitTable").to_pyarrow_table()["epoch"]).as_py()
        two.start(wait_ready_s=None)
        wait_until(lambda: "standing by" in two.log_tail(), 120, "the standby to wait")

        assert one.process is not None
        os.killpg(one.process.pid, signal.SIGKILL)
        one.process.wait(30)
        killed_s = time.monotonic()
        after = _register(gateway, "broker-a", 2, orders=4, other=8)
        wait_until(lambda: "took the lake" in two.log_tail(), 120, "the standby to take the lake over", 0.1)
        print(f"taken over after {time.monotonic() - killed_s:.1f} s")
        answer = _committed(gateway, after)
        print(f"an epoch after {time.monotonic() - killed_s:.1f} s")
        assert answer["queueDatas"][0]["writeQueueNums"] == 4
        assert _route(gateway, "orders", f"?as_of={epoch}")["queueDatas"][0]["writeQueueNums"] == 8

        one.start(wait_ready_s=None)
        assert one.process.wait(120) == 1, one.log_tail()
        assert "held by another fold" in one.log_tail() and "--standby" in one.log_tail()
        assert two.stop() == 0
        assert json.loads(open_store(url).get(FOLD_STATUS_FILE))["epoch"] >= 2
        rows = DeltaTable(f"{url}/topicQueueTable").to_pyarrow_table().to_pylist()
        assert [(row["topic"], row["writeQueueNums"]) for row in rows if row["topic"] == "orders"] == [("orders", 4)]
    finally:
        for process in (one, two, gateway):
            process.kill()
            if process.log_path.exists():
                print(process.log_tail())
