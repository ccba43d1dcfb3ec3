# SPDX-License-Identifier: Apache-2.0
"""routelake in place of the NameServer: stock broker, stock mqadmin, the real fold, real Delta tables.

The scenario is the one the stock NameServer passes (test_scenario_on_stock_namesrv.py), to the letter. One routelake serves
all tests of this file, in their order; it is stopped, started again from a backup, and killed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any

import pytest

from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from tests.e2e import backups, scenario

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routelake]:
    """One routelake for this file, on a lake of its own."""
    with Routelake(tmp_path_factory.mktemp("routelake") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def bring_back(server: Routelake, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What brings back a backup that was taken while routelake ran, between two writes."""
    take, bring_back = backups.blocks(server.data_dir, tmp_path_factory.mktemp("backup") / "backup")
    backups.put(server, "before")
    code, printed = backups.shell(take)
    assert code == 0, printed
    backups.put(server, "after")
    return bring_back


def registration(broker: str, counter: int = 1, **topics: int) -> dict[str, Any]:
    """Body of POST /v1/brokers/register with topics and their queue numbers."""
    return {
        "clusterName": "http-cluster",
        "brokerName": broker,
        "brokerAddr": "10.9.0.1:10911",
        "brokerId": 0,
        "topicConfigSerializeWrapper": {
            "dataVersion": {"stateVersion": 0, "timestamp": 1700000000000, "counter": counter},
            "topicConfigTable": {
                topic: {"topicName": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}
                for topic, queues in topics.items()
            },
        },
    }


def test_a_stock_broker_and_mqadmin_notice_no_difference(server: Routelake) -> None:
    scenario.run(server.namesrv_addr, scenario.Patience(write=15, disconnect=15, expiry=20, registration=60))


def test_history_answers_what_the_route_was(server: Routelake) -> None:
    """Write over HTTP, read the present with the token, then the past by epoch and by time."""
    first = server.send("POST", "/v1/brokers/register", registration("broker-h", 1, story=4, other=4))
    before = server.get(f"/v1/topics/story/route?wait_for={first['offset']}")
    assert before["queueDatas"][0]["readQueueNums"] == 4
    committed = server.send(
        "GET", f"/v1/topics/story/changes?wait_for={first['offset']}&wait_timeout=30000", timeout_s=60
    )
    epoch = committed["changes"][0]["epoch"]
    at_first = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
    wait_until(lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > at_first, 30, "the next second")
    second = server.send("POST", "/v1/brokers/register", registration("broker-h", 2, story=8, other=4))
    after = server.get(f"/v1/topics/story/route?wait_for={second['offset']}")
    assert after["queueDatas"][0]["readQueueNums"] == 8

    past = server.get(f"/v1/topics/story/route?as_of={epoch}")
    assert past["queueDatas"][0]["readQueueNums"] == 4
    assert server.get(f"/v1/topics/story/route?as_of={at_first}")["queueDatas"][0]["readQueueNums"] == 4
    changes = server.get("/v1/topics/story/changes")["changes"]
    assert any(change["command"] == "REGISTER_BROKER" for change in changes)


def test_a_backup_does_not_come_back_under_a_routelake_that_runs(server: Routelake, bring_back: str) -> None:
    code, printed = backups.shell(bring_back)
    assert code == 2
    assert "Stop" in printed
    assert backups.has(server, "after")


def test_a_restarted_gateway_serves_before_the_fold_is_up(server: Routelake) -> None:
    """Both processes die; the gateway answers from the last epoch within seconds, Spark or no Spark."""
    server.send("POST", "/v1/brokers/register", registration("broker-r", 1, kept=4, other=4))
    wait_until(lambda: _route(server, "kept") is not None, 60, "the route")
    server.kill_child("fold")
    server.kill_child("gateway")
    began = time.monotonic()
    wait_until(lambda: _route(server, "kept") is not None, 60, "the route again")
    print(f"served again {time.monotonic() - began:.1f} s after SIGKILL")


def _route(server: Routelake, topic: str) -> Any:
    try:
        return server.get(f"/v1/topics/{topic}/route")
    except (OSError, HTTPException):
        return None


def test_sigterm_drains_and_exits_0(server: Routelake) -> None:
    """The hardest time for it: the fold is being started again (test_kill stops a ready one)."""
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 30, "a child that does not stop is killed after DRAIN_S, 12 s"


def test_what_was_backed_up_comes_back(server: Routelake, bring_back: str) -> None:
    server.stop()
    code, printed = backups.shell(bring_back)
    assert code == 0, printed
    assert len(list(server.data_dir.glob("before-restore-*"))) == 1
    server.start()
    wait_until(lambda: backups.has(server, "before"), 90, "what was backed up")
    assert not backups.has(server, "after")
    backups.put(server, "later")
    assert not list(server.lake_dir.glob("live-view-differences-*.json"))


def test_a_backup_comes_back_as_soon_as_what_was_killed_has_ended(server: Routelake, bring_back: str) -> None:
    """The fold ends when it notices that serve is gone."""
    server.kill()
    wait_until(lambda: backups.shell(bring_back)[0] == 0, 60, "what was backed up to be brought back")
    assert len(list(server.data_dir.glob("before-restore-*"))) > 1
