# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's address server, asked as DefaultTopAddressing does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.live_gateways import live_addresses
from tests.support.http_api import HttpApi
from tests.support.local import LocalLake
from tests.support.loops import until


def test_one_gateway(make_api: Any) -> None:
    api: HttpApi = make_api(gateway_id="10.0.0.1:9876", fold=False)
    for path in ("/rocketmq/nsaddr", "/rocketmq/nsaddr-unit1?nofix=1", "/rocketmq/nsaddr?a=b"):
        answer = api.get(path)
        assert (answer.status_code, answer.text) == (200, "10.0.0.1:9876\n")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_a_gateway_without_an_address(make_api: Any) -> None:
    answer = make_api(gateway_id="gw", fold=False).get("/rocketmq/nsaddr")
    assert (answer.status_code, answer.text) == (200, "\n")


def test_a_gateway_joins_and_leaves(tmp_path: Path) -> None:
    clock: dict[str, Any] = {"clock_interval_s": 0.05, "remoting_port": None}
    with LocalLake(tmp_path, folds=False) as lake, lake.gateway(gateway_id="one:9876", **clock) as one:

        def heard() -> set[str]:
            return set(one.gateway.head.heard_ms())

        with lake.gateway(gateway_id="two:9876/1", **clock):
            until(lambda: heard() >= {"one:9876", "two:9876/1"})
        until(lambda: live_addresses(one.gateway.head.heard_ms(), "one:9876", 0.05) == ["one:9876"])
