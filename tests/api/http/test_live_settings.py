# SPDX-License-Identifier: Apache-2.0
"""Switches set by UPDATE_NAMESRV_CONFIG hold at the HTTP API, too; their namespace is closed to KV requests."""

from __future__ import annotations

from typing import Any

from dev.support.http_api import HttpApi, broker, problem
from schemas.events import Actor, PutKvConfig
from schemas.kv import NAMESRV_CONFIG


def switch(api: HttpApi, key: str, value: str) -> None:
    """What the remoting API writes for a 318."""
    actor = Actor(gateway="gw", via="remoting", peer="10.0.0.9:1")
    event = PutKvConfig(actor=actor, namespace=NAMESRV_CONFIG, key=key, value=value)
    assert api.loop.run(api.gateway.propose(event, None)).visible


def test_switches_take_effect(make_api: Any) -> None:
    api = make_api()
    api.register(broker())
    assert api.put("/v1/kv/ORDER_TOPIC_CONFIG/orders", {"value": "broker-a:8"}).status_code == 200
    assert "orderTopicConf" not in api.get("/v1/topics/orders/route").json()
    switch(api, "orderMessageEnable", "true")
    assert api.get("/v1/topics/orders/route").json()["orderTopicConf"] == "broker-a:8"
    switch(api, "orderMessageEnable", "false")
    assert "orderTopicConf" not in api.get("/v1/topics/orders/route").json()
    shown = api.get("/v1/config").json()["config"]
    assert shown["enableAllTopicList"] == "true"
    assert not {"configStorePath", "rocketmqHome", "configBlackList"} & shown.keys(), "as over remoting"
    switch(api, "enableAllTopicList", "false")
    assert api.get("/v1/config").json() == {"config": shown | {"enableAllTopicList": "false"}}
    problem(api.get("/v1/topics"), 403, "listing-disabled")
    assert api.get("/v1/topics?cluster=c1").status_code == 200
    switch(api, "enableTopicList", "false")
    problem(api.get("/v1/topics?cluster=c1"), 403, "listing-disabled")


def test_an_unknown_live_key_changes_nothing(make_api: Any) -> None:
    api = make_api()
    before = api.gateway.settings
    switch(api, "waitSecondsForService", "1")
    switch(api, "nonsense", "true")
    assert api.gateway.settings == before


def test_the_namespace_is_closed(make_api: Any) -> None:
    api = make_api()
    switch(api, "enableTopicList", "false")
    path = f"/v1/kv/{NAMESRV_CONFIG}"
    problem(api.get(path), 404, "not-found")
    problem(api.get(f"{path}/enableTopicList"), 404, "not-found")
    for answer in (api.put(f"{path}/enableTopicList", {"value": "true"}), api.delete(f"{path}/enableTopicList")):
        assert "holds settings" in problem(answer, 400, "bad-parameter")["detail"]
    assert not api.gateway.settings.enable_topic_list
