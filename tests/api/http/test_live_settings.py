# SPDX-License-Identifier: Apache-2.0
"""Switches set by UPDATE_NAMESRV_CONFIG hold at the HTTP door, too; their namespace is closed to KV requests."""

from __future__ import annotations

from typing import Any

from schemas.events import Actor, PutKvConfig
from schemas.kv import NAMESRV_CONFIG
from tests.support.doors import Door, broker, problem


def switch(door: Door, key: str, value: str) -> None:
    """What the remoting door writes for a 318."""
    actor = Actor(gateway="gw", via="remoting", peer="10.0.0.9:1")
    event = PutKvConfig(actor=actor, namespace=NAMESRV_CONFIG, key=key, value=value)
    assert door.loop.run(door.gateway.command(event)).visible


def test_switches_take_effect(make_door: Any) -> None:
    door = make_door()
    door.register(broker())
    assert door.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"}).status_code == 200
    assert "orderTopicConf" not in door.get("/v1/topics/orders/route").json()
    switch(door, "orderMessageEnable", "true")
    assert door.get("/v1/topics/orders/route").json()["orderTopicConf"] == "broker-a:8"
    switch(door, "orderMessageEnable", "false")
    assert "orderTopicConf" not in door.get("/v1/topics/orders/route").json()
    switch(door, "enableAllTopicList", "false")
    problem(door.get("/v1/topics"), 403, "listing-disabled")
    assert door.get("/v1/topics?cluster=c1").status_code == 200
    switch(door, "enableTopicList", "false")
    problem(door.get("/v1/topics?cluster=c1"), 403, "listing-disabled")


def test_what_is_no_live_key_changes_nothing(make_door: Any) -> None:
    door = make_door()
    before = door.gateway.settings
    switch(door, "waitSecondsForService", "1")
    switch(door, "nonsense", "true")
    assert door.gateway.settings == before


def test_the_namespace_is_closed(make_door: Any) -> None:
    door = make_door()
    switch(door, "enableTopicList", "false")
    path = f"/v1/kv/{NAMESRV_CONFIG}"
    problem(door.get(path), 404, "not-found")
    problem(door.get(f"{path}/enableTopicList"), 404, "not-found")
    for answer in (door.put(f"{path}/enableTopicList", {"value": "true"}), door.delete(f"{path}/enableTopicList")):
        assert "holds settings" in problem(answer, 400, "bad-parameter")["detail"]
    assert not door.gateway.settings.enable_topic_list
