# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's address server, asked as DefaultTopAddressing does."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any

import pytest

from api.gateway.live_gateways import live_addresses
from api.http.settings import from_environment
from cli.gateway_options import GatewayOptions
from cli.preflight import Listen
from dev.support.http_api import HttpApi, problem
from dev.support.local import LocalLake
from dev.support.loops import until
from schemas.errors import SetupError


def test_one_gateway(make_api: Any) -> None:
    api: HttpApi = make_api(gateway_id="10.0.0.1:9876", fold=False)
    for path in ("/rocketmq/nsaddr", "/rocketmq/nsaddr-unit1?nofix=1", "/rocketmq/nsaddr?a=b"):
        answer = api.get(path)
        assert (answer.status_code, answer.text) == (200, "10.0.0.1:9876\n")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("gateway_id", ["gw", "10.0.0.1", "host", "[::1]", "no-such-host.invalid:9876", "a;b:1"])
def test_a_gateway_without_an_address(make_api: Any, gateway_id: str) -> None:
    """Clients would take an empty answer for no NameServers at all."""
    found = problem(make_api(gateway_id=gateway_id, fold=False).get("/rocketmq/nsaddr"), 503, "system-busy")
    assert "--gateway-id" in found["detail"]
    answer = make_api(gateway_id=gateway_id, fold=False, address="10.0.0.7:9876").get("/rocketmq/nsaddr")
    assert (answer.status_code, answer.text) == (200, "10.0.0.7:9876\n")


def test_host_names_are_told_as_addresses(make_api: Any) -> None:
    answer = make_api(gateway_id="localhost:9876", fold=False).get("/rocketmq/nsaddr")
    assert (answer.status_code, answer.text) == (200, "127.0.0.1:9876\n")
    answer = make_api(gateway_id="[fd00::1]:9876/3", fold=False).get("/rocketmq/nsaddr")
    assert (answer.status_code, answer.text) == (200, "[fd00::1]:9876\n")


def test_other_addresses_can_be_said(make_api: Any) -> None:
    settings = from_environment({"ROUTELAKE_HTTP_NSADDR": "10.0.0.9:30976; 10.0.0.8:30976;"})
    for gateway_id in ("gw", "10.0.0.1:9876"):
        answer = make_api(gateway_id=gateway_id, fold=False, http=settings).get("/rocketmq/nsaddr")
        assert (answer.status_code, answer.text) == (200, "10.0.0.9:30976;10.0.0.8:30976\n")
    for wrong in ("10.0.0.9", "10.0.0.9:0", "10.0.0.9:1,10.0.0.8:1", "http://10.0.0.9:1", "fd00::1:9876", "a b:1"):
        with pytest.raises(SetupError, match="ROUTELAKE_HTTP_NSADDR"):
            from_environment({"ROUTELAKE_HTTP_NSADDR": wrong})


def started(gateway_id: str) -> GatewayOptions:
    return GatewayOptions(gateway_id=gateway_id)


@pytest.mark.parametrize(
    ("gateway_id", "listens", "address"),
    [
        ("", Listen("127.0.0.1", 9876), "127.0.0.1:9876"),
        ("", Listen("10.0.0.1", 9876), "10.0.0.1:9876"),
        ("", Listen("::1", 9876), "[::1]:9876"),
        ("", Listen("localhost", 9876), "127.0.0.1:9876"),
        ("gw", Listen("10.0.0.1", 9876), "10.0.0.1:9876"),
        ("10.0.0.1", Listen("127.0.0.1", 9876), "127.0.0.1:9876"),
        (f"{socket.gethostname()}:9876/2", Listen("10.0.0.1", 9876), "10.0.0.1:9876"),
        ("elsewhere:9876", Listen("0.0.0.0", 9876), ""),
        ("elsewhere:9876/1", Listen("0.0.0.0", 9876), ""),
        ("10.9.9.9:30976", Listen("0.0.0.0", 9876), ""),
    ],
)
def test_the_address_at_the_start(gateway_id: str, listens: Listen, address: str) -> None:
    assert started(gateway_id).address(listens) == address


def test_a_wildcard_address_is_listed_as_an_address_of_this_machine() -> None:
    host, _, port = started("").address(Listen("0.0.0.0", 9876)).rpartition(":")
    assert port == "9876" and not ipaddress.ip_address(host.strip("[]")).is_unspecified


def test_a_gateway_joins_and_leaves(tmp_path: Path) -> None:
    clock: dict[str, Any] = {"clock_interval_s": 0.05, "remoting_port": None}
    with LocalLake(tmp_path, folds=False) as lake, lake.gateway(gateway_id="one:9876", **clock) as one:

        def heard() -> set[str]:
            return set(one.gateway.replica.heard_ms())

        with lake.gateway(gateway_id="two:9876/1", **clock):
            until(lambda: heard() >= {"one:9876", "two:9876/1"})
        until(lambda: live_addresses(one.gateway.replica.heard_ms(), "one:9876", 0.05) == ["one:9876"])
