# SPDX-License-Identifier: Apache-2.0
"""A refusal is in the history with its client, and a client that is refused often does not fill the history."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from api.gateway.metrics import Metrics
from dev.model import codes
from dev.model.wire import Request
from dev.support import lakes
from dev.support.accounts import accounts_file, policy, sign
from dev.support.local import LocalGateway, LocalLake
from dev.support.loops import until
from schemas.events import AccessRefused, decode
from security.admission.access_control import AccessControl, Refused
from security.identity import ANONYMOUS
from security.policy import AuthMode, authorize
from security.roles import Role
from tests.examples.parts import T1, A, register

DELETE = Request(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": T1})


def written(gateway: LocalGateway) -> list[AccessRefused]:
    events = [decode(record.payload) for record in gateway.log.read(0)]
    return [event for event in events if isinstance(event, AccessRefused)]


@pytest.mark.parametrize("mode", [AuthMode.AUDIT, AuthMode.ENFORCE_WRITES, AuthMode.ENFORCE])
def test_a_refusal_is_in_the_table(tmp_path: Path, mode: AuthMode) -> None:
    with (
        LocalLake(tmp_path) as lake,
        lake.gateway(
            policy=policy(mode), accounts=accounts_file(tmp_path), http_port=0, clock_interval_s=0.1
        ) as gateway,
        gateway.connect() as client,
    ):
        assert client.call(sign(register(A, "10.0.0.1:10911").request(), "broker")).code == codes.SUCCESS
        may = mode is AuthMode.AUDIT
        assert (client.call(sign(DELETE, "reader")).code == codes.SUCCESS) is may
        assert (client.call(sign(DELETE, "admin", "wrong!")).code == codes.SUCCESS) is may
        until(lambda: len(rows(lake)) == 2)
        one, other = rows(lake)
        assert (one["outcome"], one["reason"]) == ("unchanged" if may else "rejected", "role")
        assert (one["topic"], one["tableName"], one["seq"]) == (T1, None, -1)
        actor = json.loads(one["actor"])
        assert (actor["user"], actor["via"], actor["gateway"]) == ("reader", "remoting", "local")
        assert actor["peer"].startswith("127.0.0.1:")
        assert json.loads(one["key"]) == {
            "request": "DELETE_TOPIC_IN_NAMESRV",
            "needed": "admin",
            "role": "reader",
            "reason": "role",
            "remark": "reader is a reader: this needs the role admin",
            "isRefused": not may,
            "times": 1,
            "claimedUser": None,
            "topic": T1,
            "brokerName": None,
        }
        assert json.loads(other["actor"])["user"] is None, "a wrong key shows nobody's name"
        assert json.loads(other["key"])["claimedUser"] == "admin"


def rows(lake: LocalLake) -> list[dict[str, Any]]:
    found = [row for row in lakes.rows(lake.lake_dir, "routeChangeTable") if row["command"] == "ACCESS_REFUSED"]
    return sorted(found, key=lambda row: row["offset"])


def test_many_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand refusals of a kind are two events: the first one and, after a while, the number of the others."""
    monkeypatch.setattr("security.notices.INTERVAL_S", 3.0)
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway(policy=policy(), accounts=accounts_file(tmp_path)) as gateway,
        gateway.connect() as client,
    ):
        for _ in range(1_000):
            assert client.call(DELETE).code == codes.NO_PERMISSION
        until(lambda: sum(event.times for event in written(gateway)) == 1_000, 30.0)
        assert len(written(gateway)) < 10
        assert written(gateway)[0].times == 1


def test_a_read_that_is_anybodys_is_no_event(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway(policy=policy(AuthMode.ENFORCE_WRITES), accounts=accounts_file(tmp_path)) as gateway,
        gateway.connect() as client,
    ):
        assert client.call(Request(codes.GET_BROKER_CLUSTER_INFO)).code == codes.SUCCESS
        assert client.call(DELETE).code == codes.NO_PERMISSION
        until(lambda: written(gateway))
        assert [event.request for event in written(gateway)] == ["DELETE_TOPIC_IN_NAMESRV"]


def test_names_of_a_peers_choice(tmp_path: Path) -> None:
    with (
        LocalLake(tmp_path, folds=False) as lake,
        lake.gateway(policy=policy(), accounts=accounts_file(tmp_path)) as gateway,
        gateway.connect() as client,
    ):
        client.call(Request(codes.DELETE_TOPIC_IN_NAMESRV, {"topic": "x" * 10_000, "AccessKey": "y" * 10_000}))
        until(lambda: len(written(gateway)) == 1)
        (event,) = written(gateway)
        assert event.topic == "x" * 255
        assert len(event.remark) < 200
        assert event.reason == "unknown-key"


def test_the_audit_keeps_a_short_form_of_a_refused_request(tmp_path: Path) -> None:
    """However long names are, of whatever characters, for both listeners."""
    control = AccessControl(policy(AuthMode.ENFORCE), accounts_file(tmp_path), Metrics().observe_access)
    verdict = authorize(control.policy, Role.ADMIN, ANONYMOUS, is_tls=True)
    tracemalloc.start()
    try:
        for number, via in enumerate(["remoting", "http"] * 23):
            name = "\N{GRINNING FACE}" + "a" * 1_000_000
            asked = Refused(via, str(number), "admin", "192.0.2.1:1", ANONYMOUS, verdict, name, name)
            control.note(asked._replace(verdict=verdict._replace(remark=name)))
            del asked, name
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000


def test_hosts_of_one_ipv6_network_are_one_kind(tmp_path: Path) -> None:
    control = AccessControl(policy(AuthMode.ENFORCE), accounts_file(tmp_path), Metrics().observe_access)
    told: list[Refused] = []
    control.follow(told.append)
    verdict = authorize(control.policy, Role.ADMIN, ANONYMOUS, is_tls=True)
    for number in range(4):
        control.note(Refused("remoting", "x", "admin", f"[2001:db8::{number}]:1", ANONYMOUS, verdict))
    assert len(told) == 1
    control.note(Refused("remoting", "x", "admin", "[2001:db8:0:1::1]:1", ANONYMOUS, verdict))
    assert len(told) == 2
