# SPDX-License-Identifier: Apache-2.0
"""What ZoneRouteRPCHookTest and ZoneRouteRPCHookMoreTest assert of the zone filter, and where those assert nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.model import codes
from tests.namesrv_checklist.brokers import Broker, NameServer, nameserver

T = "TestTopic"
A = Broker("c", "BrokerA", "127.0.0.1:10911", zone="ZoneA")
B = Broker("c", "BrokerB", "127.0.0.1:10912", zone="ZoneB")
MODE, NAME = "__ZONE_MODE", "__ZONE_NAME"


@pytest.fixture
def ns() -> Iterator[NameServer]:
    with nameserver() as found:
        found.register(A, T, filter_servers=("f:1",))
        found.register(B, T, filter_servers=("f:2",))
        yield found


@pytest.mark.parametrize(
    "ext",
    [
        {},
        {MODE: "false", NAME: "ZoneA"},
        {MODE: "true"},
        {MODE: "true", NAME: ""},
        {MODE: "true", NAME: "  "},
        {NAME: "ZoneA"},
        {MODE: "yes", NAME: "ZoneA"},
    ],
)
def test_no_zone_mode_or_no_zone_name_does_not_filter(ns: NameServer, ext: dict[str, str]) -> None:
    route = ns.route(T, **ext)
    assert route is not None
    assert [data["brokerName"] for data in route["brokerDatas"]] == ["BrokerA", "BrokerB"]
    assert len(route["queueDatas"]) == 2


def test_valid_zone_filtering(ns: NameServer) -> None:
    """Brokers, rows and filter servers of other zones go; letter case does not matter."""
    for name in ("ZoneA", "zonea"):
        route = ns.route(T, **{MODE: "TRUE", NAME: name})
        assert route is not None
        assert [data["brokerName"] for data in route["brokerDatas"]] == ["BrokerA"]
        assert [row["brokerName"] for row in route["queueDatas"]] == ["BrokerA"]
        assert route["filterServerTable"] == {A.addr: ["f:1"]}


def test_other_answers_are_not_filtered(ns: NameServer) -> None:
    """No response, no body, another code, an error: the hook does nothing."""
    info = ns.json(codes.GET_BROKER_CLUSTER_INFO, **{MODE: "true", NAME: "ZoneA"})
    assert set(info["brokerAddrTable"]) == {"BrokerA", "BrokerB"}
    answer = ns.call(codes.GET_ROUTEINFO_BY_TOPIC, b"", topic="none", **{MODE: "true", NAME: "ZoneA"})
    assert (answer.code, answer.body) == (codes.TOPIC_NOT_EXIST, b"")
