# SPDX-License-Identifier: Apache-2.0
"""The story of the articles (docs/tutorial/topic-lifecycle.md) from one end to the other, with nothing of it in Java.

updateTopic by cluster -> the broker's memory, version and file -> incremental registration -> NameServer -> the route a
producer gets -> deleteTopic -> the route is gone -> what happened, and what the route was, read back afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clients.route.blocking import BlockingRouteClient
from dev.model import codes
from dev.model.client import RemotingClient
from dev.model.wire import Request
from dev.peers.java import wait_until
from dev.peers.routelake import Routelake
from dev.support.broker_agent import broker_agent
from dev.support.command import command
from dev.support.fold import FoldThread
from eventlog.open import open_log

TOPIC = "orders"


class Stage:
    """A gateway process with a fold, a broker agent's process, and the command line."""

    def __init__(self, routelake: Routelake, store: Path, broker_port: int) -> None:
        self.routelake, self.store, self.broker_port = routelake, store, broker_port

    def admin(self, name: str, *options: str) -> Any:
        """`routelake admin`; the JSON it prints. Fails when the command does."""
        return json.loads(self.cli("admin", name, "-n", self.routelake.namesrv_addr, *options, "-o", "json"))

    def cli(self, *words: str) -> str:
        done = command(*words)
        assert done.returncode == 0, done
        return done.stdout

    def changes(self) -> list[dict[str, Any]]:
        """Of the topic, when the tables have what has happened until now."""
        offset = self.routelake.get("/readyz")["offset"]
        page = self.routelake.send(
            "GET", f"/v1/topics/{TOPIC}/changes?wait_for={offset}&wait_timeout=30000", timeout_s=60
        )
        return list(page["changes"])

    def topics_json(self) -> Any:
        return json.loads((self.store / "config" / "topics.json").read_text())

    def broker_version(self) -> Any:
        """DataVersion in the broker's memory (GET_ALL_TOPIC_CONFIG)."""
        with RemotingClient("127.0.0.1", self.broker_port) as client:
            answer = json.loads(client.call(Request(21)).body)
        assert TOPIC in answer["topicConfigTable"] or TOPIC not in self.topics_json()["topicConfigTable"]
        return answer["dataVersion"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    data_dir, store = tmp_path / "data", tmp_path / "store"
    data_dir.mkdir()
    log = open_log(f"sqlite://{data_dir / 'events.db'}")
    routelake = Routelake(data_dir, "gateway")
    with FoldThread(log, data_dir / "lake"):
        try:
            routelake.start(wait_ready_s=120)
            with broker_agent(routelake.namesrv_addr, store) as address:
                stage = Stage(routelake, store, int(address.rpartition(":")[2]))
                wait_until(lambda: "broker-a" in str(routelake.get("/v1/clusters")), 60, "the broker", 0.05)
                yield stage
        finally:
            routelake.kill()
    log.close()


def test_the_whole_story(stage: Stage) -> None:
    before = stage.broker_version()

    stage.admin("updateTopic", "-c", "DefaultCluster", "-t", TOPIC, "-r", "4", "-w", "4")
    # The broker's memory, version and file.
    after = stage.broker_version()
    assert after["counter"] == before["counter"] + 1
    written = stage.topics_json()
    assert written["dataVersion"]["counter"] == after["counter"]
    assert written["topicConfigTable"][TOPIC]["writeQueueNums"] == 4
    # The NameServer, by the registration that this caused, not by the next periodic one.
    wait_until(lambda: TOPIC in str(stage.routelake.get("/v1/topics")), 20, "the topic to be registered", 0.02)
    (queue_data,) = stage.routelake.get(f"/v1/topics/{TOPIC}/route")["queueDatas"]
    assert (queue_data["brokerName"], queue_data["writeQueueNums"], queue_data["perm"]) == ("broker-a", 4, 6)
    # A producer's view of it.
    with BlockingRouteClient(stage.routelake.namesrv_addr) as client:
        info = client.try_to_find_topic_publish_info(TOPIC)
        assert [(queue.broker_name, queue.queue_id) for queue in info.message_queue_list] == [
            ("broker-a", number) for number in range(4)
        ]
    created = max(row["epoch"] for row in stage.changes())

    stage.admin("deleteTopic", "-c", "DefaultCluster", "-t", TOPIC)
    assert TOPIC not in stage.topics_json()["topicConfigTable"]
    with RemotingClient("127.0.0.1", stage.routelake.remoting_port) as client_:
        gone = Request(codes.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        wait_until(lambda: client_.call(gone).code == codes.TOPIC_NOT_EXIST, 60, "the route to be gone", 0.02)

    # Afterwards: what the route was, and who took it away.
    past = stage.routelake.get(f"/v1/topics/{TOPIC}/route?as_of={created}")
    assert past["queueDatas"][0]["writeQueueNums"] == 4
    commands = [row["command"] for row in stage.changes()]
    assert "REGISTER_BROKER" in commands
    assert "DELETE_TOPIC_IN_NAMESRV" in commands
