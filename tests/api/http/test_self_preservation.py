# SPDX-License-Identifier: Apache-2.0
"""Self-preservation at a gateway: twenty brokers, a log with a time that the test moves, the real fold (ADR 14).

At the end of each test live view and tables are compared.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from api.gateway.self_preservation import SelfPreservation
from dev.support.http_api import HttpApi, broker, problem
from dev.support.loops import until
from schemas.events import Actor, BrokerHeartbeat, Clock, Preserve, PreserveEnd, decode

BROKERS = 20
STEP_S = 20
"""Between heartbeats: a stock broker's 30 s would do."""


class Cluster:
    """Brokers that say something while the log's time passes.

    Attributes:
        talking: Which of them do.
        looks: How often their gateway looks after each step.
    """

    def __init__(self, make_api: Any, *, looks: int = 2, **settings: Any) -> None:
        self.looks = looks
        self.now_ms = 1_800_000_000_000
        self.api: HttpApi = make_api(
            clock=lambda: self.now_ms, clock_interval_s=0.05, liveness_interval_s=600.0, **settings
        )
        self.api.loop.call(self.api.gateway.preservation.stop)  # it is asked when the test wants it
        self.offset = 0
        self.talking = set(range(BROKERS))
        for number in self.talking:
            assert self.api.register(broker(f"b{number}", host=number, topics=["orders", f"t{number}"])).is_success

    def pass_(self, seconds: int, step_s: int = STEP_S) -> None:
        """Let time pass; who is talking sends heartbeats, and whatever is to be judged is."""
        for _ in range(seconds // step_s):
            self.now_ms += step_s * 1_000
            self.offset = max([0, *self.api.loop.run(self._beat())])
            self.decide()

    async def _beat(self) -> list[int]:
        actor = Actor(gateway="gw", via="remoting")
        events = (BrokerHeartbeat("c1", f"b{number}", f"10.0.0.{number}:10911", actor=actor) for number in self.talking)
        receipts = await asyncio.gather(*(self.api.gateway.propose(event, None) for event in events))
        return [receipt.offset for receipt in receipts]

    def decide(self) -> None:
        """Wait until the view has the time and every heartbeat, and look."""
        gateway = self.api.gateway
        until(lambda: gateway.live_view.view.event_time.timestamp() * 1000 >= self.now_ms)
        until(lambda: gateway.live_view.view.log_offset >= self.offset)
        for _ in range(self.looks):
            self.api.loop.run(gateway.preservation.decide())

    @property
    def routed(self) -> set[int]:
        route = self.api.get("/v1/topics/orders/route")
        if route.status_code == 404:
            return set()
        return {int(data["brokerName"][1:]) for data in route.json()["brokerDatas"]}

    @property
    def is_on(self) -> bool:
        return bool(self.api.get("/v1/self-preservation").json()["isOn"])

    def said(self) -> list[Preserve | PreserveEnd]:
        events = (decode(record.payload) for record in self.api.log.read(1, max_records=100_000))
        return [event for event in events if isinstance(event, Preserve | PreserveEnd)]

    def reasons(self) -> list[str]:
        return [event.reason if isinstance(event, PreserveEnd) else "BEGIN" for event in self.said()]


@pytest.fixture
def cut(make_api: Any) -> Cluster:
    """Ninety seconds after the last heartbeat of all brokers but the first."""
    cluster = Cluster(make_api, self_preservation_percent=15)
    cluster.talking = {0}
    cluster.pass_(100)
    assert cluster.is_on
    return cluster


def test_without_it_silent_brokers_leave_after_their_timeout(make_api: Any) -> None:
    cluster = Cluster(make_api)
    cluster.talking = {0}
    cluster.pass_(120)
    assert cluster.routed == set(range(BROKERS))
    cluster.pass_(20)
    assert cluster.routed == {0}
    assert cluster.said() == []
    assert "selfPreservation" not in cluster.api.get("/readyz").json()["checks"]
    assert "self_preservation" not in cluster.api.get("/metrics").text


def test_few_that_fall_silent_leave(make_api: Any) -> None:
    """Three of twenty are 15 %, not more."""
    cluster = Cluster(make_api, self_preservation_percent=15)
    cluster.talking -= {7, 8, 9}
    cluster.pass_(140)
    assert cluster.routed == cluster.talking
    assert cluster.said() == []
    ready = cluster.api.get("/readyz?strict").json()
    assert ready["checks"]["selfPreservation"] == {"ok": True}
    assert "routelake_self_preservation 0.0" in cluster.api.get("/metrics").text


def test_many_stay_until_they_are_back(cut: Cluster) -> None:
    api = cut.api
    cut.pass_(600, 300)
    assert cut.routed == set(range(BROKERS))
    state = api.get("/v1/self-preservation").json()
    assert (state["percent"], state["isOn"], state["live"], state["silent"]) == (15, True, 20, 19)
    assert state["since"] < state["until"]
    ready = api.get("/readyz")
    assert ready.status_code == 200
    check = ready.json()["checks"]["selfPreservation"]
    assert not check["ok"] and "19 of 20 have no heartbeats" in check["reason"]
    assert api.get("/readyz?strict").status_code == 503
    text = api.get("/metrics").text
    assert "routelake_self_preservation 1.0" in text and "routelake_silent_brokers 19.0" in text
    cut.talking = set(range(BROKERS)) - {7}
    cut.pass_(20)
    assert not cut.is_on and cut.reasons() == ["BEGIN", "RECOVERED"]
    assert cut.routed == set(range(BROKERS))  # 7 has its grace
    cut.pass_(40)
    assert cut.routed == cut.talking
    assert api.get("/readyz?strict").json()["checks"]["selfPreservation"] == {"ok": True}


def test_the_history_has_its_begin_and_end(cut: Cluster) -> None:
    cut.talking = set(range(BROKERS))
    cut.pass_(20)
    last = cut.api.settled()
    changes = cut.api.get(f"/v1/topics/orders/changes?limit=50&wait_for={last}").json()["changes"]
    pauses = [change for change in changes if change["command"] in ("PRESERVE", "PRESERVE_END")]
    assert [change["command"] for change in pauses] == ["PRESERVE_END", "PRESERVE"]
    assert {change["actor"]["gateway"] for change in pauses} == {"gw"}
    assert pauses[1]["key"] == {"live": 20, "silent": 19, "percent": 15}
    assert pauses[0]["key"] == {"graceMs": 30_000, "reason": "RECOVERED"}
    assert not [change for change in changes if change["command"] == "BROKER_EXPIRED"]


def test_an_admin_ends_it_and_it_does_not_begin_again(cut: Cluster) -> None:
    cut.pass_(600, 300)
    ended = cut.api.post("/v1/self-preservation/end")
    assert (ended.status_code, ended.json()["outcome"]) == (200, "applied")
    assert cut.routed == {0}
    cut.pass_(100)
    assert cut.reasons() == ["BEGIN", "REQUESTED"]
    assert cut.api.post("/v1/self-preservation/end").json()["outcome"] == "unchanged"


def test_ended_early_it_waits_until_the_silent_ones_are_gone(cut: Cluster) -> None:
    """They have not expired yet, and are as silent as before."""
    assert cut.api.post("/v1/self-preservation/end").json()["outcome"] == "applied"
    assert cut.routed == set(range(BROKERS))
    cut.pass_(40)
    assert cut.routed == {0}
    for number in range(1, BROKERS):  # a new cut is a new one
        cut.api.register(broker(f"b{number}", host=number, topics=["orders", f"t{number}"]))
    cut.decide()
    cut.pass_(200)
    assert cut.routed == set(range(BROKERS))
    assert cut.reasons() == ["BEGIN", "REQUESTED", "BEGIN"]


def test_ended_before_the_next_look_it_does_not_begin_again_either(make_api: Any) -> None:
    cluster = Cluster(make_api, self_preservation_percent=15, looks=1)
    cluster.talking = {0}
    while not cluster.is_on:
        cluster.pass_(STEP_S)
    assert cluster.api.post("/v1/self-preservation/end").json()["outcome"] == "applied"
    cluster.decide()
    assert cluster.reasons() == ["BEGIN", "REQUESTED"]


def test_a_pause_of_expiry_ends(make_api: Any) -> None:
    cluster = Cluster(make_api, self_preservation_percent=15, self_preservation_limit_s=600.0)
    cluster.talking = {0}
    cluster.pass_(80)  # it begins after 60 s if this machine takes a millisecond to look twice, else after 80
    cluster.pass_(560, 280)
    assert cluster.is_on and cluster.routed == set(range(BROKERS))
    cluster.pass_(60)
    assert cluster.routed == {0} and not cluster.is_on
    cluster.pass_(200)
    assert cluster.reasons() == ["BEGIN", "LIMIT"]


def test_the_live_switch(make_api: Any) -> None:
    cluster = Cluster(make_api)
    api = cluster.api
    assert api.put("/v1/self-preservation", {"percent": 15}).json()["outcome"] == "applied"
    assert api.get("/v1/self-preservation").json()["percent"] == 15
    cluster.talking = {0}
    cluster.pass_(100)
    cluster.pass_(500, 250)
    assert cluster.is_on
    assert api.put("/v1/self-preservation", {"percent": 0}).json()["outcome"] == "applied"
    cluster.decide()
    assert cluster.reasons() == ["BEGIN", "SWITCHED_OFF"]
    assert cluster.routed == {0}
    for wrong in ({"percent": 100}, {"percent": -1}, {"percent": "15"}, {}, {"percent": 1.5}):
        problem(api.put("/v1/self-preservation", wrong), 422, "bad-body")


def test_a_broker_that_says_it_leaves_leaves(cut: Cluster) -> None:
    gone = {"clusterName": "c1", "brokerName": "b5", "brokerAddr": "10.0.0.5:10911", "brokerId": 0}
    assert cut.api.post("/v1/brokers/unregister", gone).json()["outcome"] == "applied"
    cut.api.register(broker("b30", host=30, topics=["orders", "t30"]))
    assert cut.routed == set(range(BROKERS)) - {5} | {30}
    assert cut.api.delete("/v1/topics/t3").json()["outcome"] == "applied"
    assert cut.api.get("/v1/topics/t3/route").status_code == 404


def test_where_the_log_stands_still_nobody_is_called_silent(cut: Cluster) -> None:
    """Then it is this gateway that hears nothing."""
    gateway = cut.api.gateway
    view = gateway.live_view.view

    async def deaf() -> None:
        preservation = SelfPreservation(
            lambda: replace(gateway.settings, gap_s=0.0), lambda: view, partial(gateway.propose, sender=None)
        )
        await preservation.decide()
        assert preservation.counted == (BROKERS, 19)
        await asyncio.sleep(0.01)
        await preservation.decide()
        assert preservation.counted is None

    cut.api.loop.run(deaf())


def test_clock_alone_moves_the_time(cut: Cluster) -> None:
    """No client sends anything, and the log moves all the same."""
    cut.talking = set()
    cut.pass_(200, 100)
    assert cut.routed == set(range(BROKERS))
    written = (decode(record.payload) for record in cut.api.log.read(1, max_records=100_000))
    assert any(isinstance(event, Clock) for event in itertools.islice(written, 100))
